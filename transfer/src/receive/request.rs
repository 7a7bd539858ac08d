//! What a transfer receives.

use std::path::Path;

use gridhaul_protocol::ranges::RangeSet;

use crate::node::Placement;

/// The file to receive, or the part of it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Target<'a> {
    pub(crate) path: &'a Path,
    pub(crate) placement: Placement,
    pub(crate) restart: &'a RangeSet,
    pub(crate) promised: Option<u64>,
}

impl Target<'_> {
    /// Whether nothing of an existing file is kept.
    pub(super) fn is_fresh(&self) -> bool {
        self.placement == Placement::Replace && self.restart.is_empty()
    }
}
