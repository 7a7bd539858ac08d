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
