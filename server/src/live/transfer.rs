//! A transfer in the table.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use gridhaul_stack::{Detail, DetailValue};
use gridhaul_transfer::{CancelReason, RunningTransfer, Survey};
use tokio::sync::SetOnce;

use super::session::SessionPart;
use crate::locks::lock;
use crate::status::{DetailStatus, TransferDirection, TransferState, TransferStatus, utc};
use crate::transfer_verb::TransferVerb;

/// The samples that the rate is computed from: those of the last seconds.
const SAMPLES: usize = 6;

/// A transfer younger than this has no rate: the first bytes fill buffers.
const LEAST: Duration = Duration::from_millis(200);

/// What a command orders.
#[derive(Debug)]
pub(crate) struct NewTransfer {
    pub(crate) verb: TransferVerb,
    pub(crate) direction: TransferDirection,
    pub(crate) path: String,
    pub(crate) stack: String,
    pub(crate) task_id: Option<String>,
}

/// What is known of a transfer.
pub(crate) struct TransferPart {
    pub(super) id: u64,
    session: Arc<SessionPart>,
    order: NewTransfer,
    started: SystemTime,
    begun: Instant,
    is_running: AtomicBool,
    handle: OnceLock<Arc<dyn RunningTransfer>>,
    /// The bytes at some moments of the last seconds.
    samples: Mutex<VecDeque<(Instant, u64)>>,
    /// What the metrics have counted; `None` once they count the finished transfer.
    counted: Mutex<Option<Vec<Detail>>>,
    /// Set when an administrator ends the transfer.
    ended: SetOnce<()>,
}

impl TransferPart {
    pub(super) fn new(id: u64, session: &Arc<SessionPart>, order: NewTransfer) -> Self {
        Self {
            id,
            session: Arc::clone(session),
            order,
            started: SystemTime::now(),
            begun: Instant::now(),
            is_running: AtomicBool::new(false),
            handle: OnceLock::new(),
            samples: Mutex::default(),
            counted: Mutex::new(Some(Vec::new())),
            ended: SetOnce::new(),
        }
    }

    /// The node has begun the transfer, or has put it into its queue.
    pub(crate) fn take(&self, handle: &Arc<dyn RunningTransfer>) {
        let _ = self.handle.set(Arc::clone(handle));
        if self.is_ended() {
            handle.cancel(CancelReason::Administrator);
        }
    }

    /// Files and channels are ready.
    pub(crate) fn start(&self) {
        self.is_running.store(true, Ordering::Relaxed);
    }

    /// The metrics count the finished transfer from now on. Returns what they have counted before.
    pub(crate) fn stop_counting(&self) -> Vec<Detail> {
        lock(&self.counted).take().unwrap_or_default()
    }

    /// Whether an administrator has ended the transfer.
    pub(crate) fn is_ended(&self) -> bool {
        self.ended.initialized()
    }

    /// Waits until an administrator ends the transfer.
    pub(crate) async fn ended(&self) {
        self.ended.wait().await;
    }
}

impl TransferPart {
    /// Ends the transfer, also one that waits.
    pub(super) fn end(&self) {
        let _ = self.ended.set(());
        if let Some(handle) = self.handle.get() {
            handle.cancel(CancelReason::Administrator);
        }
    }

    /// Notes the bytes of this moment, for the rate.
    pub(super) fn sample(&self, now: Instant) {
        let bytes = self.bytes();
        let mut samples = self.samples();
        if samples.len() >= SAMPLES {
            samples.pop_front();
        }
        samples.push_back((now, bytes));
    }

    pub(super) fn status(&self) -> TransferStatus {
        let now = Instant::now();
        let seconds = now.duration_since(self.begun);
        let progress = self.handle.get().map(|handle| handle.progress());
        let progress = progress.unwrap_or_default();
        let (bytes, stripes) = (progress.stripes.iter().sum(), progress.stripes.len());
        let rate = self.rate(now, bytes);
        let survey = self.handle.get().map(|handle| handle.survey());
        let survey = survey.unwrap_or_default();
        let left = survey.total_bytes.map(|total| total.saturating_sub(bytes));
        let told = self.session.told().clone();
        TransferStatus {
            id: self.id,
            session: self.session.id,
            user: told.user,
            identity: told.identity,
            peer: self.session.peer.to_string(),
            verb: self.order.verb.name().to_owned(),
            direction: self.order.direction,
            path: self.order.path.clone(),
            state: if self.is_running.load(Ordering::Relaxed) {
                TransferState::Running
            } else {
                TransferState::Waiting
            },
            started: utc(self.started),
            seconds: seconds.as_secs_f64(),
            bytes,
            total_bytes: survey.total_bytes,
            bytes_per_second: rate,
            remaining_seconds: left.filter(|_| rate >= 1.0).map(|left| float(left) / rate),
            channels: survey.channels,
            stripes,
            stack: self.order.stack.clone(),
            data_peers: survey.peers.iter().map(ToString::to_string).collect(),
            task_id: self.order.task_id.clone(),
            restarts: counted(&survey, "restored"),
            stalls: counted(&survey, "stalls"),
            details: survey.details.as_slice().iter().map(detail).collect(),
        }
    }

    /// The events that drivers have counted since the last call.
    pub(super) fn new_events(&self) -> Vec<Detail> {
        let Some(handle) = self.handle.get() else {
            return Vec::new();
        };
        let survey = handle.survey();
        let mut counted = lock(&self.counted);
        let counted = counted.as_mut();
        counted.map_or_else(Vec::new, |counted| {
            Detail::new_events(survey.details.as_slice(), counted)
        })
    }

    pub(super) fn direction(&self) -> TransferDirection {
        self.order.direction
    }

    /// The bytes moved so far.
    pub(super) fn bytes(&self) -> u64 {
        let handle = self.handle.get();
        handle.map_or(0, |handle| handle.progress().stripes.iter().sum())
    }

    /// Bytes per second since the oldest sample, or since the beginning.
    fn rate(&self, now: Instant, bytes: u64) -> f64 {
        let oldest = self.samples().front().copied();
        let (since, before) = oldest.unwrap_or((self.begun, 0));
        let span = now.duration_since(since);
        if span < LEAST {
            return 0.0;
        }
        float(bytes.saturating_sub(before)) / span.as_secs_f64()
    }

    fn samples(&self) -> std::sync::MutexGuard<'_, VecDeque<(Instant, u64)>> {
        // Any samples are usable.
        self.samples.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for TransferPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TransferPart")
            .field("id", &self.id)
            .field("order", &self.order)
            .finish_non_exhaustive()
    }
}

fn detail(detail: &Detail) -> DetailStatus {
    let value = match &detail.value {
        DetailValue::Text(text) => text.clone().into_owned(),
        DetailValue::Setting(number)
        | DetailValue::Holding(number)
        | DetailValue::Count(number)
        | DetailValue::Shared(number) => number.to_string(),
    };
    DetailStatus {
        name: detail.name.to_owned(),
        value,
    }
}

/// The sum of a count that drivers report.
fn counted(survey: &Survey, name: &str) -> u64 {
    let details = survey.details.as_slice().iter();
    let counts = details.filter(|detail| detail.name == name);
    counts
        .map(|detail| match detail.value {
            DetailValue::Count(count) | DetailValue::Shared(count) => count,
            _ => 0,
        })
        .sum()
}

/// Exact up to 8 PiB.
fn float(bytes: u64) -> f64 {
    bytes as f64
}
