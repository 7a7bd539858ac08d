//! The processor time that the engine takes for a message, without a device: requests complete as soon as they are posted.

use std::io;
use std::num::NonZeroU64;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, eventfd};

use super::experiment::ExperimentError;
use super::run::RunSettings;
use crate::engine::{Exchange, Receiver, Ring, Sender};
use crate::handshake::Mode;
use crate::memory::Memory;
use crate::pacing::{Pacers, Path, Rate};
use crate::provider::{
    Access, Completion, Endpoint, Limits, PostError, Region, RemoteRing, Request, Work,
};

/// The ring of each end.
const RING_BYTES: NonZeroU64 = NonZeroU64::new(16 << 20).expect("a constant that is not zero");

/// The processor time for one message.
#[derive(Debug, Clone, Copy)]
pub struct MessageCost {
    /// At the sending end: to post the message and to take its completion and the credit.
    pub sender: Duration,
    /// At the receiving end: to take the announcement and to return the credit.
    pub receiver: Duration,
}

/// Measures a channel that moves so many messages of this length, in bytes, over so many queue pairs, without pacing. The memory
/// has no content: what reading, writing and copying data costs is not included, nor are system calls, the driver of a device and
/// its doorbells.
///
/// # Errors
///
/// When the engine has a fault, or the process no descriptor left.
pub fn message_cost(
    message_bytes: u64,
    queue_pairs: usize,
    messages: u64,
) -> Result<MessageCost, ExperimentError> {
    let [mut here, mut there] = ends(settings(RING_BYTES, message_bytes, queue_pairs))?;
    let fault = |fault: crate::engine::Fault| ExperimentError::Fault(fault.to_string());
    let wanted = messages * message_bytes;
    let (mut received, mut now) = (0, Duration::ZERO);
    let mut spent = [Duration::ZERO; 2];
    while received < wanted {
        now += Duration::from_micros(1);
        let started = Instant::now();
        here.send(now).map_err(fault)?;
        let sent = Instant::now();
        received += there.receive(now).map_err(fault)?;
        spent[0] += sent - started;
        spent[1] += sent.elapsed();
    }
    let [sender, receiver] = spent.map(|spent| spent.div_f64(messages as f64));
    Ok(MessageCost { sender, receiver })
}

fn settings(ring_bytes: NonZeroU64, message_bytes: u64, queue_pairs: usize) -> RunSettings {
    RunSettings {
        ring_bytes,
        message_bytes,
        queue_pairs,
        mode: Mode::Put,
        stall: None,
    }
}

/// One end, and its device.
struct CostEnd {
    exchange: Exchange,
    endpoint: Instantaneous,
}

fn ends(settings: RunSettings) -> io::Result<[CostEnd; 2]> {
    let queues = [Queue::default(), Queue::default()];
    let end = |own: usize| -> io::Result<CostEnd> {
        let ring = Ring::new(settings.ring_bytes);
        let remote = RemoteRing::over(1, 0, &[0]).expect("a ring of one adapter");
        let path = Path::new(Rate::Any, settings.message_bytes);
        let endpoint = Instantaneous {
            queue_pairs: settings.queue_pairs,
            own: queues[own].clone(),
            peer: queues[1 - own].clone(),
            descriptor: eventfd(0, EventfdFlags::CLOEXEC)?,
        };
        let sender = settings.sender(ring, remote, endpoint.limits());
        let sender = Sender::new(sender, Pacers::new(&[path], settings.queue_pairs));
        let mut receiver = Receiver::new(ring, settings.pieces());
        receiver.take_immediates();
        Ok(CostEnd {
            exchange: Exchange::new(sender, receiver, settings.queue_pairs),
            endpoint,
        })
    };
    Ok([end(0)?, end(1)?])
}

impl CostEnd {
    /// Posts as much as the peer has room for.
    fn send(&mut self, now: Duration) -> Result<(), crate::engine::Fault> {
        self.exchange.advance(&mut self.endpoint, now)?;
        loop {
            let room = self.exchange.sender.room();
            if room.length == 0 {
                return Ok(());
            }
            self.exchange.sender.fill(room.length);
            self.exchange.advance(&mut self.endpoint, now)?;
        }
    }

    /// Takes what has arrived; returns the bytes.
    fn receive(&mut self, now: Duration) -> Result<u64, crate::engine::Fault> {
        self.exchange.advance(&mut self.endpoint, now)?;
        let mut received = 0;
        loop {
            let ready = self.exchange.receiver.ready();
            if ready.length == 0 {
                break;
            }
            self.exchange.receiver.consume(ready.length);
            received += ready.length as u64;
        }
        self.exchange.advance(&mut self.endpoint, now)?;
        Ok(received)
    }
}

/// Completions that an end has not polled yet.
type Queue = Arc<Mutex<Vec<Completion>>>;

/// An endpoint whose requests complete at once.
#[derive(Debug)]
struct Instantaneous {
    queue_pairs: usize,
    own: Queue,
    peer: Queue,
    descriptor: OwnedFd,
}

fn push(queue: &Queue, completion: Completion) {
    let mut queue = queue.lock().unwrap_or_else(PoisonError::into_inner);
    queue.push(completion);
}

impl Endpoint for Instantaneous {
    fn limits(&self) -> Limits {
        Limits {
            queue_pairs: self.queue_pairs,
            depth: 1024,
            reads: 16,
            message_bytes: 1 << 30,
            payload_bytes: 0,
            immediate: true,
            over_tcp: false,
            needs_polling: false,
            replaces: true,
            rails: 1,
        }
    }

    fn register(&mut self, memory: &Arc<Memory>, _access: Access) -> io::Result<Region> {
        Ok(Region {
            id: 0,
            address: memory.address(),
            key: 0,
        })
    }

    fn deregister(&mut self, _region: usize) {}

    fn post(&mut self, queue_pair: usize, request: Request) -> Result<(), PostError> {
        let arrived = match request.work {
            Work::Write {
                span,
                immediate: Some(immediate),
                ..
            } => Some(Completion::Written {
                queue_pair,
                immediate,
                length: u32::try_from(span.length).unwrap_or(u32::MAX),
            }),
            Work::Send(message) | Work::Carry { message, .. } => Some(Completion::Received {
                queue_pair,
                message: message.as_bytes().to_vec(),
            }),
            Work::Write { .. } | Work::Read { .. } => None,
        };
        if let Some(arrived) = arrived {
            push(&self.peer, arrived);
        }
        let id = request.id;
        push(&self.own, Completion::Done { queue_pair, id });
        Ok(())
    }

    fn poll(&mut self, completions: &mut Vec<Completion>) {
        let mut own = self.own.lock().unwrap_or_else(PoisonError::into_inner);
        completions.append(&mut own);
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }

    fn close(&mut self, _queue_pair: usize) -> bool {
        false
    }

    fn end(&mut self) {}

    fn abort(&mut self) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes that a sender moves for each message that announces them, in a ring of so many GiB.
    fn bytes_of_an_announcement(gibibytes: u64, message_bytes: u64, queue_pairs: usize) -> u64 {
        let ring_bytes = NonZeroU64::new(gibibytes << 30).unwrap();
        let [mut here, mut there] = ends(settings(ring_bytes, message_bytes, queue_pairs)).unwrap();
        let (mut received, mut announced) = (0, 0);
        let mut now = Duration::ZERO;
        while received < 2 * ring_bytes.get() {
            now += Duration::from_micros(1);
            here.send(now).unwrap();
            let arrived = there.endpoint.own.lock().unwrap();
            let messages = arrived
                .iter()
                .filter(|completion| matches!(completion, Completion::Received { .. }));
            announced += messages.count() as u64;
            drop(arrived);
            received += there.receive(now).unwrap();
        }
        received / announced
    }

    /// In rings of more than 2 GiB no WRITE announces what it writes, because 32 bits do not name its place. In one of 2 GiB none does
    /// either: pieces consist of several WRITEs, of up to 4 MiB unless options set longer ones.
    #[test]
    fn long_rings_have_few_announcements() {
        const MIB: u64 = 1 << 20;
        for message_bytes in [MIB / 4, MIB, 3 * MIB, 4 * MIB] {
            for queue_pairs in [1, 8, 16] {
                for gibibytes in [2, 4] {
                    let bytes = bytes_of_an_announcement(gibibytes, message_bytes, queue_pairs);
                    assert!(bytes > 5 * MIB, "{bytes}: {message_bytes}, {queue_pairs}");
                }
            }
        }
        // What a WRITE announces is not counted.
        let [mut here, mut there] = ends(settings(RING_BYTES, MIB, 1)).unwrap();
        here.send(Duration::ZERO).unwrap();
        let arrived = there.endpoint.own.lock().unwrap();
        let is_announced =
            |completion: &Completion| matches!(completion, Completion::Written { .. });
        assert!(arrived.iter().all(is_announced) && !arrived.is_empty());
        drop(arrived);
        there.receive(Duration::ZERO).unwrap();
    }

    /// Prints the costs of this build, for `cargo test --release`.
    #[test]
    fn every_message_is_moved() {
        for kibibytes in [64, 256, 1024, 4096] {
            for queue_pairs in [1, 4] {
                let cost = message_cost(kibibytes << 10, queue_pairs, 2000).unwrap();
                println!("{kibibytes} KiB, {queue_pairs} queue pairs: {cost:?}");
                assert!(!cost.sender.is_zero() && !cost.receiver.is_zero());
            }
        }
    }
}
