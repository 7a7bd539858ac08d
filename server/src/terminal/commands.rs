//! What each command does.

use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};

use super::client::{Client, TerminalError, UPGRADE_LIMIT};
use super::screen::{Screen, keys};
use super::search;
use super::tables::{frame, summary};
use super::words::harmless;
use crate::admin::{DrainReport, ReloadReport};
use crate::config::{KickArguments, SocketArguments, StatusArguments, TopArguments, Whom};
use crate::status::{SessionStatus, Status};

/// The time between two frames of `top`.
const INTERVAL: Duration = Duration::from_secs(1);

/// What ends `top`: `q`, control-C, control-D.
const ENDS: [u8; 4] = [b'q', b'Q', 3, 4];

/// The answer to an action.
#[derive(Debug, Deserialize)]
struct Answer {
    ok: bool,
    #[serde(default)]
    error: String,
    /// The main process after an upgrade.
    #[serde(default)]
    process: Option<u32>,
}

/// `status`.
///
/// # Errors
///
/// When the server cannot be asked.
pub fn status(arguments: &StatusArguments) -> Result<(), TerminalError> {
    if arguments.list {
        return print(&search::listing());
    }
    let client = Client::new(&arguments.server)?;
    let document = wait(client.get("/status.json"))?;
    if arguments.json {
        return print(&format!("{}\n", String::from_utf8_lossy(&document)));
    }
    print(&summary(&parsed(&document)?, Screen::columns()))
}

/// The status document of the server with this socket.
///
/// # Errors
///
/// When the server cannot be asked, or gives no answer in a few seconds.
pub(crate) fn document_at(socket: &Path) -> Result<Vec<u8>, TerminalError> {
    /// Another program may have the socket.
    const LIMIT: Duration = Duration::from_secs(5);

    let client = Client::at(socket);
    let document = wait(async {
        match tokio::time::timeout(LIMIT, client.get("/status.json")).await {
            Ok(document) => document,
            Err(_) => Err(TerminalError::Answer("it takes too long".to_owned())),
        }
    });
    Ok(document?.to_vec())
}

/// What the server with this socket does.
///
/// # Errors
///
/// As [`document_at`].
pub(crate) fn status_of(socket: &Path) -> Result<Status, TerminalError> {
    parsed(&document_at(socket)?)
}

/// `top`.
///
/// # Errors
///
/// When the server cannot be asked, or there is no terminal.
pub fn top(arguments: &TopArguments) -> Result<(), TerminalError> {
    let client = Client::new(&arguments.server)?;
    wait(async {
        let first = ask(&client).await?;
        if arguments.once {
            let (columns, _) = Screen::size();
            let lines = frame(&first, columns, usize::MAX);
            return print(&(lines.join("\n") + "\n"));
        }
        follow(&client, first).await
    })
}

/// Shows frames until a key or a signal ends it. The terminal is restored in any case.
async fn follow(client: &Client, mut status: Status) -> Result<(), TerminalError> {
    let mut ends = [
        signal(SignalKind::terminate())?,
        signal(SignalKind::interrupt())?,
        signal(SignalKind::hangup())?,
    ];
    let [terminate, interrupt, hang_up] = &mut ends;
    let mut resized = signal(SignalKind::window_change())?;
    let screen = Screen::enter()?;
    let mut typed = keys()?;
    loop {
        let (columns, rows) = Screen::size();
        screen.show(&frame(&status, columns, rows))?;
        tokio::select! {
            _ = terminate.recv() => return Ok(()),
            _ = interrupt.recv() => return Ok(()),
            _ = hang_up.recv() => return Ok(()),
            _ = resized.recv() => {}
            key = typed.recv() => match key {
                Some(key) if !ENDS.contains(&key) => {}
                _ => return Ok(()),
            },
            () = tokio::time::sleep(INTERVAL) => status = ask(client).await?,
        }
    }
}

/// `kick`.
///
/// # Errors
///
/// When the server cannot be asked, or no session fits.
pub fn kick(arguments: &KickArguments) -> Result<(), TerminalError> {
    let client = Client::new(&arguments.server)?;
    wait(async {
        if let Some(transfer) = arguments.whom.transfer {
            act(&client, &format!("/api/transfers/{transfer}/end")).await?;
            return print(&format!("ended transfer {transfer}\n"));
        }
        let sessions = match arguments.whom.session {
            Some(session) => vec![session],
            None => {
                let status = ask(&client).await?;
                let sessions = status.sessions.iter();
                let meant = sessions.filter(|session| is_meant(&arguments.whom, session));
                meant.map(|session| session.id).collect()
            }
        };
        if sessions.is_empty() {
            return Err(TerminalError::NotFound);
        }
        for session in sessions {
            act(&client, &format!("/api/sessions/{session}/end")).await?;
            print(&format!("ended session {session}\n"))?;
        }
        Ok(())
    })
}

fn is_meant(whom: &Whom, session: &SessionStatus) -> bool {
    let address = session.peer.parse::<SocketAddr>().ok();
    let is_user = whom.user.as_ref().is_some_and(|user| *user == session.user);
    is_user || whom.peer.is_some() && whom.peer == address.map(|address| address.ip())
}

/// `drain`.
///
/// # Errors
///
/// When the server cannot be asked.
pub fn drain(arguments: &SocketArguments) -> Result<(), TerminalError> {
    let client = Client::new(arguments)?;
    let answer: Value = wait(client.post("/api/drain", "{}"))?;
    let report = serde_json::from_value(answer.clone());
    let DrainReport {
        draining_since: since,
        sessions,
        is_ending,
    } = report.map_err(|_| refused(&answer))?;
    let left = format!(
        "{sessions} {} left",
        if sessions == 1 {
            "session is"
        } else {
            "sessions are"
        }
    );
    if is_ending {
        print(&format!(
            "draining since {since}, {left}; the server ends now: transfers get the time of `grace` to finish\n"
        ))
    } else {
        print(&format!(
            "draining since {since}: the server accepts no more connections, {left}; drain again, or SIGTERM, ends it\n"
        ))
    }
}

/// `upgrade`.
///
/// # Errors
///
/// When the server cannot be asked, or the new version does not take over.
pub fn upgrade(arguments: &SocketArguments) -> Result<(), TerminalError> {
    let client = Client::new(arguments)?;
    let answer = client.post_within::<Answer>(UPGRADE_LIMIT, "/api/upgrade", "{}");
    let Answer { ok, error, process } = wait(answer)?;
    if !ok {
        let lines = error.lines().map(harmless);
        let lines: Vec<String> = lines.collect();
        return Err(TerminalError::Refused(lines.join("\n")));
    }
    let process = process.map_or_else(String::new, |process| format!(" in process {process}"));
    print(&format!(
        "the new version serves{process}; the one before finishes its sessions\n"
    ))
}

/// `reload`.
///
/// # Errors
///
/// When the server cannot be asked, or the configuration is wrong.
pub fn reload(arguments: &SocketArguments) -> Result<(), TerminalError> {
    let client = Client::new(arguments)?;
    let report: ReloadReport = wait(client.post("/api/reload", "{}"))?;
    let mut text = String::new();
    for key in &report.applied {
        text.push_str(&format!("applied: {key}\n"));
    }
    for key in &report.needs_restart {
        text.push_str(&format!("needs a restart: {key}\n"));
    }
    for error in &report.errors {
        for line in error.lines() {
            text.push_str(&format!("error: {}\n", harmless(line)));
        }
    }
    if text.is_empty() {
        text.push_str("no key has changed\n");
    }
    for file in &report.files {
        text.push_str(&format!("in force: {}\n", harmless(file)));
    }
    if report.sessions_ended > 0 {
        let sessions = report.sessions_ended;
        text.push_str(&format!(
            "sessions ended, of users who are refused now: {sessions}\n"
        ));
    }
    print(&text)?;
    if report.errors.is_empty() {
        Ok(())
    } else {
        Err(TerminalError::NotReloaded)
    }
}

pub(super) async fn ask(client: &Client) -> Result<Status, TerminalError> {
    parsed(&client.get("/status.json").await?)
}

fn parsed(document: &[u8]) -> Result<Status, TerminalError> {
    serde_json::from_slice(document).map_err(|error| TerminalError::Answer(error.to_string()))
}

/// The reason in an answer without a result.
fn refused(answer: &Value) -> TerminalError {
    let error = answer["error"].as_str().unwrap_or("without a reason");
    TerminalError::Refused(harmless(error))
}

async fn act(client: &Client, path: &str) -> Result<(), TerminalError> {
    let Answer { ok, error, .. } = client.post(path, "{}").await?;
    if ok {
        Ok(())
    } else {
        Err(TerminalError::Refused(harmless(&error)))
    }
}

pub(super) fn print(text: &str) -> Result<(), TerminalError> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    Ok(stdout.flush()?)
}

pub(super) fn wait<T>(
    work: impl Future<Output = Result<T, TerminalError>>,
) -> Result<T, TerminalError> {
    Builder::new_current_thread()
        .enable_all()
        .build()?
        .block_on(work)
}
