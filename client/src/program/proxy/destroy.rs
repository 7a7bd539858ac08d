//! `gridhaul proxy destroy`.

use std::path::Path;

use super::place::{PlaceError, destroy};
use crate::login::Environment;

pub(super) fn run(file: Option<&Path>) -> Result<(), PlaceError> {
    match file {
        Some(file) => destroy(file),
        None => destroy(&Environment::of_process().proxy()),
    }
}
