//! `gridhaul ls`, `stat`, `mkdir`, `rm` and `mv`.

use std::io::{self, Write as _};

use gridhaul_protocol::path::PathArgument;
use gridhaul_protocol::stack::{DriverSpec, StackSpec};
use jiff::Timestamp;
use serde::Serialize;

use super::Ending;
use super::arguments::{
    DataArguments, ListArguments, LoginArguments, MoveArguments, PathArguments,
};
use super::servers::Servers;
use crate::listing::{Entry, Lister, Listing, ListingSettings};
use crate::local::{LocalConfig, LocalMachine};
use crate::location::{Location, Url};
use crate::session::{DataProtection, Facts, Kind, Session, TransferSettings};
use gridhaul_protocol::command::TransferMode;

/// Entries that are sorted; more are printed in the order of the server.
const SORTED: usize = 100_000;

/// Directories beneath each other that are removed.
const DEPTH: usize = 256;

/// Why a directory is not removed.
const LINKS: &str = "this server does not tell links from directories, and what a link leads to could be removed: remove the files one by one";

/// A file, as an object of JSON.
#[derive(Debug, Serialize)]
struct Line<'a> {
    /// As a URL has it: bytes that are no text are encoded.
    url: &'a str,
    #[serde(rename = "type")]
    kind: &'a str,
    size: Option<u64>,
    modified: Option<String>,
    mode: Option<String>,
}

pub(super) async fn ls(arguments: &ListArguments) -> Ending {
    let listed = async {
        for text in &arguments.urls {
            let (url, mut session) = open(text, &arguments.login).await?;
            let path = argument(&url)?;
            let facts = session.facts(&path).await.map_err(words)?;
            let facts = facts.ok_or_else(|| format!("{url}: no such file or directory"))?;
            if facts.kind == Some(Kind::Directory) {
                let listing = list(&mut session, &path, &arguments.data).await;
                let listing = listing.map_err(|error| format!("{url}: {error}"))?;
                print_all(&url, listing, arguments)?;
            } else {
                let name = url.path.rsplit(|byte| *byte == b'/').next();
                print(&url, name.unwrap_or_default(), &facts, arguments)?;
            }
            session.close().await;
        }
        Ok(())
    };
    ended(listed.await)
}

pub(super) async fn stat(arguments: &ListArguments) -> Ending {
    let found = async {
        for text in &arguments.urls {
            let (url, mut session) = open(text, &arguments.login).await?;
            let facts = session.facts(&argument(&url)?).await.map_err(words)?;
            let facts = facts.ok_or_else(|| format!("{url}: no such file or directory"))?;
            let long = ListArguments {
                long: true,
                ..arguments.clone()
            };
            print(&url, &url.path, &facts, &long)?;
            session.close().await;
        }
        Ok(())
    };
    ended(found.await)
}

pub(super) async fn mkdir(arguments: &PathArguments) -> Ending {
    let made = async {
        for text in &arguments.urls {
            let (url, mut session) = open(text, &arguments.login).await?;
            let path = argument(&url)?;
            match arguments.all {
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

pub(super) async fn rm(arguments: &PathArguments) -> Ending {
    let removed = async {
        for text in &arguments.urls {
            let (url, mut session) = open(text, &arguments.login).await?;
            if url.path.iter().all(|byte| *byte == b'/') {
                return Err(format!("{url}: the root of a server is not removed"));
            }
            let path = argument(&url)?;
            let facts = session.facts(&path).await.map_err(words)?;
            let is_directory = facts.is_some_and(|facts| facts.is_real_directory());
            match (is_directory, arguments.all) {
                (true, false) => {
                    return Err(format!("{url}: Is a directory: say --recursive"));
                }
                (true, true) if !session.tells_links() => {
                    return Err(format!("{url}: {LINKS}"));
                }
                (true, true) => {
                    remove_tree(&mut session, &url.path, 0).await?;
                }
                _ => session.remove(&path, false).await.map_err(words)?,
            }
            session.close().await;
        }
        Ok(())
    };
    ended(removed.await)
}

/// Removes a directory with all that it has. Links are removed, and not what they lead to.
async fn remove_tree(session: &mut Session, path: &[u8], depth: usize) -> Result<(), String> {
    if depth > DEPTH {
        return Err("the directories are too deep".to_owned());
    }
    let directory = PathArgument::new(path).ok_or("a path that FTP cannot send")?;
    let listing = list(session, &directory, &DataArguments::plain()).await?;
    for entry in listing {
        let Entry { name, facts } = entry.map_err(words)?;
        let within = [path, b"/", &name].concat();
        match facts.is_real_directory() {
            true => Box::pin(remove_tree(session, &within, depth + 1)).await?,
            false => {
                let file = PathArgument::new(within).ok_or("a path that FTP cannot send")?;
                session.remove(&file, false).await.map_err(words)?;
            }
        }
    }
    session.remove(&directory, true).await.map_err(words)
}

pub(super) async fn mv(arguments: &MoveArguments) -> Ending {
    let moved = async {
        let (from, mut session) = open(&arguments.from, &arguments.login).await?;
        let to = remote(&arguments.to)?;
        if from.server != to.server {
            return Err(format!(
                "{from} and {to}: not the same server: copy, and remove"
            ));
        }
        let renamed = session.rename(&argument(&from)?, &argument(&to)?).await;
        renamed.map_err(words)?;
        session.close().await;
        Ok(())
    };
    ended(moved.await)
}

fn ended(done: Result<(), String>) -> Ending {
    match done {
        Ok(()) => Ending::Complete,
        Err(error) => {
            let _ = writeln!(io::stderr().lock(), "gridhaul: {error}");
            Ending::Failed
        }
    }
}

fn words(error: impl std::fmt::Display) -> String {
    error.to_string()
}

fn remote(text: &str) -> Result<Url, String> {
    match Location::parse(text).map_err(words)? {
        Location::Remote(url) => Ok(url),
        Location::Local(_) => Err(format!("{text}: not the URL of a server")),
    }
}

fn argument(url: &Url) -> Result<PathArgument, String> {
    url.argument()
        .ok_or_else(|| format!("{url}: a path that FTP cannot send"))
}

async fn open(text: &str, login: &LoginArguments) -> Result<(Url, Session), String> {
    let url = remote(text)?;
    let session = Servers::new(login.clone()).open(&url.server).await;
    Ok((url, session.map_err(words)?))
}

/// The entries of a directory.
pub(super) async fn list(
    session: &mut Session,
    path: &PathArgument,
    data: &DataArguments,
) -> Result<Listing, String> {
    let machine = LocalMachine::new(LocalConfig::default());
    let lister = Lister::new(&machine).map_err(words)?;
    let how = ListingSettings {
        settings: TransferSettings {
            mode: TransferMode::Stream,
            parallelism: 1,
            protection: data.protection(DataProtection::default_of(&[session])),
            stack: None,
        },
        stack: StackSpec {
            drivers: vec![DriverSpec {
                name: "auto".to_owned(),
                options: Vec::new(),
            }],
        },
        stall: data.stall_timeout,
    };
    lister.list(session, path, &how).await.map_err(words)
}

/// Prints the entries by their names, if they are not too many.
fn print_all(url: &Url, listing: Listing, arguments: &ListArguments) -> Result<(), String> {
    let mut sorted = Some(Vec::new());
    for entry in listing {
        let entry = entry.map_err(words)?;
        match &mut sorted {
            Some(entries) => {
                entries.push(entry);
                if entries.len() > SORTED {
                    for entry in sorted.take().into_iter().flatten() {
                        print(
                            &beneath(url, &entry.name),
                            &entry.name,
                            &entry.facts,
                            arguments,
                        )?;
                    }
                }
            }
            None => print(
                &beneath(url, &entry.name),
                &entry.name,
                &entry.facts,
                arguments,
            )?,
        }
    }
    let mut entries = sorted.unwrap_or_default();
    entries.sort_by(|one, other| one.name.cmp(&other.name));
    for entry in entries {
        print(
            &beneath(url, &entry.name),
            &entry.name,
            &entry.facts,
            arguments,
        )?;
    }
    Ok(())
}

fn beneath(url: &Url, name: &[u8]) -> Url {
    let mut path = url.path.clone();
    if !path.ends_with(b"/") {
        path.push(b'/');
    }
    path.extend_from_slice(name);
    Url {
        server: url.server.clone(),
        path,
    }
}

fn print(url: &Url, name: &[u8], facts: &Facts, arguments: &ListArguments) -> Result<(), String> {
    let kind = match facts.kind {
        Some(Kind::Directory) => "directory",
        Some(Kind::Link) => "link",
        Some(Kind::Other) => "other",
        Some(Kind::File) | None => "file",
    };
    let modified = facts
        .modified
        .and_then(|time| Timestamp::try_from(time).ok());
    let modified = modified.map(|time| time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string());
    let mode = facts.mode.map(|mode| format!("{mode:04o}"));
    let slash = match facts.kind {
        Some(Kind::Directory) => "/",
        _ => "",
    };
    let line = match (arguments.json, arguments.long) {
        (true, _) => serde_json::to_string(&Line {
            url: &url.to_string(),
            kind,
            size: facts.size,
            modified,
            mode,
        })
        .map_err(words)?,
        (false, true) => format!(
            "{:<9} {:>4} {:>15} {:<20} {}{slash}",
            kind,
            mode.unwrap_or_else(|| "-".to_owned()),
            facts
                .size
                .map_or_else(|| "-".to_owned(), |size| size.to_string()),
            modified.unwrap_or_else(|| "-".to_owned()),
            shown(name)
        ),
        (false, false) => format!("{}{slash}", shown(name)),
    };
    writeln!(io::stdout().lock(), "{line}").map_err(|error| format!("standard output: {error}"))
}

/// A name without characters that would control a terminal.
pub(super) fn shown(name: &[u8]) -> String {
    let text = String::from_utf8_lossy(name);
    let escaped = text
        .chars()
        .map(|one| match one.is_control() && one != '\t' {
            true => one.escape_default().to_string(),
            false => one.to_string(),
        });
    escaped.collect()
}
