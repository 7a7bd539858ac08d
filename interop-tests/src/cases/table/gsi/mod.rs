//! Users with certificates: logins, accounts, and the protection of data channels.

mod accounts;
mod again;
mod credentials;
mod jglobus;
mod refused;
mod stacks;
mod third_party;
mod variants;

use crate::cases::Case;

pub(super) use jglobus::{copy as jglobus_copy, get as jglobus_get, put as jglobus_put};
pub(super) use variants::CRASHING_ATTEMPTS;

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
