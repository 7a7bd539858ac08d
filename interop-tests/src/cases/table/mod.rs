//! The cases, by client program.

mod arc;
mod curl;
mod deviations;
mod errors;
mod gfal;
mod gsi;
mod lftp;
mod names;
mod nodes;
mod options;
mod partial;
mod python;
mod rclone;
mod recursive;
mod restart;
mod sync;
mod tls;
mod transfers;

use crate::cases::Case;

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
        gfal::cases(),
        python::cases(),
        curl::cases(),
        lftp::cases(),
        rclone::cases(),
        tls::cases(),
        gsi::cases(),
        arc::cases(),
        nodes::cases(),
    ]
    .into_iter()
    .flatten()
    .collect()
}
