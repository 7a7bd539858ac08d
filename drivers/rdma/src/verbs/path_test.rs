//! Tests whether packets of the full length reach the peer, before a channel is used.
//!
//! The two ports agree on an MTU, but a router or a tunnel between them may discard long packets without an answer, and a firewall
//! may discard all of them. The data connection is TCP and shows neither.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use gridhaul_stack::{ChannelError, Operation};
use rustix::event::epoll;

use super::adapter::Rail;
use super::bindings::{STATUS_SUCCESS, WorkCompletion};
use super::mtu;
use super::ports::Protocol;
use super::queue_pair::{CompletionId, Subject};
use super::{VerbsEndpoint, rail_of};
use crate::provider::Work;

/// Completions that are read with one call.
const BATCH: usize = 16;

/// How often the kernel is asked about the path while a test runs.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// What is known of the tests of each rail.
#[derive(Debug)]
struct Tests {
    /// Requests that have not completed.
    missing: Vec<usize>,
    /// The bytes of the longest request.
    longest: Vec<usize>,
    has_failed: Vec<bool>,
}

impl Tests {
    fn new(rails: usize) -> Self {
        Self {
            missing: vec![0; rails],
            longest: vec![0; rails],
            has_failed: vec![false; rails],
        }
    }

    /// Whether the outcome of each rail is known.
    fn are_over(&self) -> bool {
        let mut rails = self.missing.iter().zip(&self.has_failed);
        rails.all(|(&missing, &has_failed)| missing == 0 || has_failed)
    }

    /// Whether everything was acknowledged on each rail.
    fn passed(&self) -> Vec<bool> {
        let rails = self.missing.iter().zip(&self.has_failed);
        rails
            .map(|(&missing, &has_failed)| missing == 0 && !has_failed)
            .collect()
    }
}

impl VerbsEndpoint {
    /// Posts the work to every queue pair, and waits until all of it is done or has failed. Returns for each rail whether it is
    /// done.
    pub(super) fn packets_arrive(
        &mut self,
        work: &dyn Fn(usize) -> Option<Work>,
        operation: &Operation<'_>,
    ) -> Result<Vec<bool>, ChannelError> {
        let mut tests = Tests::new(self.rails.len());
        self.post_tests(work, &mut tests)?;
        let requests = self.watch_requests();
        let requests = requests.map_err(|error| self.refused(0, &error))?;
        let left = operation
            .deadline
            .map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let ours = Instant::now() + self.patience(left);
        loop {
            self.read_tests(&mut tests);
            if tests.are_over() {
                return Ok(tests.passed());
            }
            if self.arm_requests()? {
                continue;
            }
            let until = ours.min(Instant::now() + LOOK_INTERVAL);
            let until = Operation {
                deadline: Some(operation.deadline.map_or(until, |theirs| theirs.min(until))),
                cancel: operation.cancel,
            };
            match until.wait_readable(requests.as_fd()) {
                Ok(()) => {
                    for adapter in &mut self.adapters {
                        adapter.take_events();
                    }
                }
                Err(ChannelError::DeadlineExceeded) => {
                    operation.check()?;
                    if Instant::now() >= ours {
                        return Ok(tests.passed());
                    }
                    self.fail_too_long(&mut tests);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Ends tests with packets that are longer than what the kernel has been told of the path since the data connection was made.
    /// Its device in software repeats such a packet for ever: it takes the error for a full queue (rxe_send of Linux 6.1).
    fn fail_too_long(&self, tests: &mut Tests) {
        for (number, rail) in self.rails.iter().enumerate() {
            tests.has_failed[number] |=
                tests.missing[number] > 0 && is_too_long(rail, tests.longest[number]);
        }
    }

    /// Readable when the completion queue of any adapter has an event.
    fn watch_requests(&self) -> io::Result<OwnedFd> {
        let watch = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        for adapter in &self.adapters {
            let queue = adapter.shared.requests.descriptor();
            epoll::add(
                &watch,
                queue,
                epoll::EventData::new_u64(0),
                epoll::EventFlags::IN,
            )?;
        }
        Ok(watch)
    }

    /// Arms events for completed requests; returns whether one was not armed before.
    fn arm_requests(&mut self) -> Result<bool, ChannelError> {
        let mut arms = false;
        for number in 0..self.adapters.len() {
            let armed = self.adapters[number].arm(true);
            arms |= armed.map_err(|error| self.refused(number, &error))?;
        }
        Ok(arms)
    }

    /// How long the peer's device may take to acknowledge. The device of the kernel retransmits after it had no processor for
    /// long, and gives up by itself. `left` is what is left of the time for the handshake.
    fn patience(&self, left: Option<Duration>) -> Duration {
        let of_rail = |rail: &Rail| match rail.path.is_software {
            true => Duration::from_secs(30),
            false => patience(rail.path.retransmits_after(), rail.path.round_trip, left),
        };
        self.rails.iter().map(of_rail).max().unwrap_or_default()
    }

    fn refused(&self, adapter: usize, error: &io::Error) -> ChannelError {
        ChannelError::Protocol {
            driver: "rdma",
            reason: format!("{}: {error}", self.adapters[adapter].place.device()),
        }
    }

    /// One of several rails whose device refuses the work has failed.
    fn post_tests(
        &mut self,
        work: &dyn Fn(usize) -> Option<Work>,
        tests: &mut Tests,
    ) -> Result<(), ChannelError> {
        let rails = self.rails.len();
        for number in 0..self.slots.len() {
            let rail = rail_of(number, rails);
            let Some(work) = work(number) else {
                continue;
            };
            if self.unreachable[rail].is_some() {
                tests.has_failed[rail] = true;
                continue;
            }
            let bytes = match &work {
                Work::Write { span, .. } | Work::Read { span, .. } => span.length,
                Work::Send(_) | Work::Carry { .. } => 0,
            };
            tests.longest[rail] = tests.longest[rail].max(bytes);
            match self.post_test(number, work) {
                Ok(count) => tests.missing[rail] += count,
                Err(_) if rails > 1 => tests.has_failed[rail] = true,
                Err(error) => return Err(self.refused(self.rails[rail].adapter, &error)),
            }
        }
        Ok(())
    }

    /// Returns the count of posted requests.
    fn post_test(&mut self, number: usize, work: Work) -> io::Result<usize> {
        let adapter = &self.adapters[self.rails[rail_of(number, self.rails.len())].adapter];
        let Some(queue_pair) = &mut self.slots[number].current else {
            return Ok(0);
        };
        match work {
            Work::Write {
                region,
                span,
                to,
                immediate,
            } => queue_pair.write(0, adapter.region(region), span, to, immediate),
            Work::Read { region, span, from } => {
                queue_pair.read(0, adapter.region(region), span, from);
            }
            Work::Send(_) | Work::Carry { .. } => {
                return Err(io::ErrorKind::InvalidInput.into());
            }
        }
        queue_pair.ring_doorbell()?;
        Ok(1)
    }

    /// Reads completions.
    fn read_tests(&mut self, tests: &mut Tests) {
        let mut batch = [WorkCompletion::EMPTY; BATCH];
        for adapter in 0..self.adapters.len() {
            loop {
                let Ok(count) = self.adapters[adapter].shared.requests.poll(&mut batch) else {
                    for (rail, has_failed) in self.rails.iter().zip(&mut tests.has_failed) {
                        *has_failed |= rail.adapter == adapter;
                    }
                    break;
                };
                for completion in &batch[..count] {
                    self.read_test(completion, tests);
                }
                if count < BATCH {
                    break;
                }
            }
        }
    }

    fn read_test(&mut self, completion: &WorkCompletion, tests: &mut Tests) {
        let name = CompletionId::decode(completion.id);
        let number = usize::from(name.queue_pair);
        let rail = rail_of(number, self.rails.len());
        let Some(slot) = self.slots.get_mut(number) else {
            return;
        };
        let queue_pair = slot.of_generation(name.generation);
        let (Some(queue_pair), Subject::Request(request)) = (queue_pair, name.subject) else {
            return;
        };
        if completion.status != STATUS_SUCCESS {
            tests.has_failed[rail] = true;
            return;
        }
        let done = queue_pair.complete(request).count();
        tests.missing[rail] = tests.missing[rail].saturating_sub(done);
        // The attempts of `start_anew` are those in which no packet arrived.
        slot.reset_attempts();
    }

    /// Packets of a rail have the next smaller MTU from the next connection on; `false` if there is none.
    pub(super) fn shorten(&mut self, rail: usize) -> bool {
        let agreed = self.rails[rail].mtu();
        if agreed <= mtu::LEAST {
            return false;
        }
        self.rails[rail].path.port.mtu = agreed - 1;
        true
    }

    /// Replaces all queue pairs by unconnected ones.
    pub(super) fn start_anew(&mut self) -> io::Result<()> {
        for number in 0..self.slots.len() {
            self.slots[number].clear();
            // Completions of the earlier one may still arrive.
            let generation = self.slots[number].next_generation();
            let generation = generation.ok_or(io::ErrorKind::Other)?;
            self.slots[number].connecting = Some(self.queue_pair(number, generation)?);
        }
        self.discard_completions();
        Ok(())
    }

    /// Empties the completion queues while no queue pair is connected. Each failed test flushes all receives of its queue pairs,
    /// and the queues have no room for those of every test.
    fn discard_completions(&self) {
        let mut batch = [WorkCompletion::EMPTY; BATCH];
        for adapter in &self.adapters {
            for queue in [&adapter.shared.requests, &adapter.shared.messages] {
                // The next test finds a queue that reports an error.
                while queue.poll(&mut batch).is_ok_and(|count| count > 0) {}
            }
        }
    }
}

/// Whether the kernel sends no packets of this rail with so many bytes, or the longest packets.
fn is_too_long(rail: &Rail, bytes: usize) -> bool {
    let of_kernel = rail.path.is_software && rail.path.protocol == Protocol::Roce;
    let Some(peer) = rail.peer_port.filter(|_| of_kernel) else {
        return false;
    };
    let [own, theirs] =
        [rail.path.port.gid, peer.gid].map(|gid| IpAddr::V6(gid.into()).to_canonical());
    let needed = mtu::ip_bytes(rail.mtu()).min(bytes as u64 + mtu::HEADERS);
    mtu::of_route(own, theirs).is_ok_and(|most| u64::from(most) < needed)
}

/// How long an adapter may take that sends again after this time.
fn patience(retransmits_after: Duration, round_trip: Duration, left: Option<Duration>) -> Duration {
    // InfiniBand architecture, volume 1, 9.7.6.1.3: a device may wait four times as long as it was told. One packet may be
    // lost, and the one that repeats it as well.
    const TIMEOUTS: u32 = 2 * 4;
    // Three tests in which nothing arrives, and what follows them.
    const PARTS: u32 = 6;
    const ROUND_TRIPS: u32 = 4;
    let usual = Duration::from_secs(1).max(retransmits_after.saturating_mul(TIMEOUTS));
    let least = round_trip.saturating_mul(ROUND_TRIPS);
    let fits = left.map_or(usual, |left| usual.min(left / PARTS));
    fits.max(least)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_failed_tests_fit_into_the_handshake() {
        let handshake = Duration::from_secs(20);
        for milliseconds in [0, 1, 50, 140, 200, 300, 500] {
            let round_trip = Duration::from_millis(milliseconds);
            // Local ACK Timeout has powers of two of 4.096 us.
            for code in 14..20 {
                let retransmits_after = Duration::from_nanos(4096 << code);
                let mut left = handshake;
                for _ in 0..3 {
                    let patience = patience(retransmits_after, round_trip, Some(left));
                    assert!(patience >= round_trip * 4, "{round_trip:?}");
                    left -= patience + round_trip * 3;
                }
                assert!(left > round_trip * 6, "{round_trip:?}: {left:?} is left");
            }
        }
        let long = patience(Duration::from_secs(1), Duration::ZERO, None);
        assert_eq!(long, Duration::from_secs(8));
    }
}
