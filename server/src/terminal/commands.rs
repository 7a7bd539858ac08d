//! What each command does.

use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::time::Duration;

use serde::Deserialize;
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};

use super::client::{Client, TerminalError, UPGRADE_LIMIT};
use super::screen::{Screen, keys};
use super::tables::{frame, summary};
use super::words::harmless;
use crate::admin::ReloadReport;
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
    let client = Client::new(&arguments.server)?;
    let document = wait(client.get("/status.json"))?;
    if arguments.json {
        return print(&format!("{}\n", String::from_utf8_lossy(&document)));
    }
    print(&summary(&parsed(&document)?))
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
    wait(act(&client, "/api/drain"))?;
    print("draining: the server accepts no more connections; drain again, or SIGTERM, ends it\n")
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
    print(&text)?;
    if report.errors.is_empty() {
        Ok(())
    } else {
        Err(TerminalError::NotReloaded)
    }
}

async fn ask(client: &Client) -> Result<Status, TerminalError> {
    parsed(&client.get("/status.json").await?)
}

fn parsed(document: &[u8]) -> Result<Status, TerminalError> {
    serde_json::from_slice(document).map_err(|error| TerminalError::Answer(error.to_string()))
}

async fn act(client: &Client, path: &str) -> Result<(), TerminalError> {
    let Answer { ok, error, .. } = client.post(path, "{}").await?;
    if ok {
        Ok(())
    } else {
        Err(TerminalError::Refused(harmless(&error)))
    }
}

fn print(text: &str) -> Result<(), TerminalError> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    Ok(stdout.flush()?)
}

fn wait<T>(work: impl Future<Output = Result<T, TerminalError>>) -> Result<T, TerminalError> {
    Builder::new_current_thread()
        .enable_all()
        .build()?
        .block_on(work)
}
