//! Moves bytes from memory to memory over a channel for some time.

use std::time::{Duration, Instant};

use gridhaul_stack::{Body, Channel, ChannelError, Operation, Received};

use super::messages::Measured;
use crate::machine::usage;

/// Sent and received at once. It stays in the cache of a processor.
const PIECE: usize = 1 << 20;

/// Sends for this long.
///
/// # Errors
///
/// When the channel fails, or the operation ends before.
pub(super) fn send(
    channel: &mut dyn Channel,
    time: Duration,
    operation: &Operation<'_>,
) -> Result<Measured, ChannelError> {
    let piece = vec![0x5a; PIECE];
    let clock = Clock::start();
    let mut bytes = 0;
    while clock.elapsed() < time {
        channel.send(b"", Body::Memory(&piece), operation)?;
        bytes += PIECE as u64;
    }
    channel.finish(operation)?;
    let rate = bytes as f64 / clock.elapsed().as_secs_f64().max(1e-6);
    Ok(clock.measured(bytes, rate, channel))
}

/// Receives until the end. The rate is that after the first quarter of the time, in which connections and rates grow.
///
/// # Errors
///
/// When the channel fails, or the operation ends before.
pub(super) fn receive(
    channel: &mut dyn Channel,
    time: Duration,
    operation: &Operation<'_>,
) -> Result<Measured, ChannelError> {
    let mut piece = vec![0; PIECE];
    let clock = Clock::start();
    let mut bytes = 0_u64;
    // When the first byte arrived, when and after how many bytes the start was over, and when the last byte arrived.
    let mut first = None;
    let mut started = None;
    let mut last = Duration::ZERO;
    while let Received::Bytes(count) = channel.receive(&mut piece, operation)? {
        last = clock.elapsed();
        bytes += count.get() as u64;
        let first = *first.get_or_insert(last);
        if started.is_none() && last.saturating_sub(first) >= time / 4 {
            started = Some((last, bytes));
        }
    }
    // A path that stalled until the end has no rate after the start.
    let after = started.filter(|(_, before)| *before < bytes);
    let (from, before) = after.unwrap_or_else(|| (first.unwrap_or_default(), 0));
    let seconds = last.saturating_sub(from).as_secs_f64();
    let rate = (bytes - before) as f64 / seconds.max(1e-6);
    Ok(clock.measured(bytes, rate, channel))
}

/// The time of this end: on the wall, and of processors.
struct Clock {
    begun: Instant,
    processor: Duration,
}

impl Clock {
    fn start() -> Self {
        Self {
            begun: Instant::now(),
            processor: processor_time(),
        }
    }

    fn elapsed(&self) -> Duration {
        self.begun.elapsed()
    }

    fn measured(&self, bytes: u64, rate: f64, channel: &dyn Channel) -> Measured {
        let took = self.elapsed();
        let used = processor_time().saturating_sub(self.processor);
        let mut measured = Measured {
            bytes,
            took,
            rate,
            busy: used.as_secs_f64() / took.as_secs_f64().max(1e-6),
            ..Measured::default()
        };
        measured.describe(channel);
        measured
    }
}

/// Of this process with all threads.
fn processor_time() -> Duration {
    usage(std::process::id()).processor_time
}
