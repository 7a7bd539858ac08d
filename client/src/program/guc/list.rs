//! `-list` of globus-url-copy.

use super::super::Ending;
use super::super::arguments::CopyArguments;
use super::super::files;
use super::super::output::{print, shown};
use crate::session::Kind;

/// Prints the URL, and the names beneath it, directories with a slash.
pub(super) async fn run(url: &str, arguments: &CopyArguments) -> Ending {
    match listed(url, arguments).await {
        Ok(()) => Ending::Complete,
        Err(error) => {
            eprintln!("error: {error}");
            Ending::Failed
        }
    }
}

async fn listed(text: &str, arguments: &CopyArguments) -> Result<(), String> {
    let (url, mut session) = files::open(text, &arguments.login).await?;
    let path = url.argument().map_err(|error| error.to_string())?;
    let listing = files::list(&mut session, &path, &arguments.data).await?;
    let unread = |error| format!("standard output: {error}");
    print(&url).map_err(unread)?;
    for entry in listing {
        let entry = entry.map_err(|error| error.to_string())?;
        // Its lines end like this.
        let end = match entry.facts.kind {
            Some(Kind::Directory) => "/",
            _ => " ",
        };
        print(format!("    {}{end}", shown(&entry.name))).map_err(unread)?;
    }
    session.close().await;
    Ok(())
}
