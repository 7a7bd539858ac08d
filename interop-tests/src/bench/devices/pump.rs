//! Moves bytes from one end of a cable to the other through a driver stack.
//!
//! Both ends are threads of this process. The sender sends zeros or a file; the receiver writes to `/dev/null`: so the
//! results depend on the stack and the devices beneath it, and not on a file system.

use std::fs::File;
use std::io;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use gridhaul_protocol::stack::{StackSpec, StackSyntaxError};
use gridhaul_rdma::Rdma;
use gridhaul_splice::Splice;
use gridhaul_stack::{
    AcceptError, Body, Cancel, Channel, ChannelError, ConnectError, Detail, DetailValue, FileRange,
    ListenError, Operation, Received, Registry, SocketOptions, Stack, StackError, StackListener,
};
use gridhaul_tcp::Tcp;

use crate::support::usage::busy_time;

/// One after the other, channels of a long path take seconds to open. That time does not count.
const OPENING_TIME: Duration = Duration::from_secs(60);

/// A load for a stack.
#[derive(Debug, Clone, Copy)]
pub struct Load<'a> {
    /// The stack string.
    pub stack: &'a str,
    /// The address of the receiving end.
    pub to: IpAddr,
    /// The number of concurrent channels.
    pub channels: usize,
    /// Bytes of each channel; `None` for as many as the time limit allows.
    pub bytes: Option<u64>,
    /// The file that is sent, with a length of `bytes`, or `/dev/zero`.
    pub source: &'a Path,
    /// The time limit of the transfer.
    pub limit: Duration,
}

/// The result of a load.
#[derive(Debug)]
pub struct Moved {
    /// Received bytes of each channel.
    pub bytes: Vec<u64>,
    /// From the first byte to the end.
    pub elapsed: Duration,
    /// Samples: the elapsed time, and the bytes received over all channels by then.
    pub progress: Vec<(Duration, u64)>,
    /// Time of all processors of the machine, including its kernel.
    pub processors: Duration,
    /// Why it ended early.
    pub failure: Option<ChannelError>,
    /// The details that the sending ends report.
    pub details: Vec<Detail>,
}

impl Moved {
    /// Received bytes of all channels.
    pub fn total(&self) -> u64 {
        self.bytes.iter().sum()
    }

    /// The rate in 10^6 bytes per second.
    pub fn megabytes_per_second(&self) -> f64 {
        self.total() as f64 / self.elapsed.as_secs_f64() / 1e6
    }

    /// The rate from a time on, after the driver had the chance to find its rate.
    pub fn megabytes_per_second_from(&self, time: Duration) -> f64 {
        let before = self.progress.iter().find(|(elapsed, _)| *elapsed >= time);
        let Some((elapsed, bytes)) = before else {
            return 0.0;
        };
        let left = self.elapsed.saturating_sub(*elapsed).as_secs_f64();
        (self.total() - bytes) as f64 / left / 1e6
    }

    /// Processor seconds for 10^9 bytes.
    pub fn processor_seconds(&self) -> f64 {
        self.processors.as_secs_f64() * 1e9 / self.total() as f64
    }

    /// The bytes of the slowest channel divided by those of the fastest.
    pub fn fairness(&self) -> f64 {
        let slowest = self.bytes.iter().min().copied().unwrap_or_default();
        let fastest = self.bytes.iter().max().copied().unwrap_or_default();
        slowest as f64 / fastest.max(1) as f64
    }

    /// The minimum of this setting over the sending ends.
    pub fn setting(&self, name: &str) -> Option<u64> {
        let details = self.details.iter().filter(|detail| detail.name == name);
        let settings = details.filter_map(|detail| match detail.value {
            DetailValue::Setting(value) => Some(value),
            _ => None,
        });
        settings.min()
    }

    /// The sum of this counter over the sending ends.
    pub fn count(&self, name: &str) -> u64 {
        let counts = self.details.iter().filter(|detail| detail.name == name);
        let times = counts.map(|detail| match detail.value {
            DetailValue::Count(times) => times,
            _ => 0,
        });
        times.sum()
    }
}

/// Why a load did not start.
#[derive(Debug, thiserror::Error)]
pub enum PumpError {
    /// The stack string has a syntax error.
    #[error(transparent)]
    Syntax(#[from] StackSyntaxError),
    /// The stack cannot be built.
    #[error(transparent)]
    Stack(#[from] StackError),
    /// The stack does not listen.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// The stack does not connect.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The stack does not accept.
    #[error(transparent)]
    Accept(#[from] AcceptError),
    /// A channel failed.
    #[error(transparent)]
    Channel(#[from] ChannelError),
    /// A file cannot be opened or read.
    #[error(transparent)]
    System(#[from] io::Error),
}

/// A channel's connecting end, which sends, and its accepting end.
pub(super) type Pair = (Box<dyn Channel>, Box<dyn Channel>);

impl Load<'_> {
    /// Moves the load.
    ///
    /// # Errors
    ///
    /// When the channels do not open. Later errors are in [`Moved::failure`].
    pub fn run(&self) -> Result<Moved, PumpError> {
        let cancel = Cancel::new();
        let within = |limit| Operation {
            deadline: Some(Instant::now() + limit),
            cancel: &cancel,
        };
        let mut pairs = open_pairs(self.stack, self.to, self.channels, &within(OPENING_TIME))?;
        self.pump(&mut pairs, &within(self.limit))
    }

    fn pump(&self, pairs: &mut [Pair], operation: &Operation<'_>) -> Result<Moved, PumpError> {
        let source = File::open(self.source)?;
        let sink = File::options().write(true).open("/dev/null")?;
        let arrived: Vec<AtomicU64> = pairs.iter().map(|_| AtomicU64::new(0)).collect();
        let is_over = AtomicBool::new(false);
        // The measurement starts after all threads have started and touched their memory: user-mode Linux walks all mappings of the
        // process for each new thread and maps single pages, which took longer than sending a ring.
        let barrier = Barrier::new(2 * pairs.len() + 2);
        let begin = || {
            barrier.wait();
            // Between the two waits the main thread reads its clocks.
            barrier.wait();
        };
        let (elapsed, processors, failures, progress) = thread::scope(|scope| {
            let (source, sink, begin) = (&source, &sink, &begin);
            let watching = scope.spawn(|| {
                begin();
                watch(&arrived, Instant::now(), &is_over)
            });
            let ends = pairs.iter_mut().zip(&arrived);
            let ends: Vec<_> = ends
                .flat_map(|((sender, receiver), arrived)| {
                    [
                        scope.spawn(move || {
                            let mut scratch = vec![1; SCRATCH_BYTES];
                            begin();
                            self.send(&mut **sender, source, &mut scratch, operation)
                        }),
                        scope.spawn(move || {
                            let mut scratch = vec![1; SCRATCH_BYTES];
                            begin();
                            self.receive(&mut **receiver, sink, arrived, &mut scratch, operation)
                        }),
                    ]
                })
                .collect();
            barrier.wait();
            let busy = busy_time();
            let started = Instant::now();
            barrier.wait();
            let failures: Vec<_> = ends
                .into_iter()
                .filter_map(|end| end.join().expect("an end does not panic").err())
                .collect();
            let elapsed = started.elapsed();
            let processors = busy.and_then(|busy| Ok(busy_time()?.saturating_sub(busy)));
            is_over.store(true, Ordering::Relaxed);
            let progress = watching.join().expect("sampling does not panic");
            (elapsed, processors, failures, progress)
        });
        Ok(Moved {
            bytes: arrived.into_iter().map(AtomicU64::into_inner).collect(),
            elapsed,
            progress,
            processors: processors?,
            failure: failures.into_iter().next(),
            details: pairs
                .iter()
                .flat_map(|(sender, _)| sender.info().details)
                .collect(),
        })
    }

    fn send(
        &self,
        channel: &mut dyn Channel,
        source: &File,
        scratch: &mut [u8],
        operation: &Operation<'_>,
    ) -> Result<(), ChannelError> {
        let moved = AtomicU64::new(0);
        let bytes = self.bytes.unwrap_or(ENDLESS);
        let range = FileRange::new(source.as_fd(), 0, bytes, scratch, &moved);
        let sent = channel.send(&[], Body::File(range), operation);
        self.unless_over(sent.and_then(|()| channel.finish(operation)), operation)
    }

    fn receive(
        &self,
        channel: &mut dyn Channel,
        sink: &File,
        arrived: &AtomicU64,
        scratch: &mut [u8],
        operation: &Operation<'_>,
    ) -> Result<(), ChannelError> {
        let bytes = self.bytes.unwrap_or(ENDLESS);
        let range = FileRange::new(sink.as_fd(), 0, bytes, scratch, arrived);
        let mut received = channel.receive_into(range, operation).map(drop);
        while received.is_ok() {
            match channel.receive(scratch, operation) {
                Ok(Received::EndOfStream) => break,
                next => received = next.map(drop),
            }
        }
        self.unless_over(received, operation)
    }

    /// A load without a number of bytes ends with its deadline, which is no failure.
    fn unless_over(
        &self,
        outcome: Result<(), ChannelError>,
        operation: &Operation<'_>,
    ) -> Result<(), ChannelError> {
        let is_over = operation
            .deadline
            .is_some_and(|deadline| Instant::now() >= deadline);
        match self.bytes {
            None if is_over => Ok(()),
            _ => outcome,
        }
    }
}

/// Opens channels of a stack to an address of this machine.
///
/// # Errors
///
/// When one does not open.
pub(super) fn open_pairs(
    stack: &str,
    to: IpAddr,
    channels: usize,
    operation: &Operation<'_>,
) -> Result<Vec<Pair>, PumpError> {
    let mut registry = Registry::new();
    registry.register(Rdma);
    registry.register(Splice);
    registry.register(Tcp);
    let stack = registry.build(&StackSpec::parse(stack)?)?;
    let mut listener = stack.listen(to, &SocketOptions::default())?;
    (0..channels)
        .map(|_| open_pair(&stack, &mut listener, operation))
        .collect()
}

fn open_pair(
    stack: &Stack,
    listener: &mut StackListener,
    operation: &Operation<'_>,
) -> Result<Pair, PumpError> {
    let address = listener.address();
    thread::scope(|scope| {
        let connecting =
            scope.spawn(|| stack.connect(address, &SocketOptions::default(), operation));
        let acceptor = listener.accept(operation)?.establish(operation)?;
        let connector = connecting.join().expect("a connect does not panic")?;
        Ok((connector, acceptor))
    })
}

/// More bytes than any path carries within the time limit.
const ENDLESS: u64 = 1 << 50;

/// Samples the received bytes until the transfer is over.
fn watch(arrived: &[AtomicU64], started: Instant, is_over: &AtomicBool) -> Vec<(Duration, u64)> {
    let mut progress = Vec::new();
    while !is_over.load(Ordering::Relaxed) {
        let bytes = arrived.iter().map(|bytes| bytes.load(Ordering::Relaxed));
        progress.push((started.elapsed(), bytes.sum()));
        thread::sleep(Duration::from_millis(100));
    }
    progress
}

/// The scratch buffer of drivers that move bytes through memory. It is filled before the measurement, so that no page fault occurs in it.
const SCRATCH_BYTES: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_stack_moves_all_bytes() {
        for stack in ["tcp", "splice", "rdma:provider=soft;slab=64K;qps=2"] {
            let load = Load {
                stack,
                to: "127.0.0.1".parse().unwrap(),
                channels: 2,
                bytes: Some(3_000_001),
                source: Path::new("/dev/zero"),
                limit: Duration::from_secs(30),
            };
            let moved = load.run().unwrap();
            assert!(moved.failure.is_none(), "{stack}: {moved:?}");
            assert_eq!(moved.bytes, [3_000_001; 2], "{stack}");
        }
    }

    #[test]
    fn a_load_without_an_end_ends_with_its_time() {
        let load = Load {
            stack: "rdma:provider=soft;slab=64K",
            to: "127.0.0.1".parse().unwrap(),
            channels: 3,
            bytes: None,
            source: Path::new("/dev/zero"),
            limit: Duration::from_millis(300),
        };
        let moved = load.run().unwrap();
        assert!(moved.failure.is_none(), "{moved:?}");
        assert!(moved.bytes.iter().all(|&bytes| bytes > 0), "{moved:?}");
        assert!(!moved.progress.is_empty(), "{moved:?}");
        assert!((0.0..=1.0).contains(&moved.fairness()), "{moved:?}");
        assert_eq!(moved.count("stalls"), 0, "{moved:?}");
    }
}
