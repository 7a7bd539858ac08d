//! Deviations of the real server that affect many cases.

/// Non-ASCII names.
pub(super) const DROPS: &str =
    "it drops every byte of a path that is not a printable ASCII character";

/// Listings that ordinary FTP clients cannot parse.
pub(super) const LINE_ENDS: &str = "in TYPE A it ends the lines of a listing with CR CR LF";
