//! Paces messages so that a policer on the path does not drop them.
//!
//! A policer drops what exceeds its rate once its burst is used up. A queue pair then retransmits
//! from the first missing packet on, at full speed, and is dropped again. So messages never exceed
//! the rate, and never more of them than the burst are sent together.
//!
//! A policer sees the path and not the channels on it, so all channels to a peer with the same
//! options share a token bucket: a [`Path`]. Where rate and burst are not configured, a [`search`]
//! finds the rate of the path and the longest message that it passes.

mod bucket;
mod chance;
mod estimator;
mod flight;
mod loss_budget;
mod pacer;
mod path;
mod rates;
mod search;
mod sizing;
mod trial;
mod turn_queue;
mod window;

use std::time::Duration;

#[cfg(any(test, feature = "sim"))]
pub(crate) use bucket::time_of;
pub(crate) use pacer::Pacer;
pub(crate) use path::{Path, Rate};

/// A channel that waits for bytes in flight polls again after this time.
const RETRY: Duration = Duration::from_millis(2);

/// The interval at which the device's counters are read, which costs its driver some file reads.
const LOOKS: Duration = Duration::from_millis(10);
