//! Users with certificates: who gets in, as whom, and how data channels are protected.

mod accounts;
mod again;
mod credentials;
mod jglobus;
mod refused;
mod stacks;
mod third_party;

use crate::{Case, UserKind};

pub(super) fn cases() -> Vec<Case> {
    [
        credentials::cases(),
        third_party::cases(),
        stacks::cases(),
        accounts::cases(),
        refused::cases(),
        again::cases(),
        jglobus::cases(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Whose credentials.
const USERS: [UserKind; 6] = [
    UserKind::Plain,
    UserKind::Spaces,
    UserKind::Utf8,
    UserKind::Voms,
    UserKind::Limited,
    UserKind::ProxyOfProxy,
];

/// How data channels are protected; nothing said is authenticated, and clear.
const PROTECTIONS: [&str; 4] = ["-nodcau", "", "-dcsafe", "-dcpriv"];

/// Some blocks for each of eight channels, and not a multiple of anything.
const SIZE: u64 = 3_000_001;

/// With certificates gfal2 2.21 itself crashes when it ends, once in fifty times, with any server.
const CRASHING_ATTEMPTS: usize = 5;

/// The options that are not empty.
fn options(words: &[&'static str]) -> Vec<&'static str> {
    words
        .iter()
        .copied()
        .filter(|word| !word.is_empty())
        .collect()
}
