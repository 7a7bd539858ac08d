//! curl: an FTP client that changes into directories step by step.

mod client;
mod commands;
mod transfers;

use crate::cases::Case;

pub(super) fn cases() -> Vec<Case> {
    [transfers::cases(), commands::cases()].concat()
}
