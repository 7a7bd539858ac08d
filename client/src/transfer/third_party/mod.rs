//! Transfers between two servers.

mod follow;
mod pipeline;
mod prepare;

use std::time::{Duration, Instant, SystemTime};

use gridhaul_protocol::command::{Command, Restart, TransferMode};
use gridhaul_protocol::path::PathArgument;
use gridhaul_protocol::ranges::RangeSet;
use gridhaul_stack::Details;
use gridhaul_storage::ChecksumAlgorithm;

use self::follow::{Arrived, Following};
pub use self::pipeline::pipeline_between;
use self::prepare::prepare;
use super::part::{self, FilePart};
use super::stored::check_size;
use super::{Observer, TransferFailure, Transferred, verify};
use crate::control::ControlError;
use crate::session::{Session, TransferSettings};

/// The copy of a file between two servers.
#[derive(Debug, Clone)]
pub struct ThirdPartyCopy {
    /// The file of the source.
    pub source: PathArgument,
    /// The file of the destination.
    pub destination: PathArgument,
    /// The part that is copied; `None` is the whole file.
    pub part: Option<FilePart>,
    /// The size of the file or of the part in bytes, where it is known.
    pub size: Option<u64>,
    /// What the destination has already.
    pub present: RangeSet,
    /// The mode, the channels and their protection.
    pub settings: TransferSettings,
    /// The time that a copy of a pipeline gets, once the destination has confirmed it. The destination must have `MFMT`.
    pub modified: Option<SystemTime>,
    /// The checksum that both ends must agree about.
    pub verify: Option<ChecksumAlgorithm>,
    /// Without progress for so long, the transfer fails.
    pub stall: Duration,
}

/// Copies a file. Data flows between the servers only; in both modes the destination listens.
///
/// # Errors
///
/// When either server fails, or they do not agree about size or checksum. After a restart both may call a file complete that has a hole:
/// [`Transferred::unproven`] says where that is possible. A session can be used again unless the error is one
/// of its control channel.
pub async fn third_party(
    source: &mut Session,
    destination: &mut Session,
    copy: &ThirdPartyCopy,
    observer: &mut dyn Observer,
) -> Result<Transferred, TransferFailure> {
    let started = Instant::now();
    let Arrived {
        bytes,
        mut unproven,
    } = attempt(source, destination, copy, observer).await?;
    let checksum = match copy.verify {
        Some(algorithm) => {
            let paths = [&copy.source, &copy.destination];
            let sum = compare(source, destination, paths, copy.part, algorithm).await?;
            unproven = RangeSet::new();
            Some(sum)
        }
        None => None,
    };
    Ok(Transferred {
        bytes,
        channels: usize::from(copy.settings.parallelism),
        took: started.elapsed(),
        movement: None,
        reason: None,
        details: Details::default(),
        checksum,
        unproven,
    })
}

async fn attempt(
    source: &mut Session,
    destination: &mut Session,
    copy: &ThirdPartyCopy,
    observer: &mut dyn Observer,
) -> Result<Arrived, TransferFailure> {
    let (from, to) = (TransferFailure::Source, TransferFailure::Destination);
    let is_blocks = copy.settings.mode == TransferMode::Extended;
    let channels = prepare(source, destination, copy).await?;
    announce(destination, copy).await.map_err(to)?;
    restart(source, copy).await.map_err(from)?;
    let (store, retrieve) = (copy.store(), copy.retrieve());
    destination.control().send(&store).await.map_err(to)?;
    source.control().send(&retrieve).await.map_err(from)?;
    let arrived = Following::new(copy, observer)
        .run(source, destination)
        .await?;
    // Neither server has told how many bytes arrived.
    if let Some(expected) = copy.size {
        check_size(destination, &copy.destination, copy.part, expected, false).await?;
    }
    if is_blocks {
        let [of_source, of_destination] = channels;
        source.keep(of_source);
        destination.keep(of_destination);
    }
    Ok(arrived)
}

impl ThirdPartyCopy {
    fn store(&self) -> Command {
        part::store(self.destination.clone(), self.part, self.settings.commands)
    }

    fn retrieve(&self) -> Command {
        part::retrieve(self.source.clone(), self.part, self.settings.commands)
    }

    /// Compares the size of the copy with that of the source. Behind a part the copy may have more.
    fn check_length(&self, expected: u64, copied: u64) -> Result<(), TransferFailure> {
        match part::is_whole(self.part, expected, copied) {
            true => Ok(()),
            false => Err(TransferFailure::Length { expected, copied }),
        }
    }
}

/// Compares the file of both servers.
pub(super) async fn compare(
    source: &mut Session,
    destination: &mut Session,
    [from, to]: [&PathArgument; 2],
    part: Option<FilePart>,
    algorithm: ChecksumAlgorithm,
) -> Result<String, TransferFailure> {
    let (source_sum, destination_sum) = tokio::join!(
        verify::checksum_of_server(source, algorithm, from, part),
        verify::checksum_of_server(destination, algorithm, to, part)
    );
    let source_sum = source_sum.map_err(TransferFailure::Source)?;
    let destination_sum = destination_sum.map_err(TransferFailure::Destination)?;
    verify::compared(source_sum, destination_sum, true)
}

async fn announce(destination: &mut Session, copy: &ThirdPartyCopy) -> Result<(), ControlError> {
    if let Some(bytes) = copy.size {
        let command = Command::Allo {
            bytes,
            record_bytes: None,
        };
        // As in other transfers: a server without room fails the transfer.
        destination.control().ask(&command).await?;
    }
    restart(destination, copy).await
}

async fn restart(session: &mut Session, copy: &ThirdPartyCopy) -> Result<(), ControlError> {
    if copy.present.is_empty() {
        return Ok(());
    }
    let restart = match copy.settings.mode {
        TransferMode::Stream => Restart::At(copy.present.end()),
        TransferMode::Extended => Restart::Ranges(copy.present.clone()),
    };
    session
        .control()
        .must(&Command::Rest(restart))
        .await
        .map(drop)
}
