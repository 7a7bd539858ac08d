//! `-list` of globus-url-copy.

use std::io::{self, Write as _};

use super::Ending;
use super::arguments::CopyArguments;
use super::files;
use super::servers::Servers;
use crate::location::Location;
use crate::session::Kind;

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
    let path = url.argument();
    let path = path.ok_or_else(|| format!("{url}: a path that FTP cannot send"))?;
    let servers = Servers::new(arguments.login.clone());
    let opened = servers.open(&url.server).await;
    let mut session = opened.map_err(|error| words(&error))?;
    let listing = files::list(&mut session, &path, &arguments.data).await?;
    let mut out = io::stdout().lock();
    // A reader that has gone ends the listing quietly.
    let mut is_read = writeln!(out, "{url}").is_ok();
    for entry in listing {
        let entry = entry.map_err(|error| words(&error))?;
        // Its lines end like this.
        let end = match entry.facts.kind {
            Some(Kind::Directory) => "/",
            _ => " ",
        };
        let name = files::shown(&entry.name);
        is_read = is_read && writeln!(out, "    {name}{end}").is_ok();
        if !is_read {
            break;
        }
    }
    drop(out);
    session.close().await;
    Ok(())
}
