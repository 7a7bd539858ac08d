//! The cases, by client program.

mod errors;
mod gfal_copy;
mod gfal_names;
mod names;
mod options;
mod partial;
mod python;
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
        gfal_copy::cases(),
        gfal_names::cases(),
        python::cases(),
    ]
    .into_iter()
    .flatten()
    .collect()
}
