//! Many sessions at once, some of them transferring, and what is left of them afterwards.

use std::fmt;
use std::io;
use std::net::Ipv4Addr;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::support::raw::{Control, get_blocks, get_stream, listing, put_blocks, put_stream};
use crate::support::usage::{ProcessTree, Usage, raise_descriptor_limit};
use crate::support::{Kind, Launch, LaunchError, Server, chown_to_nobody};

/// The file that sessions get, and the longest that they put: in bytes.
const FILE: usize = 8 << 20;

/// How long the server has to give back what it took: idle threads of a pool end by a timer.
const RETURN_LIMIT: Duration = Duration::from_secs(60);

/// What the server may keep after the second wave beyond what it kept after the first, in bytes: the
/// allocator gives pages back when it sees fit.
pub(super) const KEPT_MEMORY: u64 = 8 << 20;

/// The descriptor that gridhaul opens with the first file, and keeps: the directory of its descriptors in `/proc`.
pub(super) const KEPT_DESCRIPTORS: usize = 1;

/// The shortest time from one transfer of a session to its next: a passive data port rests for a minute
/// when it is closed, and there are no more than 28,000 of them.
const PACE: Duration = Duration::from_millis(500);

/// How often everything is looked at: memory, and each idle session once.
const BEAT: Duration = Duration::from_secs(1);

/// What to do, and for how long.
#[derive(Debug, Clone, Copy)]
pub struct Soak {
    /// Which server.
    pub kind: Kind,
    /// Sessions in all.
    pub sessions: usize,
    /// Those of them that transfer all the time; the others send a command now and then.
    pub transferring: usize,
    /// How long.
    pub duration: Duration,
}

/// What became of it.
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

/// What all sessions share.
#[derive(Debug, Default)]
struct Shared {
    stop: AtomicBool,
    transfers: AtomicU64,
    bytes: AtomicU64,
    errors: Mutex<Vec<String>>,
}

impl Soak {
    /// Serves a directory beneath `scratch` and does it.
    ///
    /// # Errors
    ///
    /// When the server does not start, or a file cannot be made. What goes wrong in a session is in
    /// the outcome.
    pub fn run(self, scratch: &Path) -> Result<Outcome, LaunchError> {
        let root = scratch.join("served");
        std::fs::create_dir(&root)?;
        chown_to_nobody(&root)?;
        let content = content(FILE);
        std::fs::write(root.join("file"), &content)?;
        let server = Launch::new(self.kind, &root).start()?;
        // After the start: whether the server raises its own limit is the server's matter.
        raise_descriptor_limit();
        let tree = ProcessTree::of(server.pid());
        let shared = Shared::default();
        let mut empty = tree.usage();
        if self.kind == Kind::Gridhaul {
            empty.descriptors += KEPT_DESCRIPTORS;
        }
        // A first wave, so that memory which the server keeps for the next ones is there before.
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

    /// Holds all sessions for the time; returns the most that the server used.
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
                    // Each begins with another kind of transfer.
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
                let beat = Instant::now() + BEAT;
                peak = peak.most(tree.usage());
                for (number, control) in idle.iter_mut().enumerate() {
                    if let Err(error) = control.must("NOOP", 200) {
                        shared.fail(format!("idle session {number}: {error}"));
                    }
                }
                thread::sleep(beat.min(end).saturating_duration_since(Instant::now()));
            }
            shared.stop.store(true, Ordering::Relaxed);
        });
        Ok(peak)
    }
}

/// Opens sessions. Each comes from an address of its own, as if from another machine, so that their
/// ports do not run out either.
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

    /// One error ends it all: what follows from it would only hide it.
    fn fail(&self, error: String) {
        self.stop.store(true, Ordering::Relaxed);
        self.errors
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(error);
    }
}

/// The kinds of transfers, which every session does in turn.
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
    /// What is put, and under which name.
    part: &'a [u8],
    name: &'a str,
}

impl Task<'_> {
    fn arrived(&self, bytes: &[u8]) -> io::Result<u64> {
        if bytes != self.content {
            return Err(io::Error::other(format!(
                "got {} bytes, not the file's",
                bytes.len()
            )));
        }
        Ok(bytes.len() as u64)
    }

    fn stored(&self) -> io::Result<u64> {
        if std::fs::read(self.server.root().join(self.name))? != self.part {
            return Err(io::Error::other("what was stored is not what was sent"));
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
    // Lengths that are no multiple of anything.
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
    /// No more than `other`, but for so many bytes of memory.
    pub(super) fn is_back_to(self, other: Self, kept: u64) -> bool {
        self.processes <= other.processes
            && self.threads <= other.threads
            && self.descriptors <= other.descriptors
            && self.memory <= other.memory.saturating_add(kept)
    }
}

/// Waits until the server uses no more than `level`, or until the time is up, and returns its usage.
pub(super) fn settled(tree: ProcessTree, level: Usage, kept: u64) -> Usage {
    let deadline = Instant::now() + RETURN_LIMIT;
    loop {
        let usage = tree.usage();
        if usage.is_back_to(level, kept) || Instant::now() > deadline {
            return usage;
        }
        thread::sleep(BEAT / 4);
    }
}

impl Outcome {
    /// What went wrong: errors of sessions, and what the server did not give back.
    pub fn complaints(&self) -> Vec<String> {
        let mut complaints = self.errors.clone();
        if self.transfers == 0 {
            complaints.push("not one transfer came to its end".to_owned());
        }
        if !self.after.is_back_to(self.before, KEPT_MEMORY) {
            complaints.push("the server did not give everything back: see the table".to_owned());
        }
        complaints
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
            giga(self.bytes),
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
        let [before, peak, after, allowed] =
            [before.memory, peak.memory, after.memory, allowed].map(mebibytes);
        line("memory, MiB", before, peak, after, allowed)?;
        self.complaints()
            .iter()
            .try_for_each(|complaint| writeln!(f, "error: {complaint}"))
    }
}

#[expect(clippy::cast_precision_loss, reason = "shown with one decimal")]
fn giga(bytes: u64) -> f64 {
    bytes as f64 / 1e9
}

#[expect(clippy::cast_precision_loss, reason = "shown with one decimal")]
fn mebibytes(bytes: u64) -> String {
    format!("{:.1}", bytes as f64 / f64::from(1 << 20))
}

/// Bytes that are nowhere the same.
pub(super) fn content(bytes: usize) -> Vec<u8> {
    let words = (0u64..).map(|index| index.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes());
    words.flatten().take(bytes).collect()
}
