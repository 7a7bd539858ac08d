//! Hashes of a file while it arrives.
//!
//! MD5 and its successors want the bytes in order, and are slower than a network. So they have a thread of
//! their own, which reads back what has arrived without a hole: from the kernel's cache, because it is never
//! far behind. Workers that get too far ahead wait for it.

use std::ops::Range;
use std::os::fd::AsFd as _;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use gridhaul_protocol::ranges::RangeSet;
use gridhaul_storage::{Checksum, ChecksumAlgorithm, OpenedFile};

use crate::error::TransferError;
use crate::local::Context;
use crate::sync::lock;

/// How far workers may be ahead of the hashes: the client waits for this much when all has arrived.
const MOST_BEHIND_BYTES: u64 = 256 * 1024 * 1024;

/// How often a waiting worker looks whether its transfer was cancelled.
const CANCEL_CHECK: Duration = Duration::from_millis(50);

/// The hashes of one file, shared by its workers and the thread that computes them.
#[derive(Debug)]
pub(super) struct HashStage {
    context: Context,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    arrived: RangeSet,
    hashed: u64,
    /// The thread has a buffer. Until then workers do not wait for it, because they may hold the buffer that it waits for.
    began: bool,
    /// Nothing more will arrive.
    over: bool,
    /// The thread has ended; what it has is in `sums`, unless it failed.
    ended: bool,
    sums: Vec<(ChecksumAlgorithm, String)>,
}

impl State {
    /// Where the first hole is.
    fn ready(&self) -> u64 {
        let first = self.arrived.iter().next();
        first
            .filter(|first| first.start == 0)
            .map_or(0, |first| first.end)
    }
}

impl HashStage {
    /// Starts the thread for `file`, which is open for reading.
    pub(super) fn start(
        context: &Context,
        algorithms: Vec<ChecksumAlgorithm>,
        file: OpenedFile,
    ) -> Result<Arc<Self>, TransferError> {
        let stage = Arc::new(Self {
            context: context.clone(),
            state: Mutex::default(),
            changed: Condvar::new(),
        });
        let job = {
            let stage = stage.clone();
            move || {
                let ended = Ended(&stage);
                let sums = stage.hash(&algorithms, &file);
                lock(&ended.0.state).sums = sums.unwrap_or_default();
            }
        };
        context
            .shared
            .threads
            .run(Box::new(job))
            .map_err(|error| TransferError::Local(format!("no thread is left: {error}")))?;
        Ok(stage)
    }

    /// Bytes that the file has. Waits while the hashes are too far behind.
    pub(super) fn arrived(&self, bytes: Range<u64>) {
        let mut state = lock(&self.state);
        state.arrived.insert(bytes);
        self.changed.notify_all();
        // Only for what can be hashed without any more bytes: to wait for others would be to wait for
        // oneself, should they come on the same channel.
        while state.ready() - state.hashed > MOST_BEHIND_BYTES
            && state.began
            && !state.ended
            && !self.context.running.cancel.is_cancelled()
        {
            let waited = self.changed.wait_timeout(state, CANCEL_CHECK);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// All has arrived: waits for the thread. The hashes of `length` bytes; none if there are not as many,
    /// or they could not be read, or the transfer was cancelled.
    pub(super) fn finish(&self, length: u64) -> Vec<(ChecksumAlgorithm, String)> {
        self.end();
        let mut state = lock(&self.state);
        while !state.ended && !self.context.running.cancel.is_cancelled() {
            let waited = self.changed.wait_timeout(state, CANCEL_CHECK);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        if !state.ended || state.hashed != length {
            return Vec::new();
        }
        std::mem::take(&mut state.sums)
    }

    /// Nothing more will arrive.
    pub(super) fn end(&self) {
        lock(&self.state).over = true;
        self.changed.notify_all();
    }

    /// Hashes what arrives until nothing more does; `None` if it cannot be read.
    fn hash(
        &self,
        algorithms: &[ChecksumAlgorithm],
        file: &OpenedFile,
    ) -> Option<Vec<(ChecksumAlgorithm, String)>> {
        let mut buffer = self
            .context
            .shared
            .buffers
            .take(&self.context.account.source, &self.context.running.cancel)
            .ok()?;
        lock(&self.state).began = true;
        let mut hashes: Vec<_> = algorithms
            .iter()
            .map(|&algorithm| (algorithm, Checksum::new(algorithm)))
            .collect();
        while let Some(ready) = self.next() {
            let wanted = usize::try_from(ready.end - ready.start)
                .map_or(buffer.len(), |length| length.min(buffer.len()));
            let read = rustix::io::retry_on_intr(|| {
                rustix::io::pread(file.as_fd(), &mut buffer[..wanted], ready.start)
            });
            let read = read.ok().filter(|&read| read > 0)?;
            for (_, hash) in &mut hashes {
                hash.update(&buffer[..read]);
            }
            lock(&self.state).hashed += read as u64;
            self.changed.notify_all();
        }
        let finished = hashes.into_iter();
        Some(
            finished
                .map(|(algorithm, hash)| (algorithm, hash.finish()))
                .collect(),
        )
    }

    /// Waits for bytes that can be hashed; `None` when there will be no more.
    fn next(&self) -> Option<Range<u64>> {
        let mut state = lock(&self.state);
        loop {
            if self.context.running.cancel.is_cancelled() {
                return None;
            }
            let ready = state.hashed..state.ready();
            if !ready.is_empty() {
                return Some(ready);
            }
            if state.over {
                return None;
            }
            let waited = self.changed.wait(state);
            state = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Tells those who wait, also when the thread has panicked.
struct Ended<'a>(&'a HashStage);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        lock(&self.0.state).ended = true;
        self.0.changed.notify_all();
    }
}
