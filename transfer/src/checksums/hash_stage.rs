//! Hashes of a file while it arrives.
//!
//! MD5 and the SHA family need the bytes in order, and are slower than a network. They run on a separate
//! thread, which reads back the bytes before the first hole. It is never far behind, so these are still in the page
//! cache. Workers that are too far ahead wait for it.

use std::ops::Range;
use std::os::fd::AsFd as _;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use gridhaul_protocol::ranges::RangeSet;
use gridhaul_storage::{Checksum, ChecksumAlgorithm, OpenedFile};

use crate::context::Context;
use crate::error::TransferError;
use crate::sync::{ignore_poison, lock};

/// How far workers may be ahead of the hashes. After the last byte the client waits until at most this much is hashed.
const MOST_BEHIND_BYTES: u64 = 256 * 1024 * 1024;

/// How often a waiting worker checks for cancellation.
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
    has_buffer: bool,
    /// All data has arrived, or the transfer has failed.
    is_complete: bool,
    /// The thread has ended; its results are in `sums`, unless it failed.
    has_ended: bool,
    sums: Vec<(ChecksumAlgorithm, String)>,
}

impl State {
    /// The offset of the first hole.
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
        let hashing = stage.clone();
        context.resources.threads.run(move || {
            let ended = Ended(&hashing);
            let sums = hashing.hash(&algorithms, &file);
            lock(&ended.0.state).sums = sums.unwrap_or_default();
        })?;
        Ok(stage)
    }

    /// Records bytes that were written to the file. Waits while the hashes are too far behind.
    pub(super) fn arrived(&self, bytes: Range<u64>) {
        let mut state = lock(&self.state);
        state.arrived.insert(bytes);
        self.changed.notify_all();
        // Counts only bytes before the first hole: the bytes that fill the hole may come on the caller's
        // own channel, so waiting for them would be a deadlock.
        while state.ready() - state.hashed > MOST_BEHIND_BYTES
            && state.has_buffer
            && !state.has_ended
            && !self.context.running.cancel.is_cancelled()
        {
            let waited = self.changed.wait_timeout(state, CANCEL_CHECK);
            (state, _) = ignore_poison(waited);
        }
    }

    /// Waits for the thread after all data has arrived, and returns the hashes of `length` bytes. There are none if
    /// fewer bytes arrived, or they could not be read, or the transfer was cancelled.
    pub(super) fn finish(&self, length: u64) -> Vec<(ChecksumAlgorithm, String)> {
        self.end();
        let mut state = lock(&self.state);
        while !state.has_ended && !self.context.running.cancel.is_cancelled() {
            let waited = self.changed.wait_timeout(state, CANCEL_CHECK);
            (state, _) = ignore_poison(waited);
        }
        if !state.has_ended || state.hashed != length {
            return Vec::new();
        }
        std::mem::take(&mut state.sums)
    }

    /// Marks the end of the data.
    pub(super) fn end(&self) {
        lock(&self.state).is_complete = true;
        self.changed.notify_all();
    }

    /// Hashes the data while it arrives, up to its end; `None` if it cannot be read.
    fn hash(
        &self,
        algorithms: &[ChecksumAlgorithm],
        file: &OpenedFile,
    ) -> Option<Vec<(ChecksumAlgorithm, String)>> {
        let mut buffer = self.context.buffer().ok()?;
        lock(&self.state).has_buffer = true;
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

    /// Waits for bytes that can be hashed; `None` at the end.
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
            if state.is_complete {
                return None;
            }
            state = ignore_poison(self.changed.wait(state));
        }
    }
}

/// Marks the thread as ended when it is dropped, also after a panic.
struct Ended<'a>(&'a HashStage);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        lock(&self.0.state).has_ended = true;
        self.0.changed.notify_all();
    }
}
