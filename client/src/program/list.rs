//! Prints directories of servers.

use std::io::{self, Write as _};

use super::Ending;
use super::arguments::CopyArguments;
use super::servers::Servers;
use crate::listing::{Lister, ListingSettings};
use crate::local::{LocalConfig, LocalMachine};
use crate::location::{Location, Url};
use crate::session::{DataProtection, Kind, TransferSettings};
use gridhaul_protocol::command::TransferMode;
use gridhaul_protocol::path::PathArgument;
use gridhaul_protocol::stack::{DriverSpec, StackSpec};

/// As `globus-url-copy -list`: the URL, and the names beneath it, directories with a slash.
pub(super) async fn like_globus(url: &str, arguments: &CopyArguments) -> Ending {
    match listed(url, arguments).await {
        Ok(()) => Ending::Complete,
        Err(error) => {
            eprintln!("error: {error}");
            Ending::Failed
        }
    }
}

async fn listed(text: &str, arguments: &CopyArguments) -> Result<(), String> {
    let words = |error: &dyn std::fmt::Display| error.to_string();
    let url = match Location::parse(text).map_err(|error| words(&error))? {
        Location::Remote(url) => url,
        Location::Local(_) => return Err(format!("{text}: not the URL of a server")),
    };
    let path = argument(&url)?;
    let servers = Servers::new(arguments.login.clone());
    let mut session = servers
        .open(&url.server)
        .await
        .map_err(|error| words(&error))?;
    let machine = LocalMachine::new(LocalConfig::default());
    let lister = Lister::new(&machine).map_err(|error| words(&error))?;
    let how = ListingSettings {
        settings: TransferSettings {
            mode: TransferMode::Stream,
            parallelism: 1,
            protection: arguments
                .data
                .protection(DataProtection::default_of(&[&session])),
            stack: None,
        },
        stack: StackSpec {
            drivers: vec![DriverSpec {
                name: "auto".to_owned(),
                options: Vec::new(),
            }],
        },
        stall: arguments.data.stall_timeout,
    };
    let listing = lister.list(&mut session, &path, &how).await;
    let mut out = io::stdout().lock();
    // A reader that has gone ends the listing quietly.
    let mut is_read = writeln!(out, "{url}").is_ok();
    for entry in listing.map_err(|error| words(&error))? {
        let entry = entry.map_err(|error| words(&error))?;
        // Its lines end like this.
        let end = match entry.facts.kind {
            Some(Kind::Directory) => "/",
            _ => " ",
        };
        let name = shown(&entry.name);
        is_read = is_read && writeln!(out, "    {name}{end}").is_ok();
        if !is_read {
            break;
        }
    }
    drop(out);
    session.close().await;
    Ok(())
}

/// A name without characters that would control a terminal.
fn shown(name: &[u8]) -> String {
    let text = String::from_utf8_lossy(name);
    let escaped = text
        .chars()
        .map(|one| match one.is_control() && one != '\t' {
            true => one.escape_default().to_string(),
            false => one.to_string(),
        });
    escaped.collect()
}

fn argument(url: &Url) -> Result<PathArgument, String> {
    url.argument()
        .ok_or_else(|| format!("{url}: a path that FTP cannot send"))
}
