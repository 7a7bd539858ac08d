//! Where configuration files are.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use gridhaul_security::files::open_file;

use crate::program::place::PlaceError;

const OF_SYSTEM: &str = "/etc/gridhaul/client.toml";

/// The permission bits with which group and others may write.
const WRITABLE: u32 = 0o022;

/// A longer file is another one by mistake.
const LONGEST: u64 = 1 << 20;

/// A file that was found.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) path: PathBuf,
    pub(super) text: String,
    /// For paths that begin with `~/`.
    pub(super) home: Option<PathBuf>,
}

/// The file of the system and that of the user, if they are there. That of `$GRIDHAUL_CONFIG` must be.
pub(super) fn read() -> Result<Vec<Found>, PlaceError> {
    let home = variable("HOME").map(PathBuf::from);
    let named = variable("GRIDHAUL_CONFIG").map(PathBuf::from);
    let directory = variable("XDG_CONFIG_HOME").map(PathBuf::from);
    // XDG Base Directory Specification: a relative path counts as not set.
    let directory = directory.filter(|path| path.is_absolute());
    let directory = directory.or_else(|| Some(home.as_ref()?.join(".config")));
    let usual = directory.map(|directory| directory.join("gridhaul/config.toml"));
    let is_named = named.is_some();
    let mut found = Vec::new();
    let places = [
        (Some(PathBuf::from(OF_SYSTEM)), false),
        (named.or(usual), is_named),
    ];
    for (path, must_exist) in places {
        let Some(path) = path else { continue };
        let file = match open_file(&path) {
            Ok(file) => file,
            Err(error) if !must_exist && is_missing(&error) => continue,
            Err(error) => return Err(PlaceError::Io { path, error }),
        };
        let text = text_of(&path, file)?;
        let home = home.clone();
        found.push(Found { path, text, home });
    }
    Ok(found)
}

fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

fn is_missing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    )
}

fn text_of(path: &Path, file: File) -> Result<String, PlaceError> {
    let failed = |error| PlaceError::Io {
        path: path.to_owned(),
        error,
    };
    let about = file.metadata().map_err(failed)?;
    let own = rustix::process::geteuid().as_raw();
    // It chooses the program for sshftp, the authorities, and the protection of data.
    let reason = if !about.is_file() {
        Some("it is no regular file")
    } else if about.uid() != own && about.uid() != 0 {
        Some("it belongs to another user, who could choose your options: make it your own")
    } else if about.mode() & WRITABLE != 0 {
        Some("other users can write to it: chmod go-w it")
    } else if about.len() > LONGEST {
        Some("it is too long for a configuration file")
    } else {
        None
    };
    if let Some(reason) = reason {
        let path = path.to_owned();
        return Err(PlaceError::Refused { path, reason });
    }
    let mut text = String::new();
    file.take(LONGEST)
        .read_to_string(&mut text)
        .map_err(failed)?;
    Ok(text)
}
