//! The version of this program.

/// The version number.
pub(crate) const VERSION_NUMBER: &str = env!("CARGO_PKG_VERSION");

/// The version in replies.
pub(crate) const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (gridhaul)");
