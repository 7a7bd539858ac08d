//! Moves bytes from one end of a cable to the other through a driver stack.
//!
//! Both ends are threads of this process. What is sent is zeros, or a file; what arrives goes to `/dev/null`: so the
//! numbers are those of the stack and of the devices beneath it, and not of a file system.

use std::fs::{self, File};
use std::io;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::thread;
use std::time::{Duration, Instant};

use gridhaul_protocol::stack::{StackSpec, StackSyntaxError};
use gridhaul_rdma::Rdma;
use gridhaul_splice::Splice;
use gridhaul_stack::{
    AcceptError, Body, Cancel, Channel, ChannelError, ConnectError, FileRange, ListenError,
    Operation, Received, Registry, SocketOptions, Stack, StackError, StackListener,
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
    /// Bytes of each.
    pub bytes: u64,
    /// What is sent; a file is as long as `bytes`.
    pub source: &'a Path,
    /// When it is given up.
    pub limit: Duration,
}

/// What became of it.
#[derive(Debug)]
pub struct Moved {
    /// Bytes that arrived.
    pub bytes: u64,
    /// From the first byte to the end.
    pub elapsed: Duration,
    /// Time of all processors of the machine, that of its kernel included.
    pub processors: Duration,
    /// Why it ended early.
    pub failure: Option<ChannelError>,
    /// What the sending ends tell of themselves.
    pub details: Vec<String>,
}

impl Moved {
    /// Millions of bytes in a second.
    pub fn megabytes_per_second(&self) -> f64 {
        self.bytes as f64 / self.elapsed.as_secs_f64() / 1e6
    }

    /// Processor seconds for 10^9 bytes.
    pub fn processor_seconds(&self) -> f64 {
        self.processors.as_secs_f64() * 1e9 / self.bytes as f64
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
type Pair = (Box<dyn Channel>, Box<dyn Channel>);

impl Load<'_> {
    /// Moves it.
    ///
    /// # Errors
    ///
    /// When no byte could be sent. What goes wrong later is in [`Moved::failure`].
    pub fn run(&self) -> Result<Moved, PumpError> {
        let mut registry = Registry::new();
        registry.register(Rdma);
        registry.register(Splice);
        registry.register(Tcp);
        let stack = registry.build(&StackSpec::parse(self.stack)?)?;
        let cancel = Cancel::new();
        let operation = Operation {
            deadline: Some(Instant::now() + self.limit),
            cancel: &cancel,
        };
        let mut listener = stack.listen(self.to, &SocketOptions::default())?;
        let mut pairs = (0..self.channels)
            .map(|_| meet(&stack, &mut listener, &operation))
            .collect::<Result<Vec<_>, _>>()?;
        self.pump(&mut pairs, &operation)
    }

    fn pump(&self, pairs: &mut [Pair], operation: &Operation<'_>) -> Result<Moved, PumpError> {
        let source = File::open(self.source)?;
        let sink = File::options().write(true).open("/dev/null")?;
        let arrived = AtomicU64::new(0);
        let busy = busy_time()?;
        let started = Instant::now();
        let outcomes = thread::scope(|scope| {
            let (source, sink, arrived) = (&source, &sink, &arrived);
            let ends: Vec<_> = pairs
                .iter_mut()
                .flat_map(|(sender, receiver)| {
                    [
                        scope.spawn(move || send(&mut **sender, source, self.bytes, operation)),
                        scope.spawn(move || {
                            receive(&mut **receiver, sink, arrived, self.bytes, operation)
                        }),
                    ]
                })
                .collect();
            ends.into_iter()
                .map(|end| end.join().expect("an end does not panic"))
                .collect::<Vec<_>>()
        });
        Ok(Moved {
            bytes: arrived.into_inner(),
            elapsed: started.elapsed(),
            processors: busy_time()?.saturating_sub(busy),
            failure: outcomes.into_iter().find_map(Result::err),
            details: pairs
                .iter()
                .flat_map(|(sender, _)| sender.info().details)
                .map(|detail| detail.to_string())
                .collect(),
        })
    }
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

fn send(
    channel: &mut dyn Channel,
    source: &File,
    bytes: u64,
    operation: &Operation<'_>,
) -> Result<(), ChannelError> {
    let mut scratch = vec![0; SCRATCH_BYTES];
    let moved = AtomicU64::new(0);
    let range = FileRange::new(source.as_fd(), 0, bytes, &mut scratch, &moved);
    channel.send(&[], Body::File(range), operation)?;
    channel.finish(operation)
}

fn receive(
    channel: &mut dyn Channel,
    sink: &File,
    arrived: &AtomicU64,
    bytes: u64,
    operation: &Operation<'_>,
) -> Result<(), ChannelError> {
    let mut scratch = vec![0; SCRATCH_BYTES];
    let range = FileRange::new(sink.as_fd(), 0, bytes, &mut scratch, arrived);
    channel.receive_into(range, operation)?;
    while channel.receive(&mut scratch, operation)? != Received::EndOfStream {}
    Ok(())
}

/// For drivers that move bytes through memory.
const SCRATCH_BYTES: usize = 1 << 20;

/// How long all processors together were not idle since the machine started.
fn busy_time() -> io::Result<Duration> {
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
                bytes: 3_000_001,
                source: Path::new("/dev/zero"),
                limit: Duration::from_secs(30),
            };
            let moved = load.run().unwrap();
            assert!(moved.failure.is_none(), "{stack}: {moved:?}");
            assert_eq!(moved.bytes, 6_000_002, "{stack}");
        }
    }
}
