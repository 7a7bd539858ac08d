//! The clock of all channels.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// The time since a moment that is the same for all channels of the process.
pub(crate) fn now() -> Duration {
    epoch().elapsed()
}

/// The moment at which [`now`] is `time`.
pub(crate) fn instant(time: Duration) -> Instant {
    epoch() + time
}

fn epoch() -> Instant {
    static EPOCH: OnceLock<Instant> = OnceLock::new();
    *EPOCH.get_or_init(Instant::now)
}
