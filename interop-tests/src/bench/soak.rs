//! Leak test with many concurrent sessions, some of which transfer.

use std::fmt;
use std::io;
use std::net::Ipv4Addr;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::sample::{gigabytes, mebibytes};
use crate::support::raw::{Control, get_blocks, get_stream, listing, put_blocks, put_stream};
use crate::support::usage::{ProcessTree, Usage, raise_descriptor_limit};
use crate::support::{Kind, Launch, LaunchError, Server, chown_to_nobody, content};

/// The size of the file that sessions get, and the limit of the files that they put, in bytes.
const FILE: usize = 8 << 20;

/// The time limit for the server to release its resources: idle threads of a pool end after a timeout.
const RETURN_LIMIT: Duration = Duration::from_secs(60);

/// The allowed growth of memory between the first and the second wave, in bytes: the
/// allocator returns pages to the kernel lazily.
pub(super) const KEPT_MEMORY: u64 = 8 << 20;

/// The descriptor of `/proc/self/fd`, which gridhaul opens with the first file and keeps.
pub(super) const KEPT_DESCRIPTORS: usize = 1;

/// The minimum time between the starts of two transfers of a session: a closed passive data port stays in TIME_WAIT
/// for a minute, and there are only 28,000 ephemeral ports.
const PACE: Duration = Duration::from_millis(500);

/// The interval at which resources are sampled and each idle session sends a command.
const SAMPLE_INTERVAL: Duration = Duration::from_secs(1);

/// The parameters of the test.
#[derive(Debug, Clone, Copy)]
pub struct Soak {
    /// The server.
    pub kind: Kind,
    /// The number of sessions.
    pub sessions: usize,
    /// The number of sessions that transfer; the others send a command once in a second.
    pub transferring: usize,
    /// The duration.
    pub duration: Duration,
}

/// The result of the test.
#[derive(Debug)]
pub struct Outcome {
    soak: Soak,
    before: Usage,
    peak: Usage,
    after: Usage,
    transfers: u64,
    bytes: u64,
    errors: Vec<String>,
}

/// The state that all sessions share.
#[derive(Debug, Default)]
struct Shared {
    stop: AtomicBool,
    transfers: AtomicU64,
    bytes: AtomicU64,
    errors: Mutex<Vec<String>>,
}

impl Soak {
    /// Serves a directory beneath `scratch` and runs the test.
    ///
    /// # Errors
    ///
    /// When the server does not start, or a file cannot be made. Errors of sessions are in
    /// the outcome.
    pub fn run(self, scratch: &Path) -> Result<Outcome, LaunchError> {
        let root = scratch.join("served");
        std::fs::create_dir(&root)?;
        chown_to_nobody(&root)?;
        let content = content::sample(FILE);
        std::fs::write(root.join("file"), &content)?;
        let server = Launch::new(self.kind, &root).start()?;
        // After the start, so that the server does not inherit the raised limit.
        raise_descriptor_limit();
        let tree = ProcessTree::of(server.pid());
        let shared = Shared::default();
        let mut empty = tree.usage();
        if self.kind == Kind::Gridhaul {
            empty.descriptors += KEPT_DESCRIPTORS;
        }
        // A first wave fills the caches of the server before the reference measurement.
        self.hold(self.duration / 4, &server, &content, &shared)?;
        let memory = settled(tree, empty, u64::MAX).memory;
        let before = Usage { memory, ..empty };
        let peak = self.hold(self.duration, &server, &content, &shared)?;
        let after = settled(tree, before, KEPT_MEMORY);
        Ok(Outcome {
            soak: self,
            before,
            peak,
            after,
            transfers: shared.transfers.into_inner(),
            bytes: shared.bytes.into_inner(),
            errors: shared
                .errors
                .into_inner()
                .unwrap_or_else(PoisonError::into_inner),
        })
    }

    /// Holds all sessions for the time; returns the maximum of the server's resource usage.
    fn hold(
        self,
        duration: Duration,
        server: &Server,
        content: &[u8],
        shared: &Shared,
    ) -> io::Result<Usage> {
        let mut busy = sessions(0..self.transferring, server)?;
        let mut idle = sessions(self.transferring..self.sessions, server)?;
        shared.stop.store(false, Ordering::Relaxed);
        let end = Instant::now() + duration;
        let mut peak = Usage::default();
        thread::scope(|scope| {
            for (number, control) in busy.iter_mut().enumerate() {
                scope.spawn(move || {
                    let name = format!("up-{number}");
                    // Sessions start with different kinds of transfer.
                    for round in number.. {
                        if shared.stop.load(Ordering::Relaxed) {
                            return;
                        }
                        let next = Instant::now() + PACE;
                        match transfer(control, server, content, round, &name) {
                            Ok(bytes) => shared.count(bytes),
                            Err(error) => return shared.fail(format!("session {number}: {error}")),
                        }
                        thread::sleep(next.saturating_duration_since(Instant::now()));
                    }
                });
            }
            let tree = ProcessTree::of(server.pid());
            while Instant::now() < end && !shared.stop.load(Ordering::Relaxed) {
                let next_sample = Instant::now() + SAMPLE_INTERVAL;
                peak = peak.most(tree.usage());
                for (number, control) in idle.iter_mut().enumerate() {
                    if let Err(error) = control.must("NOOP", 200) {
                        shared.fail(format!("idle session {number}: {error}"));
                    }
                }
                thread::sleep(
                    next_sample
                        .min(end)
                        .saturating_duration_since(Instant::now()),
                );
            }
            shared.stop.store(true, Ordering::Relaxed);
        });
        Ok(peak)
    }
}

/// Opens sessions, each from a separate address, as if from another machine, so that
/// ports do not run out.
fn sessions(numbers: Range<usize>, server: &Server) -> io::Result<Vec<Control>> {
    numbers
        .map(|number| {
            let [.., high, low] = number.to_be_bytes();
            Control::anonymous_from(Ipv4Addr::new(127, 1, high, low), server.address())
        })
        .collect()
}

impl Shared {
    fn count(&self, bytes: u64) {
        self.transfers.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Records an error and ends the test: later errors are mostly consequences.
    fn fail(&self, error: String) {
        self.stop.store(true, Ordering::Relaxed);
        self.errors
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(error);
    }
}

/// The kinds of transfer, which every session does in turn.
const ROUNDS: [fn(&mut Task<'_>) -> io::Result<u64>; 5] = [
    |task| {
        task.control.must("MODE S", 200)?;
        let file = get_stream(task.control, &task.server.path("file"))?;
        task.arrived(&file)
    },
    |task| {
        let up = task.server.path(task.name);
        task.control.must("MODE S", 200)?;
        put_stream(task.control, &up, task.part)?;
        task.stored()
    },
    |task| {
        let received = get_blocks(task.control, &task.server.path("file"), 4)?;
        task.arrived(&received.file()?)
    },
    |task| {
        let up = task.server.path(task.name);
        put_blocks(task.control, &up, task.part, 4)?;
        task.stored()
    },
    |task| {
        task.control.must("MODE S", 200)?;
        let lines = listing(task.control, &format!("MLSD {}", task.server.path("")))?;
        Ok(lines.len() as u64)
    },
];

/// One transfer.
#[derive(Debug)]
struct Task<'a> {
    control: &'a mut Control,
    server: &'a Server,
    content: &'a [u8],
    /// The content and the name of the stored file.
    part: &'a [u8],
    name: &'a str,
}

impl Task<'_> {
    fn arrived(&self, bytes: &[u8]) -> io::Result<u64> {
        if bytes != self.content {
            return Err(io::Error::other(format!(
                "received {} bytes that differ from the file",
                bytes.len()
            )));
        }
        Ok(bytes.len() as u64)
    }

    fn stored(&self) -> io::Result<u64> {
        if std::fs::read(self.server.root().join(self.name))? != self.part {
            return Err(io::Error::other(
                "the stored file differs from the sent one",
            ));
        }
        Ok(self.part.len() as u64)
    }
}

/// Does the transfer of this round; returns its bytes.
fn transfer(
    control: &mut Control,
    server: &Server,
    content: &[u8],
    round: usize,
    name: &str,
) -> io::Result<u64> {
    // Lengths that are not multiples of a block size.
    let length = round.wrapping_mul(262_147) % content.len();
    let part = &content[..length];
    ROUNDS[round % ROUNDS.len()](&mut Task {
        control,
        server,
        content,
        part,
        name,
    })
}

impl Usage {
    /// Whether no value exceeds that of `other`, except `kept` more bytes of memory.
    pub(super) fn is_back_to(self, other: Self, kept: u64) -> bool {
        self.processes <= other.processes
            && self.threads <= other.threads
            && self.descriptors <= other.descriptors
            && self.memory <= other.memory.saturating_add(kept)
    }
}

/// Waits until the usage is back to `level`, or until the time limit, and returns it.
pub(super) fn settled(tree: ProcessTree, level: Usage, kept: u64) -> Usage {
    let deadline = Instant::now() + RETURN_LIMIT;
    loop {
        let usage = tree.usage();
        if usage.is_back_to(level, kept) || Instant::now() > deadline {
            return usage;
        }
        thread::sleep(SAMPLE_INTERVAL / 4);
    }
}

impl Outcome {
    /// Errors of sessions, and leaked resources.
    pub fn problems(&self) -> Vec<String> {
        let mut problems = self.errors.clone();
        if self.transfers == 0 {
            problems.push("no transfer was completed".to_owned());
        }
        if !self.after.is_back_to(self.before, KEPT_MEMORY) {
            problems.push("the server did not release all resources: see the table".to_owned());
        }
        problems
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            soak,
            before,
            peak,
            after,
            ..
        } = self;
        writeln!(
            f,
            "{} sessions, {} of them transferring, for {} s: {} transfers, {:.1} GB",
            soak.sessions,
            soak.transferring,
            soak.duration.as_secs(),
            self.transfers,
            gigabytes(self.bytes),
        )?;
        let mut line = |name, before: String, peak: String, after: String, allowed: String| {
            writeln!(
                f,
                "{name:<12} {before:>10} {peak:>10} {after:>10} {allowed:>10}"
            )
        };
        let words = ["before", "peak", "after", "allowed"].map(str::to_owned);
        let [first, second, third, fourth] = words;
        line("", first, second, third, fourth)?;
        let mut count = |name, of: fn(&Usage) -> usize| {
            let [before, peak, after] = [before, peak, after].map(|usage| of(usage).to_string());
            line(name, before.clone(), peak, after, before)
        };
        count("processes", |usage| usage.processes)?;
        count("threads", |usage| usage.threads)?;
        count("descriptors", |usage| usage.descriptors)?;
        let allowed = before.memory + KEPT_MEMORY;
        let [before, peak, after, allowed] = [before.memory, peak.memory, after.memory, allowed]
            .map(|bytes| format!("{:.1}", mebibytes(bytes)));
        line("memory, MiB", before, peak, after, allowed)?;
        self.problems()
            .iter()
            .try_for_each(|problem| writeln!(f, "error: {problem}"))
    }
}
