//! `gridhaul ls`, `stat`, `mkdir`, `rm` and `mv`.

use gridhaul_protocol::path::PathArgument;
use jiff::Timestamp;
use serde::Serialize;

use super::Ending;
use super::arguments::{
    ChannelArguments, ListArguments, LoginArguments, MakeArguments, MoveArguments, RemoveArguments,
    StatArguments,
};
use super::output::{print, shown, shown_json, warn};
use super::servers::Servers;
use crate::listing::{Lister, Listing, remove_tree};
use crate::local::{LocalConfig, LocalMachine};
use crate::location::Url;
use crate::session::{Facts, Kind, Session};

/// Entries that are sorted; more are printed in the order of the server.
const SORTED: usize = 100_000;

/// A file, as an object of JSON.
#[derive(Debug, Serialize)]
pub(super) struct Line {
    /// As a URL has it: bytes that are no text are encoded.
    url: String,
    #[serde(rename = "type")]
    kind: &'static str,
    size: Option<u64>,
    modified: Option<String>,
    mode: Option<String>,
}

impl Line {
    pub(super) fn of(url: &Url, facts: &Facts) -> Self {
        let modified = facts.modified;
        let modified = modified.and_then(|time| Timestamp::try_from(time).ok());
        Self {
            url: url.to_string(),
            kind: match facts.kind {
                Some(Kind::Directory) => "directory",
                Some(Kind::Link) => "link",
                Some(Kind::Other) => "other",
                Some(Kind::File) | None => "file",
            },
            size: facts.size,
            modified: modified.map(|time| time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()),
            mode: facts.mode.map(|mode| format!("{mode:04o}")),
        }
    }
}

/// How a file is printed.
#[derive(Debug, Clone, Copy)]
enum Form {
    Names,
    Long,
    Json,
}

impl Form {
    fn of(is_json: bool, is_long: bool) -> Self {
        match (is_json, is_long) {
            (true, _) => Self::Json,
            (false, true) => Self::Long,
            (false, false) => Self::Names,
        }
    }
}

pub(super) async fn ls(arguments: &ListArguments) -> Ending {
    let form = Form::of(arguments.json, arguments.long);
    let listed = async {
        for text in &arguments.urls {
            let (url, mut session) = open(text, &arguments.login).await?;
            let path = url.argument().map_err(words)?;
            let facts = session.facts(&path).await.map_err(words)?;
            let facts = facts.ok_or_else(|| format!("{url}: no such file or directory"))?;
            if facts.kind == Some(Kind::Directory) {
                let listing = list(&mut session, &path, &arguments.channels).await;
                let listing = listing.map_err(|error| format!("{url}: {error}"))?;
                print_all(&url, listing, form)?;
            } else {
                let name = url.path.rsplit(|byte| *byte == b'/').next();
                print_one(&url, name.unwrap_or_default(), &facts, form)?;
            }
            session.close().await;
        }
        Ok(())
    };
    ended(listed.await)
}

pub(super) async fn stat(arguments: &StatArguments) -> Ending {
    let found = async {
        for text in &arguments.urls {
            let (url, mut session) = open(text, &arguments.login).await?;
            let facts = session
                .facts(&url.argument().map_err(words)?)
                .await
                .map_err(words)?;
            let facts = facts.ok_or_else(|| format!("{url}: no such file or directory"))?;
            print_one(&url, &url.path, &facts, Form::of(arguments.json, true))?;
            session.close().await;
        }
        Ok(())
    };
    ended(found.await)
}

pub(super) async fn mkdir(arguments: &MakeArguments) -> Ending {
    let made = async {
        for text in &arguments.urls {
            let (url, mut session) = open(text, &arguments.login).await?;
            let path = url.argument().map_err(words)?;
            match arguments.parents {
                true => make_all(&mut session, &url.path).await?,
                false => session.make_new_directory(&path).await.map_err(words)?,
            }
            session.close().await;
        }
        Ok(())
    };
    ended(made.await)
}

/// Makes a directory, and those above it that do not exist.
async fn make_all(session: &mut Session, path: &[u8]) -> Result<(), String> {
    let mut slashes: Vec<usize> = (1..path.len()).filter(|&at| path[at] == b'/').collect();
    slashes.push(path.len());
    let mut last = Ok(());
    for end in slashes {
        let above = PathArgument::new(&path[..end]).ok_or("a path that FTP cannot send")?;
        // Those above may be closed to this user; only the last one counts.
        last = session.make_directory(&above).await;
        if !session.is_usable() {
            break;
        }
    }
    last.map_err(words)
}

pub(super) async fn rm(arguments: &RemoveArguments) -> Ending {
    let removed = async {
        for text in &arguments.urls {
            let (url, mut session) = open(text, &arguments.login).await?;
            if url.path.iter().all(|byte| *byte == b'/') {
                return Err(format!("{url}: the root of a server is not removed"));
            }
            let path = url.argument().map_err(words)?;
            let facts = session.facts(&path).await.map_err(words)?;
            let is_directory = facts.is_some_and(|facts| facts.is_real_directory());
            match (is_directory, arguments.recursive) {
                (true, false) => {
                    return Err(format!("{url}: Is a directory: say --recursive"));
                }
                (true, true) => {
                    let machine = LocalMachine::new(LocalConfig::default());
                    let lister = Lister::new(&machine).map_err(words)?;
                    let how = arguments.channels.listings(&session);
                    let removed = remove_tree(&mut session, &lister, &url, &how).await;
                    removed.map_err(|error| format!("{url}: {error}"))?;
                }
                _ => session.remove(&path, false).await.map_err(words)?,
            }
            session.close().await;
        }
        Ok(())
    };
    ended(removed.await)
}

pub(super) async fn mv(arguments: &MoveArguments) -> Ending {
    let moved = async {
        let (from, mut session) = open(&arguments.from, &arguments.login).await?;
        let to = Url::parse(&arguments.to).map_err(words)?;
        if from.server != to.server {
            return Err(format!(
                "{from} and {to}: not the same server: copy, and remove"
            ));
        }
        let renamed = session
            .rename(
                &from.argument().map_err(words)?,
                &to.argument().map_err(words)?,
            )
            .await;
        renamed.map_err(words)?;
        session.close().await;
        Ok(())
    };
    ended(moved.await)
}

/// The ending of a command that prints its own output.
pub(super) fn ended(done: Result<(), String>) -> Ending {
    match done {
        Ok(()) => Ending::Complete,
        Err(error) => {
            warn(error);
            Ending::Failed
        }
    }
}

fn words(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// A session with the server of a URL.
pub(super) async fn open(text: &str, login: &LoginArguments) -> Result<(Url, Session), String> {
    let url = Url::parse(text).map_err(words)?;
    let session = Servers::new(login.clone()).open(&url.server).await;
    Ok((url, session.map_err(words)?))
}

/// The entries of a directory.
pub(super) async fn list(
    session: &mut Session,
    path: &PathArgument,
    channels: &ChannelArguments,
) -> Result<Listing, String> {
    let machine = LocalMachine::new(LocalConfig::default());
    let lister = Lister::new(&machine).map_err(words)?;
    let how = channels.listings(session);
    lister.list(session, path, &how).await.map_err(words)
}

/// Prints the entries by their names, if they are not too many.
fn print_all(url: &Url, listing: Listing, form: Form) -> Result<(), String> {
    let mut sorted = Some(Vec::new());
    for entry in listing {
        let entry = entry.map_err(words)?;
        match &mut sorted {
            Some(entries) => {
                entries.push(entry);
                if entries.len() > SORTED {
                    for entry in sorted.take().into_iter().flatten() {
                        print_one(&url.join(&entry.name), &entry.name, &entry.facts, form)?;
                    }
                }
            }
            None => print_one(&url.join(&entry.name), &entry.name, &entry.facts, form)?,
        }
    }
    let mut entries = sorted.unwrap_or_default();
    entries.sort_by(|one, other| one.name.cmp(&other.name));
    for entry in entries {
        print_one(&url.join(&entry.name), &entry.name, &entry.facts, form)?;
    }
    Ok(())
}

fn print_one(url: &Url, name: &[u8], facts: &Facts, form: Form) -> Result<(), String> {
    let slash = match facts.kind {
        Some(Kind::Directory) => "/",
        _ => "",
    };
    let line = Line::of(url, facts);
    let line = match form {
        Form::Json => shown_json(&serde_json::to_string(&line).map_err(words)?),
        Form::Long => format!(
            "{:<9} {:>4} {:>15} {:<20} {}{slash}",
            line.kind,
            line.mode.unwrap_or_else(|| "-".to_owned()),
            facts
                .size
                .map_or_else(|| "-".to_owned(), |size| size.to_string()),
            line.modified.unwrap_or_else(|| "-".to_owned()),
            shown(name)
        ),
        Form::Names => format!("{}{slash}", shown(name)),
    };
    print(line).map_err(|error| format!("standard output: {error}"))
}
