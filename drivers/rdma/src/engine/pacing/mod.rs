//! Paces messages, below what a policer on the path lets through.
//!
//! A policer drops what comes faster than its rate once its burst is used up, and drops it message by
//! message: a queue pair then repeats from the first packet that is missing, at full speed, and loses it
//! again. So messages never leave faster than the rate, and never more of them together than the burst.
//!
//! A policer sees the path and not the channels on it, so they share one bucket: a [`Path`], by peer and options. What
//! nobody knows, a [`search`] finds: how fast that path is, and how long its messages may be.

mod bucket;
mod chance;
mod excuses;
mod flight;
mod line;
mod pacer;
mod path;
mod patience;
mod rates;
mod search;
mod sizing;
mod trial;
mod window;

use std::time::Duration;

#[cfg(any(test, feature = "sim"))]
pub(crate) use bucket::time_of;
pub(crate) use pacer::Pacer;
pub(crate) use path::{Path, Rate};

/// Who may not send because of what is under way looks again after so long, if nothing happens before.
const RETRY: Duration = Duration::from_millis(2);

/// How often a device is asked what it has counted, which costs its driver some reads of files.
const LOOKS: Duration = Duration::from_millis(10);
