//! Paces messages, below what a policer on the path lets through.
//!
//! A policer drops what comes faster than its rate once its burst is used up, and drops it message by
//! message: a queue pair then repeats from the first packet that is missing, at full speed, and loses it
//! again. So messages never leave faster than the rate, and never more of them together than the burst.

mod bucket;

pub(crate) use bucket::Pacer;
#[cfg(any(test, feature = "sim"))]
pub(crate) use bucket::time_of;
