//! The cases, by client program.

mod arc;
mod curl;
mod curl_commands;
mod errors;
mod gfal_copy;
mod gfal_names;
mod gsi;
mod lftp;
mod names;
mod options;
mod partial;
mod python;
mod rclone;
mod recursive;
mod restart;
mod sync;
mod tls;
mod transfers;

use std::time::{Duration, SystemTime};

use crate::Case;

/// All cases, in the order in which the report prints them.
pub fn cases() -> Vec<Case> {
    [
        transfers::cases(),
        options::cases(),
        partial::cases(),
        names::cases(),
        recursive::cases(),
        sync::cases(),
        restart::cases(),
        errors::cases(),
        gfal_copy::cases(),
        gfal_names::cases(),
        python::cases(),
        curl::cases(),
        lftp::cases(),
        rclone::cases(),
        tls::cases(),
        gsi::cases(),
        arc::cases(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Where the real server cannot do with names that are not ASCII.
const DROPS: &str = "it drops every byte of a path that is not a printable ASCII character";

/// Where ordinary FTP clients cannot use the real server's listings.
const LINE_ENDS: &str = "in TYPE A it ends the lines of a listing with CR CR LF";

/// A modification time that every listing shows alike: 2001-09-09 01:46:40 UTC.
fn long_ago() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000)
}
