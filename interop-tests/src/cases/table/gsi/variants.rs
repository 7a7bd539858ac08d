//! Users, protections and sizes that the cases combine.

use crate::support::UserKind;

/// The users of the cases.
pub(super) const USERS: [UserKind; 6] = [
    UserKind::Plain,
    UserKind::Spaces,
    UserKind::Utf8,
    UserKind::Voms,
    UserKind::Limited,
    UserKind::ProxyOfProxy,
];

/// Options for the protection of data channels. The default is authenticated and clear.
pub(super) const PROTECTIONS: [&str; 4] = ["-nodcau", "", "-dcsafe", "-dcpriv"];

/// Several blocks for each of eight channels, and not a multiple of any block size.
pub(super) const SIZE: u64 = 3_000_001;

/// The number of attempts: with certificates gfal2 2.21 crashes at exit in about 2 % of the runs, with any server.
pub(in crate::cases::table) const CRASHING_ATTEMPTS: usize = 5;

/// The options that are not empty.
pub(super) fn options(words: &[&'static str]) -> Vec<&'static str> {
    words
        .iter()
        .copied()
        .filter(|word| !word.is_empty())
        .collect()
}
