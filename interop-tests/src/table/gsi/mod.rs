//! Users with certificates: who gets in, as whom, and how data channels are protected.

mod credentials;

use crate::Case;

pub(super) fn cases() -> Vec<Case> {
    [credentials::cases()].into_iter().flatten().collect()
}
