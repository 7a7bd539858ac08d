//! The driver `fault`: a transform that makes channels fail, for tests.
//!
//! Faults depend on counted bytes and calls and on a seed, never on the clock, so that a failure can be reproduced.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::options::{self, Audience, OptionDoc, OptionKind};
use crate::{
    Body, Built, Channel, ChannelError, ChannelInfo, Driver, FileRange, Operation, Received, Side,
    StackError, Transform, Watch,
};

/// The driver `fault`: a transform that delays and breaks the channel below. It acts only on its own end; the other end needs no
/// `fault`.
///
/// | option | meaning |
/// | --- | --- |
/// | `short=1` | the most bytes that each receive yields |
/// | `seed=7` | with `short`: the limit of each receive is a random number between 1 and `short` from this seed |
/// | `fail-send-after=1000` | sending fails after this number of bytes sent |
/// | `fail-receive-after=1000` | receiving fails after this number of bytes received |
/// | `abort-after=1000` | the channel is aborted after this number of bytes in both directions |
/// | `delay=20ms` | the delay before each send and each receive |
#[derive(Debug, Clone, Copy, Default)]
pub struct Fault;

const NAME: &str = "fault";

/// The audience of all options.
const FOR_TESTS: Audience = Audience::Administrator("it makes the server's channels fail");

impl Driver for Fault {
    fn name(&self) -> &'static str {
        NAME
    }

    fn options(&self) -> &'static [OptionDoc] {
        const {
            &[
                OptionDoc::new(
                    "short",
                    OptionKind::Number,
                    FOR_TESTS,
                    "Each receive yields at most so many bytes.",
                    "1",
                ),
                OptionDoc::new(
                    "seed",
                    OptionKind::Number,
                    FOR_TESTS,
                    "With short: each receive's limit is drawn between 1 and short from this seed.",
                    "7",
                ),
                OptionDoc::new(
                    "fail-send-after",
                    OptionKind::Number,
                    FOR_TESTS,
                    "After so many bytes sent, sending fails.",
                    "1000",
                ),
                OptionDoc::new(
                    "fail-receive-after",
                    OptionKind::Number,
                    FOR_TESTS,
                    "After so many bytes received, receiving fails.",
                    "1000",
                ),
                OptionDoc::new(
                    "abort-after",
                    OptionKind::Number,
                    FOR_TESTS,
                    "After so many bytes in both directions together, the channel is aborted.",
                    "1000",
                ),
                OptionDoc::new(
                    "delay",
                    OptionKind::Time,
                    FOR_TESTS,
                    "So long a wait before each send and each receive.",
                    "20ms",
                ),
            ]
        }
    }

    fn build(&self, options: &[(String, String)]) -> Result<Built, StackError> {
        let options = self.read_options(options)?;
        let faults = Faults {
            short: options.value("short", options::positive)?,
            seed: options.value("seed", options::number)?,
            fail_send_after: options.value("fail-send-after", options::bytes)?,
            fail_receive_after: options.value("fail-receive-after", options::bytes)?,
            abort_after: options.value("abort-after", options::bytes)?,
            delay: options.value("delay", options::duration)?,
        };
        Ok(Built::Transform(Arc::new(faults)))
    }
}

#[derive(Debug, Clone, Copy)]
struct Faults {
    short: Option<u64>,
    seed: Option<u64>,
    fail_send_after: Option<u64>,
    fail_receive_after: Option<u64>,
    abort_after: Option<u64>,
    delay: Option<Duration>,
}

impl Transform for Faults {
    fn wrap(
        &self,
        channel: Box<dyn Channel>,
        _side: Side,
        _operation: &Operation<'_>,
    ) -> Result<Box<dyn Channel>, ChannelError> {
        Ok(Box::new(FaultyChannel {
            inner: channel,
            faults: *self,
            random: self.seed,
            sent: 0,
            received: 0,
        }))
    }
}

#[derive(Debug)]
struct FaultyChannel {
    inner: Box<dyn Channel>,
    faults: Faults,
    /// The state of the random number generator, if `seed` is set.
    random: Option<u64>,
    /// Bytes so far.
    sent: u64,
    received: u64,
}

impl FaultyChannel {
    fn pause(&self, operation: &Operation<'_>) -> Result<(), ChannelError> {
        match self.faults.delay {
            Some(delay) => operation.sleep(delay),
            None => Ok(()),
        }
    }

    /// The bytes that may still be moved in a direction with this limit and count.
    fn allowance(&self, limit: Option<u64>, done: u64) -> u64 {
        let left =
            |limit: Option<u64>, done| limit.map_or(u64::MAX, |limit| limit.saturating_sub(done));
        left(limit, done).min(left(self.faults.abort_after, self.sent + self.received))
    }

    /// The failure after the allowance is exhausted.
    fn fail(&mut self, direction: &str, done: u64) -> ChannelError {
        let is_abort = self
            .faults
            .abort_after
            .is_some_and(|limit| self.sent + self.received >= limit);
        if is_abort {
            self.inner.abort();
            return ChannelError::Aborted;
        }
        ChannelError::Network(std::io::Error::other(format!(
            "{direction} fails after {done} bytes, as the driver {NAME} was told"
        )))
    }

    /// The most that the next receive may yield, in bytes.
    fn next_short(&mut self) -> u64 {
        let Some(short) = self.faults.short else {
            return u64::MAX;
        };
        match &mut self.random {
            Some(state) => 1 + next_random(state) % short,
            None => short,
        }
    }
}

impl Channel for FaultyChannel {
    fn send(
        &mut self,
        head: &[u8],
        body: Body<'_>,
        operation: &Operation<'_>,
    ) -> Result<(), ChannelError> {
        self.pause(operation)?;
        let total = head.len() as u64 + body_length(&body);
        let allowance = self.allowance(self.faults.fail_send_after, self.sent);
        if total <= allowance {
            self.inner.send(head, body, operation)?;
            self.sent += total;
            return Ok(());
        }
        let head = &head[..at_most(head.len(), allowance)];
        let body = cut(body, allowance - head.len() as u64);
        self.inner.send(head, body, operation)?;
        self.sent += allowance;
        Err(self.fail("sending", self.sent))
    }

    fn receive(
        &mut self,
        buffer: &mut [u8],
        operation: &Operation<'_>,
    ) -> Result<Received, ChannelError> {
        self.pause(operation)?;
        let allowance = self.allowance(self.faults.fail_receive_after, self.received);
        if allowance == 0 {
            return Err(self.fail("receiving", self.received));
        }
        let limit = at_most(buffer.len(), allowance.min(self.next_short()));
        let outcome = self.inner.receive(&mut buffer[..limit], operation)?;
        if let Received::Bytes(count) = outcome {
            self.received += count.get() as u64;
        }
        Ok(outcome)
    }

    fn finish(&mut self, operation: &Operation<'_>) -> Result<(), ChannelError> {
        self.inner.finish(operation)
    }

    fn abort(&mut self) {
        self.inner.abort();
    }

    fn is_delivered(&self) -> bool {
        self.inner.is_delivered()
    }

    fn peer(&self) -> SocketAddr {
        self.inner.peer()
    }

    fn info(&self) -> ChannelInfo {
        self.inner.info()
    }

    fn watch(&self) -> Option<Arc<dyn Watch>> {
        self.inner.watch()
    }
}

fn body_length(body: &Body<'_>) -> u64 {
    match body {
        Body::Memory(bytes) => bytes.len() as u64,
        Body::File(range) => range.length,
    }
}

/// The first `length` bytes of a body.
fn cut(body: Body<'_>, length: u64) -> Body<'_> {
    match body {
        Body::Memory(bytes) => Body::Memory(&bytes[..at_most(bytes.len(), length)]),
        Body::File(range) => Body::File(FileRange {
            length: range.length.min(length),
            ..range
        }),
    }
}

fn at_most(length: usize, limit: u64) -> usize {
    usize::try_from(limit).map_or(length, |limit| length.min(limit))
}

/// The generator `splitmix64`.
fn next_random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut bits = *state;
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

#[cfg(test)]
mod tests;
