//! The output that both servers must cause alike.

use crate::cases::{Context, Observation};

/// The output of the program without the parts that may differ: the URL, and the order of a listing.
pub(super) fn observed(context: &Context<'_>, output: &str) -> Observation {
    Observation::unordered(&output.replace(&context.from(""), "URL/"))
}
