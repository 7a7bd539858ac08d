//! Transfers between this machine and a server.

mod follow;
mod pipeline;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use gridhaul_protocol::command::{Command, Representation, Restart, StripeLayout, TransferMode};
use gridhaul_protocol::path::PathArgument;
use gridhaul_protocol::ranges::RangeSet;
use gridhaul_protocol::stack::StackSpec;
use gridhaul_storage::ChecksumAlgorithm;
use gridhaul_transfer::{Handling, NodeSession, Plan, Task, UploadName};

use self::follow::{Complete, Following};
pub use self::pipeline::pipeline;
use super::local_end::{Channels, LocalTransfer};
use super::part::{self, FilePart};
use super::stored::check_size;
use super::{ByteStream, Observer, STALL, TransferFailure, Transferred, verify};
use crate::control::ControlError;
use crate::session::{Kept, OtherEnd, Session, TransferSettings};

/// Which way the file goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From the server.
    Get,
    /// To the server.
    Put,
    /// From the server: the listing of a directory (`MLSD`), in stream mode.
    List,
}

/// The copy of a file between this machine and a server.
#[derive(Debug, Clone)]
pub struct FileCopy {
    /// Which way.
    pub direction: Direction,
    /// The file beneath the root of the local files.
    pub local: PathBuf,
    /// Standard input or output, in place of the file; in stream mode, and without `verify`.
    pub stream: Option<ByteStream>,
    /// The file of the server.
    pub remote: PathArgument,
    /// The part that is copied; `None` is the whole file.
    pub part: Option<FilePart>,
    /// The size of the file or of the part in bytes, where it is known.
    pub size: Option<u64>,
    /// What the destination has already.
    pub present: RangeSet,
    /// The mode, the channels and their protection.
    pub settings: TransferSettings,
    /// The stack of this machine.
    pub stack: StackSpec,
    /// How received files are written. The limit is that of a listing; files and parts have their sizes. With [`UploadName::Temporary`] a
    /// file gets its name after it was compared with the source.
    pub handling: Handling,
    /// The time that an upload of a pipeline gets, once the server has confirmed it. The server must have `MFMT`.
    pub modified: Option<SystemTime>,
    /// The checksum that both ends must agree about.
    pub verify: Option<ChecksumAlgorithm>,
    /// How long a server may take until it connects to this machine. Then, and when it says that it cannot, the transfer fails with
    /// [`TransferFailure::Unreachable`]. `None`: that is not looked at.
    pub first_connection: Option<Duration>,
    /// Without a byte for so long, the transfer fails.
    pub stall: Duration,
}

/// Copies a file. `files` has the data channels, so a session needs one of its own; those of MODE E stay open for the next file.
///
/// # Errors
///
/// When either end fails, or they do not agree about size or checksum. The session can be used again unless the error is one
/// of its control channel.
pub async fn two_party(
    session: &mut Session,
    files: &Arc<dyn NodeSession>,
    copy: &FileCopy,
    observer: &mut dyn Observer,
) -> Result<Transferred, TransferFailure> {
    let started = Instant::now();
    let copied = attempt(session, files, copy, observer).await;
    let Complete { outcome, checksum } = copied.inspect_err(|_| files.release())?;
    let checksum = match (copy.verify, copy.direction) {
        // A received file was compared before it got its name; a received part has its place already.
        (Some(algorithm), direction) if direction == Direction::Put || copy.part.is_some() => {
            Some(compare(session, files, copy, algorithm).await?)
        }
        _ => checksum,
    };
    let movement = outcome.movement.as_ref();
    Ok(Transferred {
        bytes: outcome.bytes,
        channels: outcome.channels,
        took: started.elapsed(),
        movement: movement.map(|movement| movement.way.to_owned()),
        reason: movement.map(|movement| movement.reason.to_string()),
        details: outcome.details,
        checksum,
        unproven: RangeSet::new(),
    })
}

async fn attempt(
    session: &mut Session,
    files: &Arc<dyn NodeSession>,
    copy: &FileCopy,
    observer: &mut dyn Observer,
) -> Result<Complete, TransferFailure> {
    let of_server = |error| copy.of_server(error);
    session.settle(&copy.settings).await.map_err(of_server)?;
    let is_blocks = copy.settings.mode == TransferMode::Extended;
    if is_blocks && copy.direction == Direction::Put {
        session.settle_markers().await.map_err(of_server)?;
    }
    let channels = copy.channels(files);
    if !session.takes_kept(&channels) {
        open_port(session, &**files, copy).await?;
    }
    announce(session, copy).await.map_err(of_server)?;
    let command = copy.command();
    session.control().send(&command).await.map_err(of_server)?;
    let mut local = LocalTransfer::start(&**files, copy.plan(), copy.asks_consent());
    let mut following = Following::new(copy, observer);
    let complete = match following.run(session, &mut local).await {
        Ok(complete) => complete,
        Err(failure) => {
            following.give_up(&mut local).await;
            return Err(following.cause(failure));
        }
    };
    if copy.direction == Direction::Put {
        let bytes = complete.outcome.bytes;
        let bytes = bytes.saturating_add(copy.present.covered());
        let is_told = following.has_stored(bytes);
        check_size(session, &copy.remote, copy.part, bytes, is_told).await?;
    }
    if is_blocks {
        session.keep(channels);
    }
    Ok(complete)
}

/// Compares the files of both ends.
async fn compare(
    session: &mut Session,
    files: &Arc<dyn NodeSession>,
    copy: &FileCopy,
    algorithm: ChecksumAlgorithm,
) -> Result<String, TransferFailure> {
    let (here, there) = tokio::join!(
        verify::checksum_of_file(files, algorithm, &copy.local, copy.part),
        verify::checksum_of_server(session, algorithm, &copy.remote, copy.part)
    );
    let there = there.map_err(|error| copy.of_server(error))?;
    match copy.direction {
        Direction::Put => verify::compared(here?, there, true),
        Direction::Get | Direction::List => verify::compared(there, here?, true),
    }
}

impl FileCopy {
    /// A whole file of unknown size; at most a minute passes without a byte.
    pub fn new(
        direction: Direction,
        local: PathBuf,
        remote: PathArgument,
        settings: TransferSettings,
    ) -> Self {
        Self {
            direction,
            local,
            stream: None,
            remote,
            part: None,
            size: None,
            present: RangeSet::new(),
            settings,
            stack: StackSpec::only("auto"),
            handling: Handling::default(),
            modified: None,
            verify: None,
            first_connection: None,
            stall: STALL,
        }
    }

    fn of_server(&self, error: ControlError) -> TransferFailure {
        match self.direction {
            Direction::Get | Direction::List => TransferFailure::Source(error),
            Direction::Put => TransferFailure::Destination(error),
        }
    }

    fn command(&self) -> Command {
        let commands = self.settings.commands;
        match self.direction {
            Direction::Get => part::retrieve(self.remote.clone(), self.part, commands),
            Direction::Put => part::store(self.remote.clone(), self.part, commands),
            Direction::List => Command::Mlsd(Some(self.remote.clone())),
        }
    }

    fn plan(&self) -> Plan {
        let path = self.local.clone();
        let mut handling = self.handling.clone();
        if self.direction == Direction::Get {
            handling.checksums.extend(self.verify);
            handling.limit = self.limit();
        }
        Plan {
            task: match (&self.stream, self.direction) {
                (Some(stream), _) => stream.task(),
                (None, Direction::Get | Direction::List) => Task::ReceiveFile {
                    path,
                    placement: part::placement(self.part),
                    restart: self.present.clone(),
                    promised: self.size,
                },
                (None, Direction::Put) => Task::SendFile {
                    path,
                    offset: self.part.map_or(0, |part| part.offset),
                    length: self.part.and_then(|part| part.length),
                    restart: self.present.clone(),
                },
            },
            mode: self.settings.mode,
            representation: Representation::Image,
            parallelism: self.settings.parallelism,
            layout: StripeLayout::Partitioned,
            handling,
            share: None,
        }
    }

    /// The bytes that a server may send: a part of known length, or the file as it was announced.
    fn limit(&self) -> Option<u64> {
        self.size.or_else(|| self.part?.length)
    }

    /// Where the bytes that are copied end in the file.
    fn end(&self) -> u64 {
        part::end(self.part, self.size)
    }

    /// Whether the file waits under a temporary name until it was compared.
    fn asks_consent(&self) -> bool {
        self.direction == Direction::Get && self.handling.upload == UploadName::Temporary
    }

    fn channels(&self, files: &Arc<dyn NodeSession>) -> Kept {
        Kept {
            with: OtherEnd::Here(Arc::clone(files)),
            sends: self.direction != Direction::Put,
            settings: self.settings.clone(),
            stack: Some(self.stack.clone()),
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
    let protection = copy.settings.protection;
    let channels = Channels::new(copy.stack.clone(), protection, session)?;
    let addresses = session.addresses(&copy.settings);
    let addresses = addresses.map_err(|error| copy.of_server(error))?;
    if copy.listens_here() {
        let local = session.control().local();
        let told = match channels.listen(files, local.ip().to_canonical()) {
            Ok(addresses) => {
                let told = session.active(addresses).await;
                told.map_err(|error| copy.of_server(error))
            }
            Err(failure) => Err(failure),
        };
        return told.map_err(|failure| match failure {
            TransferFailure::Listen(_) | TransferFailure::Source(ControlError::Refused { .. })
                if copy.first_connection.is_some() =>
            {
                TransferFailure::Unreachable(failure.to_string())
            }
            failure => failure,
        });
    }
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
