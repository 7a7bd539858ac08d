//! Transfers between two servers.

use std::time::{Duration, Instant};

use gridhaul_protocol::command::{Command, Restart, TransferMode};
use gridhaul_protocol::marker::PerformanceMarker;
use gridhaul_protocol::path::PathArgument;
use gridhaul_protocol::ranges::RangeSet;
use gridhaul_protocol::reply::Reply;

use super::{Observer, TransferFailure, Transferred};
use crate::control::{ControlError, accepted};
use crate::session::{Addresses, Session, TransferSettings};

/// How long the other server may take after one has failed.
const FAREWELL: Duration = Duration::from_secs(10);

/// The copy of a file between two servers.
#[derive(Debug, Clone)]
pub struct ThirdPartyCopy {
    /// The file of the source.
    pub source: PathArgument,
    /// The file of the destination.
    pub destination: PathArgument,
    /// Its size in bytes, where it is known.
    pub size: Option<u64>,
    /// What the destination has already.
    pub present: RangeSet,
    /// The mode, the channels and their protection.
    pub settings: TransferSettings,
    /// Without a marker or a reply for so long, the transfer fails.
    pub stall: Duration,
}

/// Copies a file. Data flows between the servers only; in both modes the destination listens.
///
/// # Errors
///
/// When either server fails. A session can be used again unless the error is one of its control channel.
pub async fn third_party(
    source: &mut Session,
    destination: &mut Session,
    copy: &ThirdPartyCopy,
    observer: &mut dyn Observer,
) -> Result<Transferred, TransferFailure> {
    let started = Instant::now();
    let (from, to) = (TransferFailure::Source, TransferFailure::Destination);
    source.settle(&copy.settings).await.map_err(from)?;
    destination.settle(&copy.settings).await.map_err(to)?;
    let are_striped = copy.settings.mode == TransferMode::Extended
        && source.may_stripe()
        && destination.may_stripe();
    let addresses = match are_striped {
        true => Addresses::Striped,
        false => Addresses::One,
    };
    let addresses = destination.passive(addresses).await.map_err(to)?;
    source.active(addresses).await.map_err(from)?;
    announce(destination, copy).await.map_err(to)?;
    restart(source, copy).await.map_err(from)?;
    let (store, retrieve) = (
        Command::Stor(copy.destination.clone()),
        Command::Retr(copy.source.clone()),
    );
    destination.control().send(&store).await.map_err(to)?;
    source.control().send(&retrieve).await.map_err(from)?;
    let mut following = Following::new(copy, observer);
    following.run(source, destination).await?;
    Ok(Transferred {
        bytes: following.moved,
        channels: usize::from(copy.settings.parallelism),
        took: started.elapsed(),
        movement: None,
    })
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

/// The replies of both servers until the last ones.
struct Following<'a> {
    copy: &'a ThirdPartyCopy,
    observer: &'a mut dyn Observer,
    /// Bytes of each stripe of the destination.
    stripes: Vec<u64>,
    moved: u64,
    stall: Duration,
}

impl<'a> Following<'a> {
    fn new(copy: &'a ThirdPartyCopy, observer: &'a mut dyn Observer) -> Self {
        Self {
            copy,
            observer,
            stripes: Vec::new(),
            moved: 0,
            stall: copy.stall,
        }
    }

    async fn run(
        &mut self,
        source: &mut Session,
        destination: &mut Session,
    ) -> Result<(), TransferFailure> {
        let (mut sent, mut stored): (Option<Reply>, Option<Reply>) = (None, None);
        while sent.is_none() || stored.is_none() {
            let reply = tokio::select! {
                reply = source.control().next_reply(), if sent.is_none() => {
                    let reply = reply.map_err(TransferFailure::Source)?;
                    (!reply.is_preliminary()).then(|| sent.insert(reply).is_error())
                }
                reply = destination.control().next_reply(), if stored.is_none() => {
                    let reply = reply.map_err(TransferFailure::Destination)?;
                    self.note(&reply);
                    (!reply.is_preliminary()).then(|| stored.insert(reply).is_error())
                }
                () = tokio::time::sleep(self.stall) => {
                    return Err(self.silence(sent, stored));
                }
            };
            if reply == Some(true) {
                // The other one waits for data connections, or for data.
                self.stall = self.stall.min(FAREWELL);
            }
        }
        finished(sent, stored).map(|()| {
            self.moved = self.copy.size.map_or(self.moved, |size| {
                size.saturating_sub(self.copy.present.covered())
            });
            self.observer.moved(self.moved);
        })
    }

    fn note(&mut self, reply: &Reply) {
        if let Ok(marker) = gridhaul_protocol::marker::RestartMarker::from_reply(reply) {
            self.observer.stored(&marker.0);
        }
        if let Ok(marker) = PerformanceMarker::from_reply(reply)
            && marker.stripe_count <= gridhaul_protocol::address::StripeAddresses::MAX
        {
            self.stripes.resize(marker.stripe_count, 0);
            self.stripes[marker.stripe_index] = marker.stripe_bytes;
            self.moved = self
                .stripes
                .iter()
                .fold(0, |sum, bytes| sum.saturating_add(*bytes));
            self.observer.moved(self.moved);
        }
    }

    /// The error of one server comes before the silence of the other one, which follows from it.
    fn silence(&self, sent: Option<Reply>, stored: Option<Reply>) -> TransferFailure {
        let refused = |verb, reply| ControlError::Refused { verb, reply };
        match (sent, stored) {
            (Some(reply), _) if reply.is_error() => TransferFailure::Source(refused("RETR", reply)),
            (_, Some(reply)) if reply.is_error() => {
                TransferFailure::Destination(refused("STOR", reply))
            }
            _ => TransferFailure::Stalled(self.stall),
        }
    }
}

/// The error of the destination is told if both have one, except that an error before any data is that of the source.
fn finished(sent: Option<Reply>, stored: Option<Reply>) -> Result<(), TransferFailure> {
    if let Some(reply) = sent {
        let is_opening = reply.code() / 10 == 55;
        if is_opening {
            return Err(TransferFailure::Source(ControlError::Refused {
                verb: "RETR",
                reply,
            }));
        }
        if let Some(stored) = stored {
            accepted("STOR", stored).map_err(TransferFailure::Destination)?;
        }
        accepted("RETR", reply).map_err(TransferFailure::Source)?;
    }
    Ok(())
}
