//! Deviations of the real server that many cases meet.

/// Where the real server cannot do with names that are not ASCII.
pub(super) const DROPS: &str =
    "it drops every byte of a path that is not a printable ASCII character";

/// Where ordinary FTP clients cannot use the real server's listings.
pub(super) const LINE_ENDS: &str = "in TYPE A it ends the lines of a listing with CR CR LF";
