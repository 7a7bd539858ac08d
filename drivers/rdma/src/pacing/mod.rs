//! Pacing: sends messages no faster than the path allows.
//!
//! A reliable connection of RoCE or InfiniBand has no congestion control against a *policer*, which
//! drops packets that exceed its rate once its burst is used up. A queue pair retransmits from the
//! first missing packet on (go-back-N), at full speed, and most of that is dropped again. So messages
//! are spaced by a token bucket, and no more than the burst is sent at once.
//!
//! A policer limits the path and not a channel, so all channels to a peer with the same options share
//! one [`Path`]:
//!
//! ```text
//!   engine ── Pacer ──┐         ┌─ Slots          the rate, the burst, and whose turn it is
//!   engine ── Pacer ──┼─ Path ──┼─ TurnQueue      round-robin among channels on a short path
//!   engine ── Pacer ──┘         ├─ Flight         bytes in flight, with a configured rate
//!                               └─ Search         the rate itself, with `rate=auto`
//! ```
//!
//! A [`Pacer`] belongs to one sender. It asks the path for a time slot before each message, reports
//! completions and losses, and reads the device's counters of retransmissions. A channel over several adapters has a pacer and
//! a path for each of its rails ([`Pacers`]).
//!
//! # With a configured rate
//!
//! A token bucket ([`bucket`], [`slots`]) spaces the messages. A thread wakes up late; the burst has room for
//! what the rate allows in the meantime, unless a policer's burst is known ([`pace`]). Where a policer's
//! burst covers two round trips, the bytes in flight are limited to it as well ([`flight`], [`window`]): a
//! busy host may send several messages late and at once. A path may become longer ([`shortest`]). Neither is needed where adapters limit the rate of their queue pairs
//! themselves ([`limiter`], [`limits`]).
//!
//! # With `rate=auto`
//!
//! [`search`] probes the path like a congestion control, with losses as the signal:
//!
//! 1. *Sizing*: the longest message that passes a policer's burst ([`sizing`]).
//! 2. *Climbing*: the rate grows in small steps until a message is lost.
//! 3. *Narrowing*: a binary search between the highest rate that passed and the lowest that failed
//!    ([`rates`], [`trial`]).
//! 4. *Resting* at the lower end, and *probing* a slightly higher rate from time to time.
//!
//! [`estimator`] measures the round trip time and decides when a message is late or lost; it tolerates
//! a budget of random losses ([`loss_budget`]). On a short path the device repairs a loss in
//! milliseconds, and only its counters reveal it (`search::misses`). There [`chance`] distinguishes
//! random loss, which no lower rate reduces, from loss by the policer.
//!
//! All times are durations since one moment that is the same for all channels of the process.

mod bucket;
mod chance;
mod estimator;
mod flight;
mod limiter;
mod limits;
mod loss_budget;
mod pace;
mod pacer;
mod pacers;
mod path;
mod rates;
mod search;
mod shortest;
mod sizing;
mod slots;
mod trial;
mod turn_queue;
mod window;

use std::time::Duration;

#[cfg(any(test, feature = "sim"))]
pub(crate) use bucket::time_of;
pub(crate) use pace::{Burst, Rate};
#[cfg(any(test, fuzzing))]
pub(crate) use pacer::Pacer;
pub(crate) use pacers::Pacers;
pub(crate) use path::Path;

/// How late a thread may wake up without loss of rate. On idle machines it is 60 to 150 µs.
const WAKE_UP: Duration = Duration::from_micros(200);

/// The polling interval of a channel that waits for bytes in flight.
const RETRY_INTERVAL: Duration = Duration::from_millis(2);

/// The interval at which the device's counters are read, which costs its driver some file reads.
const LOOK_INTERVAL: Duration = Duration::from_millis(10);
