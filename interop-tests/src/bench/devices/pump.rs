//! Moves bytes from one end of a cable to the other through a driver stack.
//!
//! Both ends are threads of this process. What is sent is zeros, or a file; what arrives goes to `/dev/null`: so the
//! numbers are those of the stack and of the devices beneath it, and not of a file system.

use std::fs::{self, File};
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

/// What a stack is to move.
#[derive(Debug, Clone, Copy)]
pub struct Load<'a> {
    /// The stack, as clients write it.
    pub stack: &'a str,
    /// Where the receiving end listens.
    pub to: IpAddr,
    /// Channels, beside each other.
    pub channels: usize,
    /// Bytes of each; without a number, as many as the time allows.
    pub bytes: Option<u64>,
    /// What is sent; a file is as long as `bytes`.
    pub source: &'a Path,
    /// When it ends, or is given up, once all channels are open; they have as long to open.
    pub limit: Duration,
}

/// What became of it.
#[derive(Debug)]
pub struct Moved {
    /// Bytes that arrived over each channel.
    pub bytes: Vec<u64>,
    /// From the first byte to the end.
    pub elapsed: Duration,
    /// How many bytes had arrived over all channels after some of that time.
    pub progress: Vec<(Duration, u64)>,
    /// Time of all processors of the machine, that of its kernel included.
    pub processors: Duration,
    /// Why it ended early.
    pub failure: Option<ChannelError>,
    /// What the sending ends tell of themselves.
    pub details: Vec<Detail>,
}

impl Moved {
    /// Bytes that arrived over all channels.
    pub fn total(&self) -> u64 {
        self.bytes.iter().sum()
    }

    /// Millions of bytes in a second.
    pub fn megabytes_per_second(&self) -> f64 {
        self.total() as f64 / self.elapsed.as_secs_f64() / 1e6
    }

    /// The same from a time on: what was looked for before it is found, or never will be.
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

    /// What the slowest channel moved, as a share of what the fastest one did.
    pub fn fairness(&self) -> f64 {
        let slowest = self.bytes.iter().min().copied().unwrap_or_default();
        let fastest = self.bytes.iter().max().copied().unwrap_or_default();
        slowest as f64 / fastest.max(1) as f64
    }

    /// The least of what the sending ends have chosen under this name.
    pub fn setting(&self, name: &str) -> Option<u64> {
        let details = self.details.iter().filter(|detail| detail.name == name);
        let settings = details.filter_map(|detail| match detail.value {
            DetailValue::Setting(value) => Some(value),
            _ => None,
        });
        settings.min()
    }

    /// How often something happened that the sending ends count under this name.
    pub fn count(&self, name: &str) -> u64 {
        let counts = self.details.iter().filter(|detail| detail.name == name);
        let times = counts.map(|detail| match detail.value {
            DetailValue::Count(times) => times,
            _ => 0,
        });
        times.sum()
    }
}

/// Why a stack could not begin.
#[derive(Debug, thiserror::Error)]
pub enum PumpError {
    /// The string is none.
    #[error(transparent)]
    Syntax(#[from] StackSyntaxError),
    /// There is no such stack.
    #[error(transparent)]
    Stack(#[from] StackError),
    /// It does not listen.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// It does not connect.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// It does not accept.
    #[error(transparent)]
    Accept(#[from] AcceptError),
    /// It does not open.
    #[error(transparent)]
    Channel(#[from] ChannelError),
    /// A file is missing.
    #[error(transparent)]
    System(#[from] io::Error),
}

/// A channel's connecting end, which sends, and its accepting end.
pub(super) type Pair = (Box<dyn Channel>, Box<dyn Channel>);

impl Load<'_> {
    /// Moves it.
    ///
    /// # Errors
    ///
    /// When no byte could be sent. What goes wrong later is in [`Moved::failure`].
    pub fn run(&self) -> Result<Moved, PumpError> {
        let cancel = Cancel::new();
        // Many channels take seconds to open, while nothing moves: that time does not count.
        let operation = || Operation {
            deadline: Some(Instant::now() + self.limit),
            cancel: &cancel,
        };
        let mut pairs = meet_all(self.stack, self.to, self.channels, &operation())?;
        self.pump(&mut pairs, &operation())
    }

    fn pump(&self, pairs: &mut [Pair], operation: &Operation<'_>) -> Result<Moved, PumpError> {
        let source = File::open(self.source)?;
        let sink = File::options().write(true).open("/dev/null")?;
        let arrived: Vec<AtomicU64> = pairs.iter().map(|_| AtomicU64::new(0)).collect();
        let is_over = AtomicBool::new(false);
        // No thread begins, and no time counts, before all have started and have their memory: user-mode Linux goes through all that a
        // process has mapped for each thread that starts, and maps a page at a time, which took longer than to send a ring.
        let barrier = Barrier::new(2 * pairs.len() + 2);
        let begin = || {
            barrier.wait();
            // Meanwhile this thread samples the progress.
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
            let progress = watching.join().expect("it only looks");
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
        self.judged(sent.and_then(|()| channel.finish(operation)), operation)
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
        self.judged(received, operation)
    }

    /// What ends because its time is over has not failed, if that is how it was to end.
    fn judged(
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

/// Opens channels of a stack, as clients write it, to an address of this machine.
///
/// # Errors
///
/// When one does not open.
pub(super) fn meet_all(
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
        .map(|_| meet(&stack, &mut listener, operation))
        .collect()
}

fn meet(
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

/// More than any path carries in the time that it has.
const ENDLESS: u64 = 1 << 50;

/// Looks again and again how much has arrived, until it is over.
fn watch(arrived: &[AtomicU64], started: Instant, is_over: &AtomicBool) -> Vec<(Duration, u64)> {
    let mut progress = Vec::new();
    while !is_over.load(Ordering::Relaxed) {
        let bytes = arrived.iter().map(|bytes| bytes.load(Ordering::Relaxed));
        progress.push((started.elapsed(), bytes.sum()));
        thread::sleep(Duration::from_millis(100));
    }
    progress
}

/// For drivers that move bytes through memory. It is written to before it is used: untouched pages would be mapped at the first access.
const SCRATCH_BYTES: usize = 1 << 20;

/// How long all processors together were not idle since the machine started.
pub(super) fn busy_time() -> io::Result<Duration> {
    /// USER_HZ.
    const TICKS_PER_SECOND: u64 = 100;
    let stat = fs::read_to_string("/proc/stat")?;
    let first = stat.lines().next().unwrap_or_default();
    let ticks: Vec<u64> = first
        .split_whitespace()
        .filter_map(|word| word.parse().ok())
        .collect();
    // proc_stat(5): user, nice, system, idle, iowait, irq, softirq.
    let busy: u64 = [0, 1, 2, 5, 6].iter().filter_map(|&at| ticks.get(at)).sum();
    Ok(Duration::from_millis(busy * 1000 / TICKS_PER_SECOND))
}

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
