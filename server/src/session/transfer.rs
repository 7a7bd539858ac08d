//! One transfer: what the client is told of it, and what it may say while it runs.

use std::sync::Arc;
use std::time::SystemTime;

use gridhaul_protocol::command::Command;
use gridhaul_protocol::marker::{PerformanceMarker, RestartMarker};
use gridhaul_protocol::negotiated::TransferEnd;
use gridhaul_protocol::path::RemotePath;
use gridhaul_protocol::reply::Reply;
use gridhaul_shares::{Allocation, Grant};
use gridhaul_storage::{ChecksumAlgorithm, StorageError};
use gridhaul_transfer::{
    CancelReason, ChecksumRequest, Event, EventSink, LOOK_AHEAD_FILES, Outcome, RunningTransfer,
    SequenceError, TransferError,
};
use jiff::Timestamp;
use tokio::sync::mpsc::{self, UnboundedReceiver};

use super::control::Control;
use super::dispatch::noop;
use super::order::{Motion, Order};
use super::watch::{Due, Watch};
use super::{End, LastChannels, Session, User, replies};
use crate::shutdown::Phase;
use crate::telemetry;
use crate::transfer_verb::TransferVerb;

/// A transfer that a node works at.
struct Running {
    handle: Arc<dyn RunningTransfer>,
    events: UnboundedReceiver<Event>,
    watch: Watch,
    started: SystemTime,
    /// The file, where the client must be told its name.
    new_file: Option<RemotePath>,
    /// 150 or 125 was sent.
    begun: bool,
    /// Nothing waited when the transfer began, so that a `NOOP` that comes is one to be answered at once.
    hears_noop: bool,
    /// Why the session has to end when the transfer has.
    lost: Option<End>,
}

/// A transfer never outlives its session, however the session ends.
impl Drop for Running {
    fn drop(&mut self) {
        self.handle.cancel(CancelReason::ControlChannelLost);
    }
}

impl Session {
    /// Carries out a command that moves data, sends all its replies but the last, and returns that.
    pub(super) async fn move_data(
        &mut self,
        control: &mut Control,
        user: &User,
        verb: TransferVerb,
        motion: Motion<'_>,
    ) -> Result<Reply, End> {
        let terms = match self.negotiated.begin(motion.direction()) {
            Ok(terms) => terms,
            Err(refusal) => return Ok(refusal.reply()),
        };
        if let Err(refusal) = motion.check(&terms) {
            return Ok(refusal.reply());
        }
        let delayed = terms.delayed;
        let order = match self.order(user, verb, &motion, terms) {
            Ok(order) => order,
            Err(error) => return Ok(replies::storage_error(&error)),
        };
        if let Some(request) = delayed {
            // The client waits for this address before it does anything else.
            match self
                .listen(user, request, self.negotiated.may_stripe(request))
                .await
            {
                Ok(address) => self.send(control, &address.delayed_reply()),
                Err(reply) => return Ok(reply),
            }
        }
        control.flush().await?;
        self.transfer(control, user, &order).await
    }

    async fn transfer(
        &mut self,
        control: &mut Control,
        user: &User,
        order: &Order,
    ) -> Result<Reply, End> {
        let Some(permit) = self.turn(control, user).await? else {
            return Ok(Reply::new(426, "Aborted before it began."));
        };
        if user.node.looks_ahead() {
            let paths = Motion::upcoming(control.waiting()).take(LOOK_AHEAD_FILES);
            let paths = paths.filter_map(|path| user.path(Some(path)).ok());
            let paths = paths.map(|path| path.as_path().to_owned()).collect();
            user.node.look_ahead(paths);
        }
        let mut running = self.start(user, order);
        let finished = self.follow(control, &mut running).await;
        let outcome = finished.as_ref();
        drop(permit);
        let end = match outcome.map(|outcome| &outcome.result) {
            Some(Ok(())) => TransferEnd::Complete,
            Some(Err(
                TransferError::Open { .. }
                | TransferError::Sequence(SequenceError::RestartPastEnd { .. }),
            )) if !running.begun => TransferEnd::NotStarted,
            _ => TransferEnd::Broken,
        };
        user.settle(self.negotiated.finish(end));
        let concluded = self.conclude(control, user, order, &running, outcome).await;
        let told = match &concluded {
            Ok((reply, error)) => (reply.code(), error.clone()),
            Err(end) => (426, Some(end.to_string())),
        };
        self.publish(user, order, &running, outcome, told);
        self.last_channels = finished.map_or_else(LastChannels::default, LastChannels::of);
        let (reply, _) = concluded?;
        running.lost.take().map_or(Ok(reply), Err)
    }

    /// Waits until there are few enough transfers; `None` if the client says ABOR before.
    async fn turn(&mut self, control: &mut Control, user: &User) -> Result<Option<Grant>, End> {
        let mut permit = match self.shared.transfers.enter(&user.source) {
            Allocation::Granted(permit) => return Ok(Some(permit)),
            Allocation::Queued(waiting) => waiting,
        };
        let notice = tokio::time::sleep(super::watch::NOTICE_AFTER);
        tokio::pin!(notice);
        let mut noticed = false;
        loop {
            tokio::select! {
                permit = &mut permit => return Ok(Some(permit)),
                () = &mut notice, if !noticed => {
                    noticed = true;
                    self.send(control, &queued(permit.ahead()));
                    control.flush().await?;
                }
                received = control.receive(), if control.has_room() => {
                    received?;
                    if control.is_closed_by_client() {
                        return Err(End::ClosedByClient);
                    }
                    if control.abort_waits() {
                        return Ok(None);
                    }
                }
                () = self.phase.reached(Phase::Draining) => return Err(End::Shutdown),
            }
        }
    }

    fn start(&self, user: &User, order: &Order) -> Running {
        let (sender, events) = mpsc::unbounded_channel();
        let plan = order.plan.clone();
        // Sending fails only when the session has ended.
        let sink: EventSink = Box::new(move |event| drop(sender.send(event)));
        let handle = if user.node.may_be_quick(&plan)
            && let Some(_place) = self.shared.in_place.enter()
        {
            user.node.transfer_here(plan, sink)
        } else {
            user.node.transfer(plan, sink)
        };
        let limits = &self.settings.config.limits;
        let stall = (limits.stall_timeout, limits.stall_bytes);
        Running {
            handle,
            events,
            watch: Watch::new(self.negotiated.settings(), order.receives(), stall),
            started: SystemTime::now(),
            new_file: order.tells_name.then(|| order.path.clone()),
            begun: false,
            hears_noop: false,
            lost: None,
        }
    }

    /// Follows a transfer to its end, whatever happens to the client.
    async fn follow(&mut self, control: &mut Control, running: &mut Running) -> Option<Outcome> {
        let mut cancelled = false;
        loop {
            tokio::select! {
                biased;
                event = running.events.recv() => match event {
                    Some(Event::Finished(outcome)) => return Some(*outcome),
                    Some(event) => self.tell(control, running, &event),
                    None => return None,
                },
                received = control.receive(), if control.has_room() && running.lost.is_none() => {
                    match received {
                        Ok(()) => self.listen_to_client(control, running),
                        Err(error) => running.lose(error.into()),
                    }
                }
                due = running.watch.due() => self.on_time(control, running, due),
                () = self.phase.reached(Phase::Cancelling), if !cancelled => {
                    cancelled = true;
                    running.handle.cancel(CancelReason::Shutdown);
                }
            }
            // The end may be there already: then its reply goes with the others.
            if let Ok(event) = running.events.try_recv() {
                match event {
                    Event::Finished(outcome) => return Some(*outcome),
                    event => self.tell(control, running, &event),
                }
            }
            if control.unsent_bytes() > 0
                && running.lost.is_none()
                && let Err(error) = control.flush().await
            {
                running.lose(error.into());
            }
            // The client has heard that it may send.
            if running.handle.is_held() {
                match self.shared.in_place.enter() {
                    Some(_place) => running.handle.resume_here(),
                    None => running.handle.resume_on_worker(),
                }
            }
        }
    }

    fn tell(&self, control: &mut Control, running: &mut Running, event: &Event) {
        match event {
            Event::Queued { ahead } => running.watch.queue(*ahead),
            Event::Started { reused } => {
                running.begun = true;
                // What was sent before 150 was pipelined, and its reply comes in the order of the others.
                running.hears_noop = control.next().is_none();
                running.watch.start();
                self.send(control, &begun(*reused, running.new_file.as_ref()));
                if running.watch.marks {
                    // The first markers are zero, even if bytes were quicker.
                    let stripes = running.handle.progress().stripes.len();
                    self.send_performance(control, &vec![0; stripes]);
                }
            }
            Event::Finished(_) => {}
        }
    }

    /// Answers at once what may be asked in the middle of a transfer, if nothing else waits before it.
    fn listen_to_client(&self, control: &mut Control, running: &mut Running) {
        if control.is_closed_by_client() {
            running.lose(End::ClosedByClient);
            return;
        }
        if control.abort_waits() {
            running.handle.cancel(CancelReason::Abort);
            return;
        }
        loop {
            let reply = match control.next() {
                Some(Command::Noop) if running.hears_noop => noop(),
                Some(Command::Stat(None)) => progress(running),
                _ => return,
            };
            control.take();
            self.send(control, &reply);
        }
    }

    fn on_time(&self, control: &mut Control, running: &mut Running, due: Due) {
        match due {
            Due::Notice { ahead } => self.send(control, &queued(ahead)),
            Due::Performance => self.send_performance(control, &running.handle.progress().stripes),
            Due::Restart => self.send_restart(control, running),
            Due::Stall => {
                if running.watch.is_stalled(running.bytes()) && !running.handle.is_settling() {
                    running.handle.cancel(CancelReason::Stalled);
                }
            }
        }
    }

    /// One `112` for each stripe.
    fn send_performance(&self, control: &mut Control, stripes: &[u64]) {
        for (index, bytes) in stripes.iter().enumerate() {
            let marker = PerformanceMarker {
                timestamp: Timestamp::now(),
                stripe_index: index,
                stripe_bytes: *bytes,
                stripe_count: stripes.len(),
            };
            self.send(control, &marker.reply());
        }
    }

    /// A `111` with what is new, if anything is.
    fn send_restart(&self, control: &mut Control, running: &Running) {
        for reply in RestartMarker(running.handle.take_received()).replies() {
            self.send(control, &reply);
        }
    }

    /// The last replies but one, and the last one; and what the log tells of a failure.
    async fn conclude(
        &mut self,
        control: &mut Control,
        user: &User,
        order: &Order,
        running: &Running,
        outcome: Option<&Outcome>,
    ) -> Result<(Reply, Option<String>), End> {
        if running.begun && running.watch.marks {
            self.send_performance(control, &running.handle.progress().stripes);
            if order.receives() {
                self.send_restart(control, running);
            }
        }
        match outcome.map(|outcome| (&outcome.result, &outcome.checksums)) {
            Some((Ok(()), arrived)) if running.lost.is_none() => {
                self.accept(control, user, order, arrived).await
            }
            Some((Ok(()), _)) => Ok((complete(), None)),
            Some((Err(error), _)) => {
                let reply = if order.lists() {
                    replies::listing_error(error)
                } else {
                    replies::transfer_error(error)
                };
                Ok((reply, Some(error.to_string())))
            }
            None => {
                let error = "the data node is gone";
                Ok((
                    Reply::new(451, format!("Command failed. : {error}.")),
                    Some(error.to_owned()),
                ))
            }
        }
    }

    /// The end of a transfer that moved everything: a stored file may have to prove itself, and gets
    /// the time that the client named.
    async fn accept(
        &mut self,
        control: &mut Control,
        user: &User,
        order: &Order,
        arrived: &[(ChecksumAlgorithm, String)],
    ) -> Result<(Reply, Option<String>), End> {
        if !order.receives() {
            return Ok((complete(), None));
        }
        for (algorithm, expected) in &order.demands.checksums {
            let computed = match arrived.iter().find(|(known, _)| known == algorithm) {
                Some((_, computed)) => Ok(computed.clone()),
                None => self.compute_whole(control, user, order, *algorithm).await?,
            };
            match computed {
                Ok(computed) if computed == expected.as_str() => {}
                Ok(computed) => {
                    let reply = replies::wrong_checksum(&computed, expected.as_str());
                    return Ok((
                        reply,
                        Some("the checksum is not the one that was announced".to_owned()),
                    ));
                }
                Err(error) => return Ok((replies::storage_error(&error), Some(error.to_string()))),
            }
        }
        if let Some(modified) = order.demands.modified {
            let path = order.path.clone();
            let set = self.work(control, user, move |files| {
                files.node.set_modified(path.as_path(), modified.into())
            });
            if let Err(error) = set.await? {
                return Ok((replies::storage_error(&error), Some(error.to_string())));
            }
        }
        Ok((complete(), None))
    }

    /// The checksum of a file that was stored.
    async fn compute_whole(
        &mut self,
        control: &mut Control,
        user: &User,
        order: &Order,
        algorithm: ChecksumAlgorithm,
    ) -> Result<Result<String, StorageError>, End> {
        control.flush().await?;
        let request = ChecksumRequest {
            path: order.path.as_path().to_owned(),
            algorithm,
            offset: 0,
            length: None,
        };
        self.compute(control, user, request).await
    }

    fn publish(
        &self,
        user: &User,
        order: &Order,
        running: &Running,
        outcome: Option<&Outcome>,
        (code, error): (u16, Option<String>),
    ) {
        self.shared
            .journal
            .publish(&telemetry::Event::TransferFinished(&telemetry::Transfer {
                session: self.id,
                user: &user.name,
                verb: order.verb,
                path: &order.path.to_string(),
                started: running.started,
                finished: SystemTime::now(),
                bytes: outcome.map_or(0, |outcome| outcome.bytes),
                channels: outcome.map_or(0, |outcome| outcome.channels),
                stripes: outcome.map_or(0, |outcome| outcome.stripes),
                peers: outcome.map_or(&[], |outcome| &outcome.peers),
                refused: outcome.map_or(0, |outcome| outcome.refused),
                last_refusal: outcome.and_then(|outcome| outcome.last_refusal.as_ref()),
                buffer_bytes: outcome.map_or(0, |outcome| outcome.buffer_bytes),
                block_bytes: outcome.map_or(0, |outcome| outcome.block_bytes),
                movement: outcome.and_then(|outcome| outcome.movement.as_ref()),
                details: outcome.map_or(&[], |outcome| outcome.details.as_slice()),
                checksums: outcome.map_or(&[], |outcome| outcome.checksums.as_slice()),
                code,
                error: error.as_deref(),
                task_id: self.task_id.as_deref(),
            }));
    }
}

impl Running {
    /// The client is gone: the transfer is cancelled.
    fn lose(&mut self, end: End) {
        self.handle.cancel(CancelReason::ControlChannelLost);
        self.lost = Some(end);
    }

    fn bytes(&self) -> u64 {
        self.handle.progress().stripes.iter().sum()
    }
}

impl LastChannels {
    fn of(outcome: Outcome) -> Self {
        Self {
            count: outcome.channels,
            movement: outcome.movement,
            details: outcome.details,
        }
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

fn complete() -> Reply {
    Reply::new(226, "Transfer Complete.")
}

/// Clients pass over replies of 1yz that they do not know; it tells people and proxies that we are alive.
fn queued(ahead: usize) -> Reply {
    Reply::new(120, format!("Transfer queued; {ahead} ahead."))
}

fn progress(running: &Running) -> Reply {
    let line = format!("A transfer is running: {} bytes so far.", running.bytes());
    Reply::spaced(212, "GridFTP server status.", [line], "End.")
}
