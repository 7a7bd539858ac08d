//! The version of this program.

/// The version's number.
pub(crate) const VERSION_NUMBER: &str = env!("CARGO_PKG_VERSION");

/// The version that clients see.
pub(crate) const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (gridhaul)");
