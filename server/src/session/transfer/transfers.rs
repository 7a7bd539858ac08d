//! The transfers of a session: the commands, the wait for a free place, and the log.

use std::time::SystemTime;

use gridhaul_protocol::command::{AlgorithmName, Checksum, StoreAttributes, Text};
use gridhaul_protocol::negotiated::{Terms, TransferEnd};
use gridhaul_protocol::reply::Reply;
use gridhaul_protocol::stack::StackSpec;
use gridhaul_shares::{Allocation, Grant};
use gridhaul_stack::{Details, Movement};
use gridhaul_storage::ChecksumAlgorithm;
use gridhaul_transfer::{LOOK_AHEAD_FILES, Outcome, SequenceError, TransferError};
use tokio::time::Instant;

use super::completion::conclude;
use super::motion::{Motion, upcoming};
use super::order::Order;
use super::running::Running;
use super::timers::NOTICE_AFTER;
use crate::group_limits::{self, Entered, Place};
use crate::live::{NewTransfer, TransferEntry};
use crate::session::call::Call;
use crate::session::data::DataPort;
use crate::session::end::End;
use crate::session::failure::Failure;
use crate::session::replies;
use crate::shutdown::Phase;
use crate::status::Activity;
use crate::telemetry;
use crate::transfer_verb::TransferVerb;

/// From so many bytes on, replies do not wait for those to further small files: the client goes on with some files while the server
/// moves the next ones. Those to ten files that are sent are less.
const TOGETHER: usize = 1024;

/// A command that moves data, or concerns transfers.
#[derive(Debug)]
pub(crate) enum TransferCommand {
    Move(TransferVerb, Motion),
    /// `SCKS`.
    ExpectChecksum {
        algorithm: AlgorithmName,
        checksum: Checksum,
    },
    /// `SITE STORATTR`.
    StoreAttributes(StoreAttributes),
    /// `SITE TASKID`.
    TaskId(Text),
    /// `SITE GETNETSTACK`.
    DescribeChannels,
}

#[derive(Debug, Default)]
pub(crate) struct Transfers {
    /// From `SITE TASKID`.
    task_id: Option<String>,
    /// The transfer of the present command began, and has its audit record.
    pub(crate) is_recorded: bool,
    last_channels: LastChannels,
}

/// The data channels of the last transfer.
#[derive(Debug, Default)]
struct LastChannels {
    count: usize,
    /// How the driver moved the bytes, where it had a choice.
    movement: Option<Movement>,
    details: Details,
}

impl From<Outcome> for LastChannels {
    fn from(outcome: Outcome) -> Self {
        Self {
            count: outcome.channels,
            movement: outcome.movement,
            details: outcome.details,
        }
    }
}

impl Transfers {
    /// The label from `SITE TASKID`.
    pub(crate) fn task_id(&self) -> Option<&str> {
        self.task_id.as_deref()
    }

    /// Carries out a command. Sends all replies but the last, and returns that.
    pub(crate) async fn execute(
        &mut self,
        call: &mut Call<'_>,
        data_port: &DataPort,
        command: TransferCommand,
    ) -> Result<Reply, End> {
        match command {
            TransferCommand::Move(verb, motion) => {
                self.move_data(call, data_port, verb, motion).await
            }
            TransferCommand::ExpectChecksum {
                algorithm,
                checksum,
            } => Ok(expect_checksum(call, algorithm, checksum)),
            TransferCommand::StoreAttributes(attributes) => {
                Ok(set_store_attributes(call, attributes))
            }
            TransferCommand::TaskId(id) => {
                /// As much as fits on a line of the transfer log.
                const MOST: usize = 200;

                self.task_id = Some(id.as_str().chars().take(MOST).collect());
                Ok(replies::ok())
            }
            TransferCommand::DescribeChannels => {
                Ok(self.describe_channels(data_port.stack(call.context)))
            }
        }
    }

    async fn move_data(
        &mut self,
        call: &mut Call<'_>,
        data_port: &DataPort,
        verb: TransferVerb,
        motion: Motion,
    ) -> Result<Reply, End> {
        match prepare(call, data_port, verb, &motion).await {
            Ok(order) => {
                if call.control.unsent_bytes() >= TOGETHER {
                    call.control.flush().await?;
                }
                self.transfer(call, data_port, &order).await
            }
            Err(refusal) => Ok(refusal),
        }
    }

    /// Adds the transfer to the table for administrators.
    fn register(&self, call: &Call<'_>, data_port: &DataPort, order: &Order) -> TransferEntry {
        let order = NewTransfer {
            verb: order.verb,
            direction: order.direction(),
            path: order.path.to_string(),
            stack: data_port.stack(call.context).to_string(),
            task_id: self.task_id.clone(),
        };
        call.context.live.transfer(order)
    }

    async fn transfer(
        &mut self,
        call: &mut Call<'_>,
        data_port: &DataPort,
        order: &Order,
    ) -> Result<Reply, End> {
        // RFC 959 4.1.1: the close of the control connection acts as an ABOR, also for a transfer that has not begun.
        if call.control.is_closed_by_client() {
            return Err(End::ClosedByClient);
        }
        call.context.live.note(Activity::Transfer);
        let entry = self.register(call, data_port, order);
        let permit = match enter(call, &entry).await? {
            Some(permit) => permit,
            None if entry.is_ended() => return Ok(replies::ended_early()),
            None => return Ok(replies::aborted_early()),
        };
        look_ahead(call);
        let mut running = Running::start(call, order, entry);
        let finished = running.follow(call).await;
        let outcome = finished.as_ref();
        drop(permit);
        let end = transfer_end(&running, outcome);
        call.user.settle(call.negotiated.finish(end));
        let concluded = conclude(call, order, &running, outcome).await;
        let logged = match &concluded {
            Ok((reply, failure)) => (reply.code(), failure.clone()),
            Err(end) => (426, Some(end.into())),
        };
        self.publish(call, order, &running, outcome, logged);
        self.last_channels = finished.map_or_else(LastChannels::default, LastChannels::from);
        let (reply, _) = concluded?;
        running.take_lost().map_or(Ok(reply), Err)
    }

    fn publish(
        &mut self,
        call: &Call<'_>,
        order: &Order,
        running: &Running,
        outcome: Option<&Outcome>,
        (code, failure): (u16, Option<Failure>),
    ) {
        self.is_recorded = true;
        let counted = running.stop_counting();
        let (session, client) = (call.context.id, call.user.client(call.context.peer));
        if let Some(outcome) = outcome.filter(|outcome| outcome.refused > 0) {
            call.context
                .publish(&telemetry::Event::DataConnectionRefused {
                    session,
                    peer: client.peer,
                    refused: outcome.refused,
                    last: outcome.last_refusal.as_ref(),
                });
        }
        call.context
            .publish(&telemetry::Event::TransferFinished(&telemetry::Transfer {
                session,
                user: &call.user.name,
                client,
                verb: order.verb,
                path: &order.path.to_string(),
                started: running.started(),
                finished: SystemTime::now(),
                bytes: outcome.map_or(0, |outcome| outcome.bytes),
                channels: outcome.map_or(0, |outcome| outcome.channels),
                stripes: outcome.map_or(0, |outcome| outcome.stripes),
                peers: outcome.map_or(&[], |outcome| &outcome.peers),
                nodes: outcome.map_or(&[], |outcome| &outcome.nodes),
                refused: outcome.map_or(0, |outcome| outcome.refused),
                last_refusal: outcome.and_then(|outcome| outcome.last_refusal.as_ref()),
                buffer_bytes: outcome.map_or(0, |outcome| outcome.buffer_bytes),
                block_bytes: outcome.map_or(0, |outcome| outcome.block_bytes),
                movement: outcome.and_then(|outcome| outcome.movement.as_ref()),
                details: outcome.map_or(&[], |outcome| outcome.details.as_slice()),
                counted: &counted,
                checksums: outcome.map_or(&[], |outcome| outcome.checksums.as_slice()),
                code,
                error: failure.as_ref().map(|failure| &*failure.text),
                cause: failure.as_ref().map(|failure| failure.cause),
                task_id: self.task_id.as_deref(),
            }));
    }

    /// The stack of data channels, and what its drivers reported of the last transfer.
    fn describe_channels(&self, stack: &StackSpec) -> Reply {
        let last = &self.last_channels;
        let mut lines = vec![format!("stack={stack}")];
        if last.count > 0 {
            lines.push(format!("channels={}", last.count));
        }
        if let Some(movement) = &last.movement {
            lines.push(format!("way={}", movement.way));
            lines.push(format!("why={}", movement.reason));
        }
        lines.extend(last.details.as_slice().iter().map(ToString::to_string));
        Reply::spaced(
            250,
            "Data channels, and those of the last transfer:",
            lines,
            "End.",
        )
    }
}

/// Checks what was negotiated for the transfer, and opens a data port that was delayed. Returns the transfer, or the
/// reply that refuses it.
async fn prepare(
    call: &mut Call<'_>,
    data_port: &DataPort,
    verb: TransferVerb,
    motion: &Motion,
) -> Result<Order, Reply> {
    data_port.check_verb(verb)?;
    let terms = begin(call, motion)?;
    let delayed = terms.delayed;
    let order =
        Order::new(call, verb, motion, terms).map_err(|error| replies::storage_error(&error))?;
    if let Some(request) = delayed {
        // The client waits for this address before it does anything else.
        let striped = call.negotiated.may_stripe(request);
        let address = data_port.listen(call, request, striped).await?;
        call.send(&address.delayed_reply());
    }
    Ok(order)
}

fn begin(call: &mut Call<'_>, motion: &Motion) -> Result<Terms, Reply> {
    let terms = call.negotiated.begin(motion.direction());
    let terms = terms.map_err(|refusal| refusal.reply())?;
    let checked = motion.check(&terms);
    checked.map_err(|refusal| refusal.reply())?;
    Ok(terms)
}

/// The right to run a transfer: of the user's groups, and of the server.
struct Admission {
    _places: Vec<Place>,
    _grant: Grant,
}

/// Waits until few enough transfers run. `None` if the client sends `ABOR` before, or an administrator ends the transfer.
async fn enter(call: &mut Call<'_>, entry: &TransferEntry) -> Result<Option<Admission>, End> {
    let mut notice = Notice::default();
    let mut places = Vec::new();
    // A transfer that waits for its group holds no place of the server.
    for group in call.user.groups.clone() {
        let place = match group.places.enter() {
            Entered::Now(place) => Some(place),
            Entered::Later(waiting) => match wait((&mut *call, entry), waiting, &mut notice).await?
            {
                Some(place) => place,
                None => return Ok(None),
            },
        };
        places.extend(place);
    }
    let grant = match call.context.shared.transfers.enter(&call.user.source) {
        Allocation::Granted(grant) => grant,
        Allocation::Queued(waiting) => match wait((&mut *call, entry), waiting, &mut notice).await?
        {
            Some(grant) => grant,
            None => return Ok(None),
        },
    };
    Ok(Some(Admission {
        _places: places,
        _grant: grant,
    }))
}

/// The notice to a client whose transfer is queued for long, once.
struct Notice {
    due: Instant,
    sent: bool,
}

impl Default for Notice {
    fn default() -> Self {
        Self {
            due: Instant::now() + NOTICE_AFTER,
            sent: false,
        }
    }
}

/// A place in a queue.
trait Queued: Future + Unpin {
    /// The number of transfers before it.
    fn ahead(&self) -> usize;
}

impl Queued for gridhaul_shares::Waiting {
    fn ahead(&self) -> usize {
        Self::ahead(self)
    }
}

impl Queued for group_limits::Waiting {
    fn ahead(&self) -> usize {
        Self::ahead(self)
    }
}

/// Waits in a queue. `None` as for [`enter`].
async fn wait<Q: Queued>(
    (call, entry): (&mut Call<'_>, &TransferEntry),
    mut queued: Q,
    notice: &mut Notice,
) -> Result<Option<Q::Output>, End> {
    call.control.flush().await?;
    loop {
        tokio::select! {
            granted = &mut queued => return Ok(Some(granted)),
            () = tokio::time::sleep_until(notice.due), if !notice.sent => {
                notice.sent = true;
                call.send(&replies::queued(queued.ahead()));
                call.control.flush().await?;
            }
            received = call.control.receive_ahead(), if call.control.may_read_ahead() => {
                received?;
                if call.control.is_closed_by_client() {
                    return Err(End::ClosedByClient);
                }
                if call.control.abort_waits() {
                    return Ok(None);
                }
            }
            () = call.context.phase.reached(Phase::Draining) => return Err(call.context.end_of_phase()),
            () = call.context.live.ended() => return Err(End::Administrator),
            () = entry.ended() => return Ok(None),
        }
    }
}

/// Announces to the node the files that the waiting commands will send.
fn look_ahead(call: &Call<'_>) {
    let user = &call.user;
    if user.node.looks_ahead() {
        let paths = upcoming(call.control.waiting()).take(LOOK_AHEAD_FILES);
        let paths = paths.filter_map(|path| user.path(Some(path)).ok());
        let paths = paths.map(|path| path.as_path().to_owned()).collect();
        user.node.look_ahead(paths);
    }
}

/// What the end of the transfer means for the data port.
fn transfer_end(running: &Running, outcome: Option<&Outcome>) -> TransferEnd {
    match outcome.map(|outcome| &outcome.result) {
        Some(Ok(())) => TransferEnd::Complete,
        Some(Err(
            TransferError::Open { .. }
            | TransferError::Sequence(SequenceError::RestartPastEnd { .. }),
        )) if !running.has_begun() => TransferEnd::NotStarted,
        _ => TransferEnd::Broken,
    }
}

fn expect_checksum(call: &mut Call<'_>, algorithm: AlgorithmName, checksum: Checksum) -> Reply {
    if !is_known(&algorithm) {
        return replies::unknown_algorithm();
    }
    call.negotiated.expect_checksum(algorithm, checksum);
    Reply::new(200, "OK.")
}

fn set_store_attributes(call: &mut Call<'_>, attributes: StoreAttributes) -> Reply {
    let checksum = attributes.checksum.as_ref();
    if checksum.is_some_and(|(algorithm, _)| !is_known(algorithm)) {
        return replies::unknown_algorithm();
    }
    call.negotiated.set_store_attributes(attributes);
    replies::ok()
}

fn is_known(algorithm: &AlgorithmName) -> bool {
    algorithm.as_str().parse::<ChecksumAlgorithm>().is_ok()
}
