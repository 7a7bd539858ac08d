//! The state of a transfer, shared by its workers and its session.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use gridhaul_protocol::ranges::RangeSet;
use gridhaul_stack::{Cancel, Channel, ChannelError, Detail, Details, Movement, Operation, Watch};
use gridhaul_storage::ChecksumAlgorithm;
use rustix::io::Errno;

use crate::error::CancelReason;
use crate::error::{PeerError, TransferError};
use crate::ledger::Ledger;
use crate::node::{Event, EventSink, Outcome, Progress, Refusal, RunningTransfer, Survey};
use crate::sync::lock;

/// The shared state of one transfer.
pub(crate) struct Running {
    /// Cancels every blocking call of every worker.
    pub(crate) cancel: Cancel,
    /// Cancels waiting for further data connections.
    pub(crate) accepting: Cancel,
    /// The received ranges; empty when sending.
    pub(crate) ledger: Ledger,
    events: EventSink,
    started: AtomicBool,
    /// The first failure, which is the cause of later ones.
    failure: Mutex<Option<TransferError>>,
    /// The byte counters of the channels, by stripe.
    stripes: Vec<Mutex<Vec<Arc<AtomicU64>>>>,
    tally: Mutex<Tally>,
    /// All data has arrived and is being synced or hashed.
    settling: AtomicBool,
    /// The bytes that the transfer is to move, if they are known.
    total: OnceLock<u64>,
    waits: Mutex<Waits>,
}

/// The time in which the transfer has waited for bandwidth.
#[derive(Debug, Default)]
struct Waits {
    earlier: Duration,
    since: Option<Instant>,
}

/// Ends a wait for bandwidth.
pub(crate) struct Waiting<'a>(&'a Running);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut waits = lock(&self.0.waits);
        if let Some(since) = waits.since.take() {
            waits.earlier += since.elapsed();
        }
    }
}

/// Facts about the channels for the transfer log.
#[derive(Debug, Default)]
struct Tally {
    channels: usize,
    peers: Vec<IpAddr>,
    buffer_bytes: usize,
    block_bytes: usize,
    movement: Option<Movement>,
    /// Of the channels that are done.
    details: Details,
    in_use: Vec<InUse>,
    checksums: Vec<(ChecksumAlgorithm, String)>,
    refused: usize,
    last_refusal: Option<Refusal>,
}

/// A transfer's use of a channel.
pub(crate) struct ChannelUse {
    /// Bytes of the file moved over the channel.
    pub(crate) moved: Arc<AtomicU64>,
    /// The driver's details when the transfer began to use the channel.
    before: Arc<[Detail]>,
}

/// A channel that the transfer uses.
#[derive(Debug, Clone)]
struct InUse {
    /// As in [`ChannelUse`].
    before: Arc<[Detail]>,
    watch: Option<Arc<dyn Watch>>,
}

impl InUse {
    /// The driver's details now.
    fn details(&self) -> Vec<Detail> {
        let mut details = self.before.to_vec();
        let now = self.watch.iter().flat_map(|watch| watch.details());
        for detail in now {
            match details.iter_mut().find(|known| known.name == detail.name) {
                Some(known) => *known = detail,
                None => details.push(detail),
            }
        }
        details
    }
}

/// The maximum number of peer addresses in the log.
const MAX_PEERS: usize = 64;

impl Running {
    pub(crate) fn new(stripes: usize, events: EventSink) -> Arc<Self> {
        Arc::new(Self {
            cancel: Cancel::new(),
            accepting: Cancel::new(),
            ledger: Ledger::new(stripes),
            events,
            started: AtomicBool::new(false),
            failure: Mutex::default(),
            stripes: (0..stripes).map(|_| Mutex::default()).collect(),
            tally: Mutex::default(),
            settling: AtomicBool::new(false),
            total: OnceLock::new(),
            waits: Mutex::default(),
        })
    }

    /// A blocking call without a time limit: the session detects stalls.
    pub(crate) fn operation(&self) -> Operation<'_> {
        Operation {
            deadline: None,
            cancel: &self.cancel,
        }
    }

    pub(crate) fn report(&self, event: Event) {
        (self.events)(event);
    }

    /// Reports the start, once.
    pub(crate) fn report_start(&self, reused: bool) {
        if !self.started.swap(true, Ordering::AcqRel) {
            self.report(Event::Started { reused });
        }
    }

    pub(crate) fn has_started(&self) -> bool {
        self.started.load(Ordering::Acquire)
    }

    /// Ends the transfer with `error`, unless it has failed already. A client that sees its data connection end may close the
    /// control connection before the error of the storage that ended it is known: that error counts.
    pub(crate) fn fail(&self, error: TransferError) {
        let mut failure = lock(&self.failure);
        let is_lost = matches!(
            *failure,
            Some(TransferError::Cancelled(CancelReason::ControlChannelLost))
        );
        if failure.is_none() || is_lost && is_cause(&error) {
            *failure = Some(error);
        }
        drop(failure);
        self.cancel.cancel();
        self.accepting.cancel();
    }

    pub(crate) fn has_failed(&self) -> bool {
        lock(&self.failure).is_some()
    }

    /// Whether the transfer has failed because there is no room left for its file.
    pub(crate) fn has_no_room(&self) -> bool {
        lock(&self.failure)
            .as_ref()
            .is_some_and(TransferError::is_about_room)
    }

    /// Adds a channel to the transfer, so that [`RunningTransfer::progress`] includes its bytes.
    pub(crate) fn count_channel(&self, stripe: usize, channel: &dyn Channel) -> ChannelUse {
        let moved = Arc::new(AtomicU64::new(0));
        lock(&self.stripes[stripe]).push(moved.clone());
        let info = channel.info();
        let before: Arc<[Detail]> = info.details.into();
        let watch = channel.watch();
        let mut tally = lock(&self.tally);
        tally.channels += 1;
        tally.buffer_bytes = tally.buffer_bytes.max(info.buffer_bytes);
        tally.in_use.push(InUse {
            before: Arc::clone(&before),
            watch,
        });
        let peer = channel.peer().ip();
        if tally.peers.len() < MAX_PEERS && !tally.peers.contains(&peer) {
            tally.peers.push(peer);
        }
        ChannelUse { moved, before }
    }

    /// Whether a data channel was established.
    pub(crate) fn used_channels(&self) -> bool {
        lock(&self.tally).channels > 0
    }

    /// Records the size of the largest block for the transfer log. Called once per channel, not for every
    /// block.
    pub(crate) fn note_block(&self, bytes: u64) {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        let mut tally = lock(&self.tally);
        tally.block_bytes = tally.block_bytes.max(bytes);
    }

    /// Records for the log how a channel moved its bytes: the choice of the first channel that made one, and
    /// the details of all. Called when the channel is done or has failed.
    pub(crate) fn note_use(&self, used: &ChannelUse, channel: &dyn Channel) {
        let info = channel.info();
        let mut tally = lock(&self.tally);
        tally
            .in_use
            .retain(|one| !Arc::ptr_eq(&one.before, &used.before));
        tally.details.add(&info.details, &used.before);
        if let Some(movement) = info.movement {
            tally.movement.get_or_insert(movement);
        }
    }

    /// Marks the end of the data: from now on the transfer waits for the disk or for hashes.
    pub(crate) fn settle(&self) {
        self.settling.store(true, Ordering::Release);
    }

    /// Records how many bytes the transfer is to move.
    pub(crate) fn note_total(&self, bytes: u64) {
        let _ = self.total.set(bytes);
    }

    /// Begins a wait for bandwidth. One worker waits at a time.
    pub(crate) fn wait_for_bandwidth(&self) -> Waiting<'_> {
        lock(&self.waits).since = Some(Instant::now());
        Waiting(self)
    }

    /// Records the checksums of the received file.
    pub(crate) fn note_checksums(&self, checksums: Vec<(ChecksumAlgorithm, String)>) {
        lock(&self.tally).checksums = checksums;
    }

    /// Counts a connection from a host that may not open one.
    pub(crate) fn note_refused(&self) {
        lock(&self.tally).refused += 1;
    }

    /// Counts a connection whose handshake failed, and records the error.
    pub(crate) fn note_failed_handshake(&self, peer: SocketAddr, error: &ChannelError) {
        let reason = error.to_string();
        let mut tally = lock(&self.tally);
        tally.refused += 1;
        tally.last_refusal = Some(Refusal { peer, reason });
    }

    /// Reports the end of the transfer. Called once.
    pub(crate) fn finish(&self) {
        let progress = self.progress();
        let failure = lock(&self.failure).take();
        let mut tally = lock(&self.tally);
        tally.details.add(self.bandwidth_wait().as_slice(), &[]);
        let outcome = Outcome {
            result: failure.map_or(Ok(()), Err),
            bytes: progress.stripes.iter().sum(),
            channels: tally.channels,
            stripes: self.stripes.len(),
            peers: std::mem::take(&mut tally.peers),
            buffer_bytes: tally.buffer_bytes,
            block_bytes: tally.block_bytes,
            movement: tally.movement.take(),
            details: std::mem::take(&mut tally.details),
            checksums: std::mem::take(&mut tally.checksums),
            refused: tally.refused,
            last_refusal: tally.last_refusal.take(),
            nodes: Vec::new(),
        };
        drop(tally);
        self.report(Event::Finished(Box::new(outcome)));
    }

    /// The time in which the transfer has waited for bandwidth, if it has.
    fn bandwidth_wait(&self) -> Option<Detail> {
        let micros = u64::try_from(self.waited().as_micros()).unwrap_or(u64::MAX);
        (micros > 0).then(|| Detail::count("bandwidth-wait-us", micros))
    }

    /// The error for the EOF or EODs that a stripe still misses.
    pub(crate) fn missing_ends(&self, stripe: usize, waited: Duration) -> PeerError {
        match self.ledger.end_of_data_count(stripe) {
            (Some(announced), seen) => PeerError::MissingEods {
                announced,
                seen,
                waited,
            },
            (None, seen) => PeerError::MissingEof { seen },
        }
    }
}

/// Whether this is an error of the storage that no cancellation causes.
fn is_cause(error: &TransferError) -> bool {
    match error {
        TransferError::Open { error, .. } | TransferError::Storage(error) => {
            !matches!(error.errno, Errno::INTR | Errno::CANCELED)
        }
        _ => false,
    }
}

impl RunningTransfer for Running {
    fn cancel(&self, reason: CancelReason) {
        self.fail(TransferError::Cancelled(reason));
    }

    fn progress(&self) -> Progress {
        let sum = |counters: &Mutex<Vec<Arc<AtomicU64>>>| {
            lock(counters)
                .iter()
                .map(|counter| counter.load(Ordering::Acquire))
                .sum()
        };
        Progress {
            stripes: self.stripes.iter().map(sum).collect(),
        }
    }

    fn channels(&self) -> Vec<u64> {
        let mut bytes = Vec::new();
        for counters in &self.stripes {
            let counters = lock(counters);
            bytes.extend(counters.iter().map(|one| one.load(Ordering::Acquire)));
        }
        bytes
    }

    fn survey(&self) -> Survey {
        let tally = lock(&self.tally);
        let in_use = tally.in_use.clone();
        let mut survey = Survey {
            total_bytes: self.total.get().copied(),
            channels: tally.channels,
            peers: tally.peers.clone(),
            details: tally.details.clone(),
        };
        // Without the lock, which workers need: drivers may ask the kernel.
        drop(tally);
        for channel in &in_use {
            survey.details.add(&channel.details(), &channel.before);
        }
        survey.details.add(self.bandwidth_wait().as_slice(), &[]);
        survey
    }

    fn is_settling(&self) -> bool {
        self.settling.load(Ordering::Acquire)
    }

    fn waited(&self) -> Duration {
        let waits = lock(&self.waits);
        waits.earlier + waits.since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    fn take_received(&self) -> RangeSet {
        self.ledger.take_unreported()
    }
}

impl fmt::Debug for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Running")
            .field("progress", &self.progress())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use gridhaul_storage::StorageError;

    use super::*;

    /// The error of a transfer that fails with these, one after the other.
    fn failed_with(errors: Vec<TransferError>) -> TransferError {
        let (sender, events) = mpsc::channel();
        let running = Running::new(1, Box::new(move |event| drop(sender.send(event))));
        for error in errors {
            running.fail(error);
        }
        running.finish();
        let Ok(Event::Finished(outcome)) = events.recv() else {
            panic!("no outcome");
        };
        outcome.result.expect_err("it has failed")
    }

    #[test]
    fn the_error_of_the_storage_counts_and_not_what_the_client_does_about_it() {
        let lost = || TransferError::Cancelled(CancelReason::ControlChannelLost);
        let full = || TransferError::Storage(StorageError::new("write", Errno::NOSPC));
        let interrupted = || TransferError::Storage(StorageError::new("write", Errno::INTR));
        let abort = || TransferError::Cancelled(CancelReason::Abort);
        for (errors, expected) in [
            (vec![lost(), full()], full()),
            (vec![full(), lost()], full()),
            (vec![lost(), interrupted()], lost()),
            (vec![lost(), abort()], lost()),
            (vec![abort(), full()], abort()),
        ] {
            assert_eq!(failed_with(errors).to_string(), expected.to_string());
        }
    }
}
