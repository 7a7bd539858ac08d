//! Users, protections and sizes that the cases combine.

use crate::support::UserKind;

/// Whose credentials.
pub(super) const USERS: [UserKind; 6] = [
    UserKind::Plain,
    UserKind::Spaces,
    UserKind::Utf8,
    UserKind::Voms,
    UserKind::Limited,
    UserKind::ProxyOfProxy,
];

/// How data channels are protected; nothing said is authenticated, and clear.
pub(super) const PROTECTIONS: [&str; 4] = ["-nodcau", "", "-dcsafe", "-dcpriv"];

/// Some blocks for each of eight channels, and not a multiple of anything.
pub(super) const SIZE: u64 = 3_000_001;

/// With certificates gfal2 2.21 itself crashes when it ends, once in fifty times, with any server.
pub(super) const CRASHING_ATTEMPTS: usize = 5;

/// The options that are not empty.
pub(super) fn options(words: &[&'static str]) -> Vec<&'static str> {
    words
        .iter()
        .copied()
        .filter(|word| !word.is_empty())
        .collect()
}
