//! `-list` of globus-url-copy.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use globset::{Glob, GlobMatcher};

use super::super::Ending;
use super::super::arguments::CopyArguments;
use super::super::files;
use super::super::output::{print, shown, shown_lines};
use crate::location::Url;
use crate::session::Kind;

/// Prints the URL, and the names beneath it, directories with a slash.
pub(super) async fn run(url: &str, arguments: &CopyArguments) -> Ending {
    match listed(url, arguments).await {
        Ok(()) => Ending::Complete,
        Err(error) => {
            eprintln!("error: {}", shown_lines(&error));
            Ending::Failed
        }
    }
}

/// The pattern in the last component of a path, which is cut off.
fn pattern(url: &mut Url) -> Result<Option<GlobMatcher>, String> {
    let slash = url.path.iter().rposition(|byte| *byte == b'/');
    let name = slash.map_or(0, |slash| slash + 1);
    let is_pattern = |byte: &u8| matches!(byte, b'*' | b'?' | b'[');
    if !url.path[name..].iter().any(is_pattern) {
        return Ok(None);
    }
    let wrong = format!("{url}: this is no pattern");
    let text = std::str::from_utf8(&url.path[name..]).map_err(|_| wrong.clone())?;
    let glob = Glob::new(text).map_err(|_| wrong)?;
    url.path.truncate(name);
    Ok(Some(glob.compile_matcher()))
}

async fn listed(text: &str, arguments: &CopyArguments) -> Result<(), String> {
    let (mut url, mut session) = files::open(text, &arguments.login).await?;
    let pattern = pattern(&mut url)?;
    let path = url.argument().map_err(|error| error.to_string())?;
    let listing = files::list(&mut session, &path, &arguments.data.channels).await?;
    let unwritten = |error| format!("standard output: {error}");
    print(shown(text.as_bytes())).map_err(unwritten)?;
    for entry in listing {
        let entry = entry.map_err(|error| error.to_string())?;
        let name = Path::new(OsStr::from_bytes(&entry.name));
        if pattern.as_ref().is_some_and(|names| !names.is_match(name)) {
            continue;
        }
        // Its lines end like this.
        let end = match entry.facts.kind {
            Some(Kind::Directory) => "/",
            _ => " ",
        };
        print(format!("    {}{end}", shown(&entry.name))).map_err(unwritten)?;
    }
    session.close().await;
    Ok(())
}
