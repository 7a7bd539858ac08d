//! gfal2 on the command line.

mod client;
mod copies;
mod listings;
mod names;
mod output;

use crate::cases::Case;

pub(super) use copies::{Direction, copy};

pub(super) fn cases() -> Vec<Case> {
    [copies::cases(), listings::cases(), names::cases()].concat()
}
