//! Transfers between this machine and a server.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use gridhaul_protocol::command::{Command, Representation, Restart, StripeLayout, TransferMode};
use gridhaul_protocol::path::PathArgument;
use gridhaul_protocol::ranges::RangeSet;
use gridhaul_protocol::reply::Reply;
use gridhaul_protocol::stack::StackSpec;
use gridhaul_transfer::{
    CancelReason, Handling, NodeSession, Outcome, Placement, Plan, Task, TransferError,
};
use tokio::time::{MissedTickBehavior, interval};

use super::local_end::{Channels, LocalTransfer};
use super::said::Said;
use super::{Observer, TransferFailure, Transferred};
use crate::control::ControlError;
use crate::session::{Addresses, Session, TransferSettings};

/// How often progress is looked at.
const TICK: Duration = Duration::from_millis(100);

/// How long the last words of a server may take after this machine has failed.
const FAREWELL: Duration = Duration::from_secs(10);

/// Which way the file goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From the server.
    Get,
    /// To the server.
    Put,
}

/// The copy of a file between this machine and a server.
#[derive(Debug, Clone)]
pub struct FileCopy {
    /// Which way.
    pub direction: Direction,
    /// The file beneath the root of the local files.
    pub local: PathBuf,
    /// The file of the server.
    pub remote: PathArgument,
    /// Its size in bytes, where it is known.
    pub size: Option<u64>,
    /// What the destination has already.
    pub present: RangeSet,
    /// The mode, the channels and their protection.
    pub settings: TransferSettings,
    /// The stack of this machine.
    pub stack: StackSpec,
    /// How received files are written.
    pub handling: Handling,
    /// Without a byte for so long, the transfer fails.
    pub stall: Duration,
}

/// Copies a file.
///
/// # Errors
///
/// When either end fails, or they do not agree about the size. The session can be used again unless the error is one of its
/// control channel.
pub async fn two_party(
    session: &mut Session,
    files: &dyn NodeSession,
    copy: &FileCopy,
    observer: &mut dyn Observer,
) -> Result<Transferred, TransferFailure> {
    let started = Instant::now();
    let copied = attempt(session, files, copy, observer).await;
    let outcome = copied.inspect_err(|_| files.release())?;
    Ok(Transferred {
        bytes: outcome.bytes,
        channels: outcome.channels,
        took: started.elapsed(),
        movement: outcome.movement.map(|movement| movement.way.to_owned()),
    })
}

async fn attempt(
    session: &mut Session,
    files: &dyn NodeSession,
    copy: &FileCopy,
    observer: &mut dyn Observer,
) -> Result<Outcome, TransferFailure> {
    let of_server = |error| copy.of_server(error);
    session.settle(&copy.settings).await.map_err(of_server)?;
    open_port(session, files, copy).await?;
    announce(session, copy).await.map_err(of_server)?;
    let command = copy.command();
    session.control().send(&command).await.map_err(of_server)?;
    let mut local = LocalTransfer::start(files, copy.plan());
    let followed = follow(session, &mut local, command.verb(), copy, observer).await;
    if followed.is_err() {
        // The control channel is lost, or the transfer stalled.
        local.running.cancel(CancelReason::ControlChannelLost);
    }
    let (reply, outcome) = followed?;
    check(copy, reply, outcome)
}

impl FileCopy {
    fn of_server(&self, error: ControlError) -> TransferFailure {
        match self.direction {
            Direction::Get => TransferFailure::Source(error),
            Direction::Put => TransferFailure::Destination(error),
        }
    }

    fn command(&self) -> Command {
        match self.direction {
            Direction::Get => Command::Retr(self.remote.clone()),
            Direction::Put => Command::Stor(self.remote.clone()),
        }
    }

    fn plan(&self) -> Plan {
        let path = self.local.clone();
        Plan {
            task: match self.direction {
                Direction::Get => Task::ReceiveFile {
                    path,
                    placement: Placement::Replace,
                    restart: self.present.clone(),
                    promised: self.size,
                },
                Direction::Put => Task::SendFile {
                    path,
                    offset: 0,
                    length: None,
                    restart: self.present.clone(),
                },
            },
            mode: self.settings.mode,
            representation: Representation::Image,
            parallelism: self.settings.parallelism,
            layout: StripeLayout::Partitioned,
            handling: self.handling.clone(),
            share: None,
        }
    }

    /// Whether this machine listens for data connections. In MODE E the receiver does (GFD.20 3.4); in stream mode the server
    /// does, because clients are more often behind address translation.
    fn listens_here(&self) -> bool {
        self.direction == Direction::Get && self.settings.mode == TransferMode::Extended
    }
}

async fn open_port(
    session: &mut Session,
    files: &dyn NodeSession,
    copy: &FileCopy,
) -> Result<(), TransferFailure> {
    let identity = session.login().identity();
    let channels = Channels::new(copy.stack.clone(), copy.settings.protection, identity)?;
    if copy.listens_here() {
        let local = session
            .control()
            .local()
            .map_err(|error| copy.of_server(error))?;
        let addresses = channels.listen(files, local.ip().to_canonical())?;
        let told = session.active(addresses).await;
        return told.map_err(|error| copy.of_server(error));
    }
    let addresses = match session.may_stripe() && copy.settings.mode == TransferMode::Extended {
        true => Addresses::Striped,
        false => Addresses::One,
    };
    let peers = session.passive(addresses).await;
    channels.connect(files, peers.map_err(|error| copy.of_server(error))?)
}

/// The size of an upload, and what the destination has already.
async fn announce(session: &mut Session, copy: &FileCopy) -> Result<(), ControlError> {
    if let (Direction::Put, Some(bytes)) = (copy.direction, copy.size) {
        let command = Command::Allo {
            bytes,
            record_bytes: None,
        };
        // A server may refuse what it does not need; one without room fails the transfer.
        session.control().ask(&command).await?;
    }
    if !copy.present.is_empty() {
        let restart = match copy.settings.mode {
            TransferMode::Stream => Restart::At(copy.present.end()),
            TransferMode::Extended => Restart::Ranges(copy.present.clone()),
        };
        session.control().must(&Command::Rest(restart)).await?;
    }
    Ok(())
}

/// Waits for both ends, and tells the observer what happens.
async fn follow(
    session: &mut Session,
    local: &mut LocalTransfer,
    verb: &'static str,
    copy: &FileCopy,
    observer: &mut dyn Observer,
) -> Result<(Reply, Outcome), TransferFailure> {
    let (mut last_reply, mut outcome) = (None, None);
    let mut watch = Watch::new(copy.stall);
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        match (last_reply.take(), outcome.take()) {
            (Some(reply), Some(done)) => return Ok((reply, done)),
            (reply, done) => (last_reply, outcome) = (reply, done),
        }
        tokio::select! {
            reply = session.control().next_reply(), if last_reply.is_none() => {
                match Said::of(reply.map_err(|error| copy.of_server(error))?) {
                    Said::Stored(ranges) => observer.stored(&ranges),
                    Said::Preliminary => watch.moved(),
                    Said::Last(reply) => {
                        if reply.is_error() {
                            local.running.cancel(CancelReason::Abort);
                        }
                        last_reply = Some(reply);
                    }
                }
            }
            done = &mut local.finished, if outcome.is_none() => {
                let done = done.map_err(|_| TransferFailure::Differs("the transfer ended without a result".to_owned()))?;
                observer.moved(done.bytes);
                if done.result.is_err() {
                    watch.stall = watch.stall.min(FAREWELL);
                }
                watch.moved();
                outcome = Some(done);
            }
            _ = ticks.tick() => {
                let bytes = local.running.progress().stripes.iter().sum();
                if outcome.is_none() && watch.has_moved_to(bytes) {
                    observer.moved(bytes);
                }
                if copy.direction == Direction::Get {
                    let stored = local.running.take_received();
                    if !stored.is_empty() {
                        observer.stored(&stored);
                    }
                }
                if local.running.is_settling() {
                    watch.moved();
                }
                if let Some(failure) = watch.overdue(verb, copy, &outcome) {
                    return Err(failure);
                }
            }
        }
    }
}

/// Notices when nothing moves.
struct Watch {
    stall: Duration,
    bytes: u64,
    last: Instant,
}

impl Watch {
    fn new(stall: Duration) -> Self {
        Self {
            stall,
            bytes: 0,
            last: Instant::now(),
        }
    }

    fn moved(&mut self) {
        self.last = Instant::now();
    }

    fn has_moved_to(&mut self, bytes: u64) -> bool {
        if bytes == self.bytes {
            return false;
        }
        self.bytes = bytes;
        self.moved();
        true
    }

    /// The error of this machine comes before the silence of the server, which follows from it.
    fn overdue(
        &self,
        verb: &'static str,
        copy: &FileCopy,
        outcome: &Option<Outcome>,
    ) -> Option<TransferFailure> {
        if self.last.elapsed() < self.stall {
            return None;
        }
        let within = self.stall;
        Some(match outcome {
            None => TransferFailure::Stalled(within),
            Some(_) => copy.of_server(ControlError::Silent { verb, within }),
        })
    }
}

/// Whether the file is complete by the words of both ends.
fn check(copy: &FileCopy, reply: Reply, outcome: Outcome) -> Result<Outcome, TransferFailure> {
    let refused = |reply| {
        let verb = copy.command().verb();
        copy.of_server(ControlError::Refused { verb, reply })
    };
    match &outcome.result {
        // Cancelled because the server refused, or failed when the server closed the data channels: its words say why.
        Err(TransferError::Cancelled(_) | TransferError::Channel(_) | TransferError::Peer(_))
            if reply.is_error() =>
        {
            return Err(refused(reply));
        }
        Err(_) => {}
        Ok(()) if !reply.is_completion() => return Err(refused(reply)),
        Ok(()) => {}
    }
    if let Err(error) = outcome.result {
        return Err(TransferFailure::Local(Box::new(error)));
    }
    let moved = outcome.bytes + copy.present.covered();
    match copy.size {
        Some(size) if size != moved => Err(TransferFailure::Differs(format!(
            "the file has {size} bytes, and {moved} were copied: it has changed meanwhile, or the transfer was cut short"
        ))),
        _ => Ok(outcome),
    }
}
