//! A transfer on several members, or on members that the session is not attached to yet.
//!
//! A file is sent by all members at once, each its stripes. A file is received by a *lead*, which opens it, and by the others
//! from then on; the lead completes it after they have ended. A listing is sent by the lead. If a member fails the others are cancelled. The transfer ends when all
//! have ended, and every one has recorded what it has stored.

mod append;
mod companions;
mod merge;
mod state;

use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;
use std::{iter, thread};

use gridhaul_protocol::ranges::RangeSet;
use gridhaul_storage::Storage;
use gridhaul_transfer::{
    CancelReason, Event, EventSink, LineIterator, LineSource, NodeSession, Outcome, Plan, Progress,
    Role, RunningTransfer, Share, Survey, Task, TransferError,
};

use self::companions::Others;
use self::merge::{Concluded, merge};
use self::state::State;
use super::member::Counted;
use super::meter::Way;
use super::port::Part;
use crate::sync::lock;

/// The place of the lead among the members of a transfer.
const LEAD: usize = 0;

/// The reason for which members are cancelled when another one has failed. Nothing shows it: the failure does.
const OTHER_FAILED: CancelReason = CancelReason::Abort;

/// A transfer on several members.
pub(super) struct Joint {
    state: Mutex<State>,
    /// A member has ended, or the transfer has failed.
    changed: Condvar,
    reports: Mutex<Reports>,
    /// The path of an upload that is not complete, and the session of the lead.
    upload: Mutex<Option<(Arc<dyn NodeSession>, PathBuf)>>,
}

/// Called with whether the transfer succeeded, before its end is reported.
pub(super) type AtEnd = Box<dyn FnOnce(bool) + Send>;

/// What was reported to the session.
struct Reports {
    /// `None` after the end.
    sink: Option<(EventSink, AtEnd)>,
    has_started: bool,
    /// The largest number of transfers ahead that was reported.
    ahead: Option<usize>,
}

impl Joint {
    /// A transfer that waits for [`Self::begin`].
    pub(super) fn new(events: EventSink, at_end: AtEnd) -> Arc<Self> {
        let reports = Reports {
            sink: Some((events, at_end)),
            has_started: false,
            ahead: None,
        };
        Arc::new(Self {
            state: Mutex::default(),
            changed: Condvar::new(),
            reports: Mutex::new(reports),
            upload: Mutex::default(),
        })
    }

    /// Starts the transfer on these members; the first one is the lead.
    pub(super) fn begin(self: &Arc<Self>, parts: Vec<(Part, Counted)>, plan: &Plan) {
        let way = Way::of(plan);
        let (parts, counted): (Vec<_>, Vec<_>) = parts.into_iter().unzip();
        if !lock(&self.state).set_parts(&parts, counted, way) {
            return;
        }
        let total = parts.iter().map(|part| part.stripes.len()).sum();
        if let [only] = parts.as_slice() {
            self.start(LEAD, &*only.attached.session, plan.clone());
        } else if way == Way::In {
            let others = Others::new(self, &parts, plan.clone());
            let role = Role::Lead(Arc::new(others));
            let plan = shared(plan, &parts[LEAD], total, role);
            self.start(LEAD, &*parts[LEAD].attached.session, plan);
        } else if let Task::SendLines(_) = &plan.task {
            // GFD.20 3.4: every stripe has its own EOF with the number of its EODs, so the others send these and no lines.
            for (index, part) in parts.iter().enumerate() {
                let plan = match index {
                    LEAD => plan.clone(),
                    _ => without_lines(plan),
                };
                self.start(index, &*part.attached.session, plan);
            }
        } else {
            for (index, part) in parts.iter().enumerate() {
                let plan = shared(plan, part, total, Role::Member);
                self.start(index, &*part.attached.session, plan);
            }
        }
    }

    /// Ends a transfer that has not begun.
    pub(super) fn fail(&self, error: TransferError) {
        let outcome = {
            let mut state = lock(&self.state);
            state.fail(error, None);
            state.give_up().map(merge)
        };
        self.report_end(outcome);
    }

    /// Starts the transfer of a member, unless the whole one has failed.
    fn start(self: &Arc<Self>, index: usize, session: &dyn NodeSession, plan: Plan) {
        if !lock(&self.state).start(index) {
            return;
        }
        let joint = Arc::clone(self);
        let sink: EventSink = Box::new(move |event| joint.on_event(index, event));
        let transfer = session.transfer(plan, sink);
        let reason = {
            let mut state = lock(&self.state);
            state.set_transfer(index, &transfer);
            state.must_stop()
        };
        if let Some(reason) = reason {
            transfer.cancel(reason);
        }
        self.end_if_done(index);
    }

    fn on_event(self: &Arc<Self>, index: usize, event: Event) {
        match event {
            Event::Queued { ahead } => self.report_queue(ahead),
            Event::Started { reused } => self.report_start(reused),
            Event::Finished(outcome) => {
                lock(&self.state).set_outcome(index, outcome);
                self.end_if_done(index);
            }
        }
    }

    /// Ends the part of a member whose transfer is known and has ended.
    fn end_if_done(self: &Arc<Self>, index: usize) {
        let (concluded, others) = {
            let mut state = lock(&self.state);
            if !state.end(index) {
                return;
            }
            let others = state.must_stop().map(|reason| (reason, state.running()));
            (state.conclude(), others)
        };
        self.changed.notify_all();
        if let Some((reason, others)) = others {
            others.iter().for_each(|other| other.cancel(reason));
        }
        if let Some(concluded) = concluded {
            self.conclude(concluded);
        }
    }

    /// Removes an upload that a restart must not continue, on a thread because the storage may block this one's caller.
    fn conclude(self: &Arc<Self>, concluded: Concluded) {
        let upload = lock(&self.upload).take();
        let wrong = upload.filter(|_| concluded.is_upload_wrong);
        let outcome = Some(merge(concluded));
        let Some((session, path)) = wrong else {
            self.report_end(outcome);
            return;
        };
        let joint = Arc::clone(self);
        let remove = move || {
            if let Err(error) = session.storage().remove_file(&path) {
                tracing::warn!(path = %path.display(), %error, "an upload with lost bytes cannot be removed");
            }
            joint.report_end(outcome);
        };
        let thread = thread::Builder::new().name("cluster".to_owned());
        if let Err(error) = thread.spawn(remove) {
            tracing::warn!(%error, "an upload with lost bytes cannot be removed");
            let reason = format!("cannot start a thread: {error}");
            let error = TransferError::Local(reason);
            self.report_end(Some(merge(Concluded::failed(error))));
        }
    }

    fn report_queue(&self, ahead: usize) {
        let mut reports = lock(&self.reports);
        if !reports.has_started && reports.ahead.is_none_or(|known| known < ahead) {
            reports.ahead = Some(ahead);
            if let Some((sink, _)) = &reports.sink {
                sink(Event::Queued { ahead });
            }
        }
    }

    /// GFD.20 3.4: a transfer has started when its first data channel is there.
    fn report_start(&self, reused: bool) {
        let mut reports = lock(&self.reports);
        if !std::mem::replace(&mut reports.has_started, true)
            && let Some((sink, _)) = &reports.sink
        {
            sink(Event::Started { reused });
        }
    }

    fn report_end(&self, outcome: Option<Outcome>) {
        let Some(outcome) = outcome else {
            return;
        };
        if let Some((sink, at_end)) = lock(&self.reports).sink.take() {
            at_end(outcome.result.is_ok());
            sink(Event::Finished(Box::new(outcome)));
        }
    }
}

/// The same listing without a line.
fn without_lines(plan: &Plan) -> Plan {
    let none = |_: &dyn Storage| Ok(Box::new(iter::empty()) as LineIterator);
    Plan {
        task: Task::SendLines(LineSource {
            open: Arc::new(none),
        }),
        ..plan.clone()
    }
}

/// The plan of a member.
fn shared(plan: &Plan, part: &Part, total: usize, role: Role) -> Plan {
    let share = Share {
        stripes: part.stripes.clone(),
        total,
        role,
    };
    Plan {
        share: Some(share),
        ..plan.clone()
    }
}

impl RunningTransfer for Joint {
    fn cancel(&self, reason: CancelReason) {
        let (outcome, running) = {
            let mut state = lock(&self.state);
            if state.is_finished() {
                return;
            }
            state.fail(TransferError::Cancelled(reason), None);
            state.cancelled.get_or_insert(reason);
            let running = state.running();
            let outcome = if state.has_begun() {
                state.conclude().map(merge)
            } else {
                state.give_up().map(merge)
            };
            (outcome, running)
        };
        self.changed.notify_all();
        running.iter().for_each(|transfer| transfer.cancel(reason));
        self.report_end(outcome);
    }

    fn progress(&self) -> Progress {
        lock(&self.state).progress()
    }

    fn survey(&self) -> Survey {
        lock(&self.state).survey()
    }

    fn is_settling(&self) -> bool {
        lock(&self.state).is_settling()
    }

    fn waited(&self) -> Duration {
        lock(&self.state).waited()
    }

    fn take_received(&self) -> RangeSet {
        lock(&self.state).take_received()
    }
}

impl fmt::Debug for Joint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Joint")
            .field("progress", &self.progress())
            .finish_non_exhaustive()
    }
}
