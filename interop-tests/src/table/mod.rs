//! The cases, by client program.

mod errors;
mod names;
mod options;
mod partial;
mod recursive;
mod transfers;

use crate::Case;

/// All cases, in the order in which the report prints them.
pub fn cases() -> Vec<Case> {
    [
        transfers::cases(),
        options::cases(),
        partial::cases(),
        names::cases(),
        recursive::cases(),
        errors::cases(),
    ]
    .into_iter()
    .flatten()
    .collect()
}
