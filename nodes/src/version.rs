//! The version of the protocol between control servers and nodes.

/// Ends with different major versions refuse each other.
pub(crate) const MAJOR: u32 = 1;

/// Grows with each addition.
pub(crate) const MINOR: u32 = 1;
