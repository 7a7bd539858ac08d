//! The state of a transfer on several members.

use std::mem;
use std::sync::Arc;
use std::time::Duration;

use gridhaul_protocol::ranges::RangeSet;
use gridhaul_storage::StorageError;
use gridhaul_transfer::{CancelReason, Outcome, Progress, RunningTransfer, Survey, TransferError};
use rustix::io::Errno;

use super::super::member::Counted;
use super::super::meter::{Ticket, Way};
use super::super::port::Part;
use super::super::single::named;
use super::merge::{Concluded, merge_surveys};
use super::{LEAD, OTHER_FAILED};

/// The state of a transfer on several members.
#[derive(Default)]
pub(super) struct State {
    /// Empty before the transfer begins.
    members: Vec<MemberPart>,
    pub(super) cancelled: Option<CancelReason>,
    /// The first failure, which is the cause of later ones, and the member that it occurred on.
    failure: Option<(TransferError, Option<String>)>,
    is_finished: bool,
    /// The received ranges that the session does not know yet.
    unreported: RangeSet,
    /// The ranges that the members other than the lead have stored.
    stored: RangeSet,
    /// The lead has received its stripes, and waits for the others.
    pub(super) lead_waits: bool,
    /// The lead starts the others.
    has_lead: bool,
    /// The lead knows that bytes are lost, and removes the upload.
    lead_removes: bool,
}

/// The part of a member.
struct MemberPart {
    name: String,
    stripes: Vec<usize>,
    phase: Phase,
    ticket: Ticket,
    /// Until the member has ended.
    counted: Option<Counted>,
}

enum Phase {
    /// For the lead to open the file.
    Waiting,
    Running {
        /// Not known before the member has returned it.
        transfer: Option<Arc<dyn RunningTransfer>>,
        outcome: Option<Box<Outcome>>,
    },
    Ended(Ended),
}

/// What remains of the transfer of a member. Its [`RunningTransfer`] refers to the whole one, and must be dropped.
#[derive(Default)]
struct Ended {
    progress: Progress,
    survey: Survey,
    waited: Duration,
    /// `None` if it was never started.
    outcome: Option<Box<Outcome>>,
}

impl MemberPart {
    fn new(part: &Part, counted: Counted, way: Way) -> Self {
        let record = &part.attached.record;
        Self {
            name: record.name.clone(),
            stripes: part.stripes.clone(),
            phase: Phase::Waiting,
            ticket: record.meter.begin(way),
            counted: Some(counted),
        }
    }

    fn has_ended(&self) -> bool {
        matches!(self.phase, Phase::Ended(_))
    }

    fn transfer(&self) -> Option<&Arc<dyn RunningTransfer>> {
        match &self.phase {
            Phase::Running { transfer, .. } => transfer.as_ref(),
            Phase::Waiting | Phase::Ended(_) => None,
        }
    }

    /// Ends a part that was never started.
    fn give_up(&mut self) {
        if matches!(self.phase, Phase::Waiting) {
            self.phase = Phase::Ended(Ended::default());
            self.counted = None;
        }
    }

    fn progress(&self) -> Progress {
        match &self.phase {
            Phase::Running { transfer, .. } => transfer
                .as_ref()
                .map_or_else(Progress::default, |transfer| transfer.progress()),
            Phase::Ended(ended) => ended.progress.clone(),
            Phase::Waiting => Progress::default(),
        }
    }
}

impl State {
    /// Sets the members, of which the first one is the lead if they receive. False if the transfer has ended already.
    pub(super) fn set_parts(&mut self, parts: &[Part], counted: Vec<Counted>, way: Way) -> bool {
        if !self.is_finished {
            self.has_lead = way == Way::In;
            let parts = parts.iter().zip(counted);
            self.members = parts
                .map(|(part, counted)| MemberPart::new(part, counted, way))
                .collect();
        }
        !self.is_finished
    }

    pub(super) fn is_finished(&self) -> bool {
        self.is_finished
    }

    pub(super) fn has_begun(&self) -> bool {
        !self.members.is_empty()
    }

    /// False if the member must not start: the transfer has failed.
    pub(super) fn start(&mut self, index: usize) -> bool {
        let phase = &mut self.members[index].phase;
        let may_start = matches!(phase, Phase::Waiting);
        if may_start {
            *phase = Phase::Running {
                transfer: None,
                outcome: None,
            };
        }
        may_start
    }

    pub(super) fn set_transfer(&mut self, index: usize, started: &Arc<dyn RunningTransfer>) {
        let member = &mut self.members[index];
        if let Phase::Running { transfer, .. } = &mut member.phase {
            *transfer = Some(Arc::clone(started));
            member.ticket.attach(started);
        }
    }

    pub(super) fn set_outcome(&mut self, index: usize, ended: Box<Outcome>) {
        if let Phase::Running { outcome, .. } = &mut self.members[index].phase {
            *outcome = Some(ended);
        }
    }

    /// Records the first failure. One of the storage also replaces the loss of the client: a client that sees its data connection end
    /// closes the control connection before the error that ended it is known. And the loss of stored bytes replaces all others,
    /// because it decides whether the upload can be continued.
    pub(super) fn fail(&mut self, error: TransferError, node: Option<String>) {
        let is_lost = matches!(
            self.failure,
            Some((
                TransferError::Cancelled(CancelReason::ControlChannelLost),
                _
            ))
        );
        let are_bytes_lost = matches!(error, TransferError::Lost(_)) && !self.are_bytes_lost();
        if self.failure.is_none() || is_lost && is_cause(&error) || are_bytes_lost {
            self.failure = Some((error, node));
        }
        self.members.iter_mut().for_each(MemberPart::give_up);
    }

    /// The reason with which running members have to be cancelled, if the transfer has failed.
    pub(super) fn must_stop(&self) -> Option<CancelReason> {
        let has_failed = self.failure.is_some();
        has_failed.then(|| self.cancelled.unwrap_or(OTHER_FAILED))
    }

    /// A member has lost bytes that it had reported as received.
    fn are_bytes_lost(&self) -> bool {
        matches!(self.failure, Some((TransferError::Lost(_), _)))
    }

    /// The failure as the lead gets it.
    pub(super) fn failure_for_lead(&mut self) -> Option<TransferError> {
        self.lead_removes = self.are_bytes_lost();
        let (error, node) = self.failure.as_ref()?;
        Some(match (error, node) {
            (TransferError::Cancelled(reason), _) => TransferError::Cancelled(*reason),
            (TransferError::Lost(error), _) => TransferError::Lost(StorageError {
                call: error.call,
                errno: error.errno,
                rule: error.rule,
            }),
            (error, Some(node)) => {
                TransferError::Local(format!("the data node {node} failed: {error}"))
            }
            (error, None) => TransferError::Local(error.to_string()),
        })
    }

    pub(super) fn running(&self) -> Vec<Arc<dyn RunningTransfer>> {
        let members = self.members.iter();
        members
            .filter_map(|member| member.transfer().cloned())
            .collect()
    }

    /// Ends the part of a member if its transfer is known and has an outcome.
    pub(super) fn end(&mut self, index: usize) -> bool {
        let member = &mut self.members[index];
        let Phase::Running {
            transfer: Some(transfer),
            outcome: outcome @ Some(_),
        } = &mut member.phase
        else {
            return false;
        };
        let received = transfer.take_received();
        let mut outcome = outcome.take();
        let ended = Ended {
            progress: transfer.progress(),
            survey: transfer.survey(),
            waited: transfer.waited(),
            outcome: None,
        };
        let mut error = None;
        if let Some(outcome) = &mut outcome {
            member.ticket.end(outcome.bytes);
            error = mem::replace(&mut outcome.result, Ok(())).err();
        }
        member.phase = Phase::Ended(Ended { outcome, ..ended });
        member.counted = None;
        let name = member.name.clone();
        self.note_received(index, &received);
        if let Some(error) = error {
            self.fail(named(error, &name), Some(name));
        } else if self.has_lead && index == LEAD && !self.others_were_started() {
            let reason = format!("the data node {name} did not open the file for the others");
            self.fail(TransferError::Local(reason), Some(name));
        }
        true
    }

    fn others_were_started(&self) -> bool {
        let mut members = self.members.iter();
        !members.any(|member| matches!(member.phase, Phase::Waiting))
    }

    fn note_received(&mut self, index: usize, received: &RangeSet) {
        self.unreported.extend_from(received);
        if index != LEAD {
            self.stored.extend_from(received);
        }
    }

    /// Whether all members except the lead have ended.
    pub(super) fn others_have_ended(&self) -> bool {
        let mut others = self.members.iter().skip(LEAD + 1);
        others.all(MemberPart::has_ended)
    }

    pub(super) fn stored(&self) -> RangeSet {
        self.stored.clone()
    }

    /// What the outcome consists of, once, when all members have ended.
    pub(super) fn conclude(&mut self) -> Option<Concluded> {
        let is_over = !self.is_finished && self.members.iter().all(MemberPart::has_ended);
        is_over.then(|| self.take_concluded())
    }

    /// As [`Self::conclude`], for a transfer that has not begun.
    pub(super) fn give_up(&mut self) -> Option<Concluded> {
        (!self.is_finished && self.members.is_empty()).then(|| self.take_concluded())
    }

    fn take_concluded(&mut self) -> Concluded {
        self.is_finished = true;
        let stripes = self.stripes();
        let members = self.members.iter_mut().enumerate();
        let outcomes = members.filter_map(|(index, member)| {
            let Phase::Ended(ended) = &mut member.phase else {
                return None;
            };
            let outcome = ended.outcome.take()?;
            Some((member.name.clone(), index == LEAD, outcome))
        });
        let outcomes = outcomes.collect();
        Concluded {
            is_upload_wrong: self.are_bytes_lost() && !self.lead_removes,
            failure: self.failure.take(),
            stripes,
            outcomes,
        }
    }

    /// The stripes of all members, at least one.
    fn stripes(&self) -> usize {
        let members = self.members.iter();
        members
            .map(|member| member.stripes.len())
            .sum::<usize>()
            .max(1)
    }

    pub(super) fn progress(&self) -> Progress {
        let mut stripes = vec![0; self.stripes()];
        for member in &self.members {
            let moved = member.progress().stripes;
            for (&stripe, bytes) in member.stripes.iter().zip(moved) {
                if let Some(place) = stripes.get_mut(stripe) {
                    *place = bytes;
                }
            }
        }
        Progress { stripes }
    }

    pub(super) fn survey(&self) -> Survey {
        let surveys = self
            .members
            .iter()
            .filter_map(|member| match &member.phase {
                Phase::Running { transfer, .. } => Some(transfer.as_ref()?.survey()),
                Phase::Ended(ended) => Some(ended.survey.clone()),
                Phase::Waiting => None,
            });
        let names = self.members.iter().map(|member| member.name.as_str());
        merge_surveys(surveys, names)
    }

    /// No byte will move any more: every member that has not ended is settling, apart from a lead that waits for them.
    pub(super) fn is_settling(&self) -> bool {
        let members = self.members.iter().enumerate();
        let mut left = members
            .filter(|(index, member)| {
                let is_waiting_lead = *index == LEAD && self.lead_waits;
                !member.has_ended() && !is_waiting_lead
            })
            .peekable();
        left.peek().is_some()
            && left.all(|(_, member)| {
                let transfer = member.transfer();
                transfer.is_some_and(|transfer| transfer.is_settling())
            })
    }

    /// Members wait at the same time.
    pub(super) fn waited(&self) -> Duration {
        let waits = self.members.iter().map(|member| match &member.phase {
            Phase::Running { transfer, .. } => transfer
                .as_ref()
                .map_or(Duration::ZERO, |transfer| transfer.waited()),
            Phase::Ended(ended) => ended.waited,
            Phase::Waiting => Duration::ZERO,
        });
        waits.max().unwrap_or(Duration::ZERO)
    }

    pub(super) fn take_received(&mut self) -> RangeSet {
        for index in 0..self.members.len() {
            let transfer = self.members[index].transfer();
            if let Some(received) = transfer.map(|transfer| transfer.take_received()) {
                self.note_received(index, &received);
            }
        }
        mem::take(&mut self.unreported)
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
