//! Tests whether packets of the full length reach the peer, before a channel is used.
//!
//! The two ports agree on an MTU, but a router or a tunnel between them may discard long packets without an answer, and a firewall
//! may discard all of them. The data connection is TCP and shows neither.

use std::io;
use std::time::{Duration, Instant};

use gridhaul_stack::{ChannelError, Operation};

use super::bindings::{STATUS_SUCCESS, WorkCompletion};
use super::mtu;
use super::queue_pair::{CompletionId, Subject};
use super::{VerbsEndpoint, registered};
use crate::provider::Work;

/// Completions that are read with one call.
const BATCH: usize = 16;

impl VerbsEndpoint {
    /// Posts the work to every queue pair, and waits until all of it is done or one fails.
    pub(super) fn packets_arrive(
        &mut self,
        work: Work,
        operation: &Operation<'_>,
    ) -> Result<bool, ChannelError> {
        self.post_tests(work)
            .map_err(|error| self.refused(&error))?;
        let ours = Instant::now() + self.patience();
        let until = Operation {
            deadline: Some(operation.deadline.map_or(ours, |theirs| theirs.min(ours))),
            cancel: operation.cancel,
        };
        let mut missing = self.slots.len();
        loop {
            match self.read_tests(&mut missing) {
                Some(passed) => return Ok(passed),
                None if !self.is_armed.requests => {
                    let armed = self.shared.requests.arm();
                    armed.map_err(|error| self.refused(&error))?;
                    self.is_armed.requests = true;
                }
                None => match until.wait_readable(self.shared.requests.descriptor()) {
                    Ok(()) => self.is_armed.requests = !self.shared.requests.take_event(),
                    Err(ChannelError::DeadlineExceeded) => {
                        operation.check()?;
                        return Ok(false);
                    }
                    Err(error) => return Err(error),
                },
            }
        }
    }

    /// How long the peer's device may take to acknowledge. The device of the kernel retransmits after it had no processor for
    /// long, and gives up by itself.
    fn patience(&self) -> Duration {
        // InfiniBand architecture, volume 1, 9.7.6.1.3: a device may wait four times as long as it was told. One packet may be
        // lost, and the one that repeats it as well.
        const TIMEOUTS: u32 = 2 * 4;
        let least = Duration::from_secs(if self.path.is_software { 30 } else { 1 });
        least.max(self.path.retransmits_after().saturating_mul(TIMEOUTS))
    }

    fn refused(&self, error: &io::Error) -> ChannelError {
        ChannelError::Protocol {
            driver: "rdma",
            reason: format!("{}: {error}", self.place.port.device),
        }
    }

    fn post_tests(&mut self, work: Work) -> io::Result<()> {
        for slot in &mut self.slots {
            let Some(queue_pair) = &mut slot.current else {
                continue;
            };
            match work {
                Work::Write {
                    region,
                    span,
                    to,
                    immediate,
                } => {
                    queue_pair.write(0, registered(&self.regions, region), span, to, immediate);
                }
                Work::Read { region, span, from } => {
                    queue_pair.read(0, registered(&self.regions, region), span, from);
                }
                Work::Send(_) | Work::Carry { .. } => {
                    return Err(io::ErrorKind::InvalidInput.into());
                }
            }
            queue_pair.ring_doorbell()?;
        }
        Ok(())
    }

    /// Reads completions; returns the outcome once it is known.
    fn read_tests(&mut self, missing: &mut usize) -> Option<bool> {
        let mut batch = [WorkCompletion::EMPTY; BATCH];
        loop {
            let Ok(count) = self.shared.requests.poll(&mut batch) else {
                return Some(false);
            };
            for completion in &batch[..count] {
                let name = CompletionId::decode(completion.id);
                let slot = self.slots.get_mut(usize::from(name.queue_pair));
                let queue_pair = slot.and_then(|slot| slot.of_generation(name.generation));
                let (Some(queue_pair), Subject::Request(request)) = (queue_pair, name.subject)
                else {
                    continue;
                };
                if completion.status != STATUS_SUCCESS {
                    return Some(false);
                }
                *missing = missing.saturating_sub(queue_pair.complete(request).count());
                // The attempts of `start_anew` are those in which no packet arrived.
                self.slots[usize::from(name.queue_pair)].reset_attempts();
            }
            if *missing == 0 {
                return Some(true);
            }
            if count < BATCH {
                return None;
            }
        }
    }

    /// Replaces all queue pairs by unconnected ones with the next smaller MTU; `false` if there is none.
    pub(super) fn shorten(&mut self) -> io::Result<bool> {
        let agreed = self.mtu();
        if agreed <= mtu::LEAST {
            return Ok(false);
        }
        self.path.port.mtu = agreed - 1;
        self.start_anew()?;
        Ok(true)
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
        Ok(())
    }
}
