//! Configuration files: defaults for the options of `gridhaul copy`, and for those that other commands share with it.
//!
//! ```text
//!   apply       the command line, with what the files add to it
//!   places      which files there are, and who may have written them
//!   file        a file, in TOML
//!   show        gridhaul config
//! ```

mod apply;
mod file;
mod places;
mod show;

use clap::CommandFactory as _;

use super::arguments::Arguments;
use super::place::PlaceError;
use super::profile::Profile;

pub(super) use apply::command;
pub(super) use show::run;

/// The options that files may set, beside [`FILES`]: those that hold for many copies.
const KEYS: [&str; 19] = [
    "block-size",
    "checksum",
    "concurrency",
    "create-dirs",
    "dcau",
    "ipv4",
    "ipv6",
    "mode",
    "parallel",
    "pipeline",
    "protect",
    "retry",
    "ssh",
    "stack",
    "stall-timeout",
    "subject",
    "times",
    "timeout",
    "user",
];

/// The options that name files.
const FILES: [&str; 4] = ["ca", "password-file", "proxy", "trust"];

/// Keys that only a `[[host]]` may have, and why.
const OF_HOSTS: [(&str, &str); 2] = [
    (
        "password-file",
        "a password is for one server: name its file",
    ),
    ("user", "a user is for one server: name it"),
];

/// All of them.
pub(super) fn keys() -> impl Iterator<Item = &'static str> {
    KEYS.into_iter().chain(FILES)
}

/// Why the configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum ConfigError {
    #[error(transparent)]
    Place(#[from] PlaceError),
    #[error("{file}:{line}: {reason}")]
    Content {
        file: String,
        line: usize,
        reason: String,
    },
}

/// Reads all files: that of the system, then that of the user, which wins.
fn read() -> Result<Profile, ConfigError> {
    let mut profile = Profile::default();
    for found in places::read()? {
        profile.sections.extend(file::parse(&found)?);
    }
    Ok(profile)
}

/// `gridhaul copy`, whose options the keys are.
fn copy() -> clap::Command {
    let mut all = Arguments::command();
    // Without this, options that are shared have no conflicts.
    all.build();
    let copy = all.find_subcommand("copy").cloned();
    copy.unwrap_or(all)
}
