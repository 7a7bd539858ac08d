//! `gridhaul chmod`, `du` and `tree`.

use gridhaul_protocol::command::FileMode;
use serde::Serialize;

use super::Ending;
use super::arguments::{
    ChannelArguments, ChmodArguments, LoginArguments, TreeArguments, UsageArguments,
};
use super::files::{self, Line};
use super::output::{print, shown, shown_json, warn};
use super::report::amount;
use crate::listing::{Lister, TreeWalk};
use crate::local::{LocalConfig, LocalMachine};
use crate::location::Url;
use crate::session::{Facts, Session};

/// Entries of the open directories that `tree` sorts; further ones come in the order of the server.
const SORTED: usize = 100_000;

/// A file or directory that a command names.
struct Named {
    url: Url,
    session: Session,
    facts: Facts,
}

/// What a tree has in all.
#[derive(Debug, Default, Serialize)]
struct Totals {
    url: String,
    bytes: u64,
    files: u64,
    directories: u64,
}

impl Totals {
    fn add(&mut self, facts: &Facts) {
        match facts.is_real_directory() {
            true => self.directories += 1,
            false => {
                self.files += 1;
                // What a link leads to is counted where it is.
                let bytes = facts.size.filter(|_| !facts.is_link).unwrap_or(0);
                self.bytes = self.bytes.saturating_add(bytes);
            }
        }
    }
}

impl Named {
    async fn open(text: &str, login: &LoginArguments) -> Result<Self, String> {
        let (url, mut session) = files::open(text, login).await?;
        let path = url.argument().map_err(|error| error.to_string())?;
        let facts = session.facts(&path).await;
        let facts = facts.map_err(|error| format!("{url}: {error}"))?;
        let facts = facts.ok_or_else(|| format!("{url}: no such file or directory"))?;
        Ok(Self {
            url,
            session,
            facts,
        })
    }

    /// Calls `see` with each entry beneath a directory. Prints which directories cannot be listed; returns whether all were listed.
    async fn walk(
        &mut self,
        channels: &ChannelArguments,
        sorted: usize,
        see: &mut impl FnMut(&crate::listing::Step) -> Result<(), String>,
    ) -> Result<bool, String> {
        let machine = LocalMachine::new(LocalConfig::default());
        let lister = Lister::new(&machine).map_err(|error| error.to_string())?;
        let how = channels.listings(&self.session);
        let mut walk = TreeWalk::new(&mut self.session, &lister, how, (&self.url, sorted));
        let mut is_complete = true;
        while let Some(step) = walk.next().await {
            match step {
                Ok(step) => see(&step)?,
                Err(error) => {
                    warn(error);
                    is_complete = false;
                }
            }
        }
        Ok(is_complete)
    }
}

pub(super) async fn chmod(arguments: &ChmodArguments) -> Ending {
    each(&arguments.urls, async |text| change(text, arguments).await).await
}

/// Changes one argument; whether all of it was changed.
async fn change(text: &str, arguments: &ChmodArguments) -> Result<bool, String> {
    if !arguments.recursive {
        let (url, mut session) = files::open(text, &arguments.login).await?;
        set(&mut session, &url, arguments.permissions).await?;
        session.close().await;
        return Ok(true);
    }
    let mut named = Named::open(text, &arguments.login).await?;
    if !named.session.tells_links() {
        return Err(format!(
            "{}: this server does not tell links from directories, and what a link leads to could be changed: change the files one by one",
            named.url
        ));
    }
    let is_directory = named.facts.is_real_directory();
    set(&mut named.session, &named.url, arguments.permissions).await?;
    let mut is_complete = true;
    if is_directory {
        let machine = LocalMachine::new(LocalConfig::default());
        let lister = Lister::new(&machine).map_err(|error| error.to_string())?;
        let how = arguments.channels.listings(&named.session);
        let mut walk = TreeWalk::new(&mut named.session, &lister, how, (&named.url, 0));
        while let Some(step) = walk.next().await {
            let changed = match step {
                Ok(step) if step.entry.facts.is_link => Ok(()),
                Ok(step) => set(walk.session(), &step.url, arguments.permissions).await,
                Err(error) => Err(error.to_string()),
            };
            if let Err(error) = changed {
                warn(error);
                is_complete = false;
                if !walk.session().is_usable() {
                    break;
                }
            }
        }
    }
    named.session.close().await;
    Ok(is_complete)
}

async fn set(session: &mut Session, url: &Url, mode: FileMode) -> Result<(), String> {
    let path = url.argument().map_err(|error| error.to_string())?;
    let changed = session.set_mode(&path, mode).await;
    changed.map_err(|error| format!("{url}: {error}"))
}

pub(super) async fn du(arguments: &UsageArguments) -> Ending {
    each(&arguments.urls, async |text| sum(text, arguments).await).await
}

/// Prints the sum of one argument; whether it has all of it.
async fn sum(text: &str, arguments: &UsageArguments) -> Result<bool, String> {
    let mut named = Named::open(text, &arguments.login).await?;
    let mut totals = Totals {
        url: named.url.to_string(),
        ..Totals::default()
    };
    let mut is_complete = true;
    if named.facts.kind == Some(crate::session::Kind::Directory) {
        let mut see = |step: &crate::listing::Step| {
            totals.add(&step.entry.facts);
            Ok(())
        };
        is_complete = named.walk(&arguments.channels, 0, &mut see).await?;
    } else {
        totals.add(&named.facts);
    }
    named.session.close().await;
    let size = match arguments.human {
        true => amount(totals.bytes),
        false => totals.bytes.to_string(),
    };
    let printed = match arguments.json {
        true => print(shown_json(&serde_json::json!(totals).to_string())),
        false => print(format!("{size}\t{}", totals.url)),
    };
    printed.map_err(|error| format!("standard output: {error}"))?;
    Ok(is_complete)
}

pub(super) async fn tree(arguments: &TreeArguments) -> Ending {
    match draw(arguments).await {
        Ok(is_complete) => ending(is_complete),
        Err(error) => files::ended(Err(error)),
    }
}

async fn draw(arguments: &TreeArguments) -> Result<bool, String> {
    let mut named = Named::open(&arguments.url, &arguments.login).await?;
    let unwritten = |error| format!("standard output: {error}");
    if !arguments.json {
        print(&named.url).map_err(unwritten)?;
    }
    let mut totals = Totals::default();
    // Whether the directories above an entry are the last ones of theirs.
    let mut above: Vec<bool> = Vec::new();
    let mut see = |step: &crate::listing::Step| {
        totals.add(&step.entry.facts);
        if arguments.json {
            let line = Line::of(&step.url, &step.entry.facts);
            let line = Deep {
                line,
                depth: step.depth,
            };
            return print(shown_json(&serde_json::json!(line).to_string())).map_err(unwritten);
        }
        above.truncate(step.depth - 1);
        let bars = above.iter().map(|is_last| match is_last {
            true => "    ",
            false => "\u{2502}   ",
        });
        let bars: String = bars.collect();
        let branch = match step.is_last {
            true => "\u{2514}\u{2500}\u{2500} ",
            false => "\u{251c}\u{2500}\u{2500} ",
        };
        let slash = match step.entry.facts.is_real_directory() {
            true => "/",
            false => "",
        };
        above.push(step.is_last);
        let name = shown(&step.entry.name);
        print(format!("{bars}{branch}{name}{slash}")).map_err(unwritten)
    };
    let is_complete = named.walk(&arguments.channels, SORTED, &mut see).await?;
    named.session.close().await;
    if !arguments.json {
        let (directories, files) = (totals.directories, totals.files);
        let line = format!("\n{directories} directories, {files} files");
        print(line).map_err(unwritten)?;
    }
    Ok(is_complete)
}

/// An entry of a tree, as an object of JSON.
#[derive(Debug, Serialize)]
struct Deep {
    #[serde(flatten)]
    line: Line,
    depth: usize,
}

/// Does what a command does with one argument for all of them, and prints the errors. It says whether an argument is complete.
async fn each(urls: &[String], mut one: impl AsyncFnMut(&str) -> Result<bool, String>) -> Ending {
    let mut is_complete = true;
    for text in urls {
        is_complete &= one(text).await.unwrap_or_else(|error| {
            warn(error);
            false
        });
    }
    ending(is_complete)
}

fn ending(is_complete: bool) -> Ending {
    match is_complete {
        true => Ending::Complete,
        false => Ending::Failed,
    }
}
