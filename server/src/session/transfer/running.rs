//! A transfer under way: its events, its markers, and the commands that the client may send meanwhile.

use std::pin::pin;
use std::sync::Arc;
use std::time::SystemTime;

use gridhaul_protocol::command::Command;
use gridhaul_protocol::marker::{PerformanceMarker, RestartMarker};
use gridhaul_protocol::path::RemotePath;
use gridhaul_protocol::reply::Reply;
use gridhaul_stack::Detail;
use gridhaul_transfer::{CancelReason, Event, EventSink, Outcome, RunningTransfer};
use jiff::Timestamp;
use tokio::sync::mpsc::{self, UnboundedReceiver};

use super::order::Order;
use super::timers::{Due, Timers};
use crate::in_place::InPlace;
use crate::live::TransferEntry;
use crate::session::call::Call;
use crate::session::end::End;
use crate::session::replies;
use crate::shutdown::Phase;

/// A transfer that a node carries out.
pub(super) struct Running {
    handle: Arc<dyn RunningTransfer>,
    /// The transfer in the table for administrators.
    entry: TransferEntry,
    events: UnboundedReceiver<Event>,
    timers: Timers,
    started: SystemTime,
    /// The path of a file that the server named, for the first reply.
    new_file: Option<RemotePath>,
    /// 150 or 125 was sent.
    begun: bool,
    /// No command waited when the transfer began, so `NOOP` is answered at once.
    answers_noop: bool,
    /// Why the session has to end after the transfer.
    lost: Option<End>,
}

/// A transfer never outlives its session, however the session ends.
impl Drop for Running {
    fn drop(&mut self) {
        self.handle.cancel(CancelReason::ControlChannelLost);
    }
}

impl Running {
    /// From now on the metrics do not count what drivers report of the running transfer. Returns what they have counted.
    pub(super) fn stop_counting(&self) -> Vec<Detail> {
        self.entry.stop_counting()
    }

    pub(super) fn start(call: &Call<'_>, order: &Order, entry: TransferEntry) -> Self {
        let (sender, events) = mpsc::unbounded_channel();
        let plan = order.plan.clone();
        let node = &call.user.node;
        // Sending fails only when the session has ended.
        let sink: EventSink = Box::new(move |event| drop(sender.send(event)));
        let in_place = &call.context.shared.in_place;
        let place = match node.may_be_quick(&plan) {
            true => in_place.enter(),
            false => None,
        };
        let handle = match place {
            Some(_place) => {
                let handle = node.transfer_here(plan, sink);
                // A client that has sent further commands may have sent the file, too.
                if call.control.next().is_some() {
                    handle.resume_if_arrived();
                }
                handle
            }
            None => node.transfer(plan, sink),
        };
        entry.take(&handle);
        let limits = &call.context.config().limits;
        let stall = (limits.stall_timeout, limits.stall_bytes);
        Self {
            handle,
            entry,
            events,
            timers: Timers::new(call.negotiated.settings(), order.receives(), stall),
            started: SystemTime::now(),
            new_file: order.tells_name.then(|| order.path.clone()),
            begun: false,
            answers_noop: false,
            lost: None,
        }
    }

    pub(super) fn started(&self) -> SystemTime {
        self.started
    }

    pub(super) fn has_begun(&self) -> bool {
        self.begun
    }

    pub(super) fn is_lost(&self) -> bool {
        self.lost.is_some()
    }

    /// Why the session has to end, if the client was lost during the transfer.
    pub(super) fn take_lost(&mut self) -> Option<End> {
        self.lost.take()
    }

    /// Follows the transfer to its end, even if the client is gone. `None` if the node ended without an outcome.
    pub(super) async fn follow(&mut self, call: &mut Call<'_>) -> Option<Outcome> {
        // Earlier replies go with those to a file that was moved at once.
        if self.events.is_empty()
            && let Err(error) = call.control.flush().await
        {
            self.lose(error.into());
        }
        let mut cancelled = false;
        let mut expelled = pin!(call.context.live.ended());
        let mut is_expelled = false;
        loop {
            tokio::select! {
                biased;
                event = self.events.recv() => match event {
                    Some(Event::Finished(outcome)) => return Some(*outcome),
                    Some(event) => self.report(call, &event),
                    None => return None,
                },
                received = call.control.receive_ahead(), if call.control.may_read_ahead() && self.lost.is_none() => {
                    match received {
                        Ok(()) => self.listen_to_client(call),
                        Err(error) => self.lose(error.into()),
                    }
                }
                due = self.timers.due() => self.on_time(call, due),
                () = call.context.phase.reached(Phase::Cancelling), if !cancelled => {
                    cancelled = true;
                    self.handle.cancel(CancelReason::Shutdown);
                }
                () = &mut expelled, if !is_expelled => {
                    is_expelled = true;
                    self.handle.cancel(CancelReason::Administrator);
                }
            }
            // If the transfer has ended already, its reply goes with the others.
            if let Ok(event) = self.events.try_recv() {
                match event {
                    Event::Finished(outcome) => return Some(*outcome),
                    event => self.report(call, &event),
                }
            }
            if call.control.unsent_bytes() > 0
                && self.lost.is_none()
                && let Err(error) = call.control.flush().await
            {
                self.lose(error.into());
            }
            self.release_data(&call.context.shared.in_place);
        }
    }

    /// Resumes a transfer that was held until the client got the reply that lets it send.
    fn release_data(&self, in_place: &InPlace) {
        if self.handle.is_held() {
            match in_place.enter() {
                Some(_place) => self.handle.resume_here(),
                None => self.handle.resume_on_worker(),
            }
        }
    }

    fn report(&mut self, call: &mut Call<'_>, event: &Event) {
        match event {
            Event::Queued { ahead } => self.timers.queue(*ahead),
            Event::Started { reused } => {
                self.begun = true;
                self.entry.start();
                // Commands that came before 150 were pipelined, and are answered in order.
                self.answers_noop = call.control.next().is_none();
                self.timers.start();
                call.send(&begun(*reused, self.new_file.as_ref()));
                if self.timers.marks {
                    // The first markers are zero, even if bytes have moved already.
                    let stripes = self.handle.progress().stripes.len();
                    send_performance(call, &vec![0; stripes]);
                }
            }
            Event::Finished(_) => {}
        }
    }

    /// Answers the commands that are allowed during a transfer, unless another command waits before them.
    fn listen_to_client(&mut self, call: &mut Call<'_>) {
        if call.control.is_closed_by_client() {
            self.lose(End::ClosedByClient);
            return;
        }
        if call.control.abort_waits() {
            self.handle.cancel(CancelReason::Abort);
            return;
        }
        loop {
            let reply = match call.control.next() {
                Some(Command::Noop) if self.answers_noop => replies::noop(),
                Some(Command::Stat(None)) => self.status(),
                _ => return,
            };
            call.control.take();
            call.send(&reply);
        }
    }

    fn on_time(&mut self, call: &mut Call<'_>, due: Due) {
        match due {
            Due::Notice { ahead } => call.send(&replies::queued(ahead)),
            Due::Performance => send_performance(call, &self.handle.progress().stripes),
            Due::Restart => self.send_restart(call),
            Due::Stall => {
                let waited = self.handle.waited();
                if self.timers.is_stalled(self.bytes(), waited) && !self.handle.is_settling() {
                    self.handle.cancel(CancelReason::Stalled);
                }
            }
        }
    }

    /// The markers at the end of a transfer that has begun.
    pub(super) fn send_last_markers(&self, call: &mut Call<'_>, receives: bool) {
        if self.begun && self.timers.marks {
            send_performance(call, &self.handle.progress().stripes);
            if receives {
                self.send_restart(call);
            }
        }
    }

    /// A `111` with the ranges that arrived since the last one, if there are any.
    fn send_restart(&self, call: &mut Call<'_>) {
        for reply in RestartMarker(self.handle.take_received()).replies() {
            call.send(&reply);
        }
    }

    /// The client is gone: cancels the transfer.
    fn lose(&mut self, end: End) {
        self.handle.cancel(CancelReason::ControlChannelLost);
        self.lost = Some(end);
    }

    fn bytes(&self) -> u64 {
        self.handle.progress().stripes.iter().sum()
    }

    /// The answer to `STAT`.
    fn status(&self) -> Reply {
        let line = format!("A transfer is running: {} bytes so far.", self.bytes());
        Reply::spaced(212, "GridFTP server status.", [line], "End.")
    }
}

/// One `112` for each stripe.
fn send_performance(call: &mut Call<'_>, stripes: &[u64]) {
    for (index, bytes) in stripes.iter().enumerate() {
        let marker = PerformanceMarker {
            timestamp: Timestamp::now(),
            stripe_index: index,
            stripe_bytes: *bytes,
            stripe_count: stripes.len(),
        };
        call.send(&marker.reply());
    }
}

fn begun(reused: bool, new_file: Option<&RemotePath>) -> Reply {
    let code = if reused { 125 } else { 150 };
    match new_file {
        // RFC 1123 4.1.2.9: the form of both replies to STOU.
        Some(path) => Reply::new(code, [b"FILE: ", path.as_bytes()].concat()),
        None if reused => Reply::new(
            code,
            "Beginning transfer; reusing existing data connection.",
        ),
        None => Reply::new(code, "Beginning transfer."),
    }
}
