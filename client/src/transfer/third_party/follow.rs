//! Follows two servers to their last replies.
//!
//! The last markers of the destination say what it has stored until its data connections ended. They are awaited also after the source
//! has gone, because what no marker has told is sent again, or has to be compared. A source that fails before any data leaves the
//! destination waiting for data connections, for ever if it is globus-gridftp-server 13.24: `ABOR` ends that. So does one that calls a
//! restarted file complete, and has sent nothing: globus-gridftp-server 13.24 with several data nodes does that when `REST` came before.

use std::time::{Duration, Instant};

use gridhaul_protocol::command::{Command, TransferMode};
use gridhaul_protocol::ranges::RangeSet;
use gridhaul_protocol::reply::Reply;
use tokio::time::{interval, timeout};

use super::super::said::{self, ReplyLimit, Said, Told};
use super::super::stall::{Claims, FAREWELL, StallWatch};
use super::super::{Observer, TransferFailure, part};
use super::ThirdPartyCopy;
use crate::control::{ControlError, accepted};
use crate::session::Session;

/// How often the time limit is looked at.
const TICK: Duration = Duration::from_secs(1);

/// How long the destination may take to answer `ABOR`.
const ABORTING: Duration = Duration::from_secs(2);

/// The reply to a transfer that was aborted (RFC 959 4.1.3).
const ABORTED: u16 = 426;

/// What the destination has of a file that both servers call complete.
pub(super) struct Arrived {
    /// The bytes that have moved.
    pub(super) bytes: u64,
    /// What it lacked before a restart, and has not told to have stored.
    pub(super) unproven: RangeSet,
}

/// The replies of both servers until the last ones.
pub(super) struct Following<'a> {
    copy: &'a ThirdPartyCopy,
    observer: &'a mut dyn Observer,
    told: [Told; 2],
    limits: [ReplyLimit; 2],
    watch: StallWatch,
    /// What the servers say to have moved, and what the destination says to have stored.
    moved: Claims,
    stored_there: Claims,
    /// The bytes that the observer knows.
    shown: u64,
    sent: Option<Reply>,
    /// When the source has said that.
    sent_at: Instant,
    stored: Option<Reply>,
}

/// The place in [`Following::told`].
const SOURCE: usize = 0;
const DESTINATION: usize = 1;

impl<'a> Following<'a> {
    pub(super) fn new(copy: &'a ThirdPartyCopy, observer: &'a mut dyn Observer) -> Self {
        Self {
            copy,
            observer,
            told: Default::default(),
            limits: [ReplyLimit::new(), ReplyLimit::new()],
            watch: StallWatch::new(copy.stall),
            moved: Claims::new(copy.stall),
            stored_there: Claims::new(copy.stall),
            shown: 0,
            sent: None,
            sent_at: Instant::now(),
            stored: None,
        }
    }

    /// Waits for the last replies of both servers.
    pub(super) async fn run(
        mut self,
        source: &mut Session,
        destination: &mut Session,
    ) -> Result<Arrived, TransferFailure> {
        let mut ticks = interval(TICK);
        while self.sent.is_none() || self.stored.is_none() {
            tokio::select! {
                reply = source.control().next_reply(), if self.sent.is_none() => {
                    let reply = match reply {
                        Ok(reply) => reply,
                        Err(error) => {
                            self.hear_last_words(destination).await;
                            return Err(TransferFailure::Source(error));
                        }
                    };
                    let counted = self.limits[SOURCE].count(self.copy.retrieve().verb(), &reply);
                    counted.map_err(TransferFailure::Source)?;
                    self.sent = self.hear(SOURCE, reply);
                    self.sent_at = Instant::now();
                    if self.is_refused() && self.stored.is_none() {
                        self.call_off(destination).await;
                        break;
                    }
                }
                reply = destination.control().next_reply(), if self.stored.is_none() => {
                    let reply = reply.map_err(TransferFailure::Destination)?;
                    let counted = self.limits[DESTINATION].count(self.copy.store().verb(), &reply);
                    counted.map_err(TransferFailure::Destination)?;
                    self.stored = self.hear(DESTINATION, reply);
                }
                _ = ticks.tick() => {
                    if self.waits_in_vain() {
                        self.call_off(destination).await;
                        // An error follows from that.
                        self.stored.take_if(|reply| !reply.is_completion());
                        break;
                    }
                    if self.watch.is_overdue() && self.must_speak() {
                        return Err(self.silence());
                    }
                }
            }
        }
        let (unsent, unproven) = (self.unsent(), self.unproven());
        finished(self.copy, self.sent, self.stored, unsent)?;
        let told = self.told[DESTINATION].moved();
        let present = self.copy.present.covered();
        let size = self.copy.size;
        let moved = size.map_or(told, |size| size.saturating_sub(present));
        self.observer.moved(moved);
        Ok(Arrived {
            bytes: moved,
            unproven,
        })
    }

    /// The source is gone, and its data connections end: hears what the destination has stored.
    async fn hear_last_words(&mut self, destination: &mut Session) {
        if self.copy.settings.mode != TransferMode::Extended {
            return;
        }
        if !self.told[DESTINATION].has_begun() {
            return self.call_off(destination).await;
        }
        // Data may still come, if only the control connection is gone.
        let heard =
            async { while self.stored.is_none() && self.hear_destination(destination).await {} };
        let _ = timeout(FAREWELL, heard).await;
    }

    /// Ends the wait of the destination for data connections that will not come, and reads its replies, so that the session can be
    /// used again. One that does not answer gets no further command.
    async fn call_off(&mut self, destination: &mut Session) {
        let heard = async {
            let sent = destination.control().send(&Command::Abor).await;
            while sent.is_ok()
                && !destination.is_usable()
                && self.hear_destination(destination).await
            {}
        };
        let _ = timeout(ABORTING, heard).await;
        // Of a server without the command, the reply to it could be taken for that to the transfer.
        let has_both = destination.is_usable();
        self.stored
            .take_if(|reply| !has_both || reply.code() == ABORTED);
    }

    /// Hears the next reply of the destination, after the source has failed. Whether there may be further ones.
    async fn hear_destination(&mut self, destination: &mut Session) -> bool {
        let Ok(reply) = destination.control().next_reply().await else {
            return false;
        };
        let counted = self.limits[DESTINATION].count(self.copy.store().verb(), &reply);
        if let Some(last) = self.hear(DESTINATION, reply) {
            // The next one is that of `ABOR`.
            self.stored.get_or_insert(last);
        }
        counted.is_ok()
    }

    /// Whether the source has failed before it has sent any data.
    fn is_refused(&self) -> bool {
        !self.told[SOURCE].has_begun() && self.sent.as_ref().is_some_and(Reply::is_error)
    }

    /// Whether the destination has not begun for so long after the source has called a restarted file complete that nothing will come.
    fn waits_in_vain(&self) -> bool {
        let has_time = self.sent_at.elapsed() < FAREWELL.min(self.copy.stall);
        let waits = self.stored.is_none() && !self.told[DESTINATION].has_begun();
        waits && !has_time && self.unsent().is_some()
    }

    /// The failure of a source that has called a restarted file complete without sending what the destination lacked. `None` if that is
    /// not so, or not known.
    fn unsent(&self) -> Option<TransferFailure> {
        let is_called_complete = self.sent.as_ref().is_some_and(Reply::is_completion);
        let present = &self.copy.present;
        if present.is_empty() || !is_called_complete {
            return None;
        }
        let destination = &self.told[DESTINATION];
        let asked = self.copy.size?.saturating_sub(present.covered());
        let arrived = destination.stored_besides(present);
        let arrived = arrived.max(destination.moved()).min(asked);
        let is_missing = arrived < asked || !destination.has_begun();
        is_missing.then_some(TransferFailure::Unsent { asked, arrived })
    }

    /// What the destination of a restarted file lacked, and has not told to have stored. Its size does not show a hole, if the end of the file
    /// was there before. A stream leaves none.
    fn unproven(&self) -> RangeSet {
        let copy = self.copy;
        let may_have_holes = copy.settings.mode == TransferMode::Extended
            && copy.part.is_none()
            && !copy.present.is_empty();
        let size = copy.size.filter(|_| may_have_holes).unwrap_or(0);
        let known = self.told[DESTINATION].stored_with(&copy.present);
        let mut unproven = RangeSet::new();
        known
            .missing_in(0..size)
            .for_each(|gap| unproven.insert(gap));
        unproven
    }

    /// Notes what a server says; returns its last reply.
    fn hear(&mut self, server: usize, reply: Reply) -> Option<Reply> {
        let told = &mut self.told[server];
        let most = self.copy.size.unwrap_or(u64::MAX);
        match Said::of(reply) {
            Said::Stored(ranges) if server == DESTINATION => {
                let end = part::end(self.copy.part, self.copy.size);
                let ranges = said::before(end, ranges);
                if self.stored_there.advance_to(told.stores(&ranges), most) {
                    self.watch.progressed();
                }
                self.observer.stored(&ranges);
            }
            // What a source stores is no part of this copy.
            Said::Stored(_) => {}
            Said::Moved(marker) => {
                let moved = told.moves(&marker);
                if server == DESTINATION {
                    self.observer.stripes(told.stripes());
                }
                if moved.min(most) > self.shown {
                    self.shown = moved.min(most);
                    self.observer.moved(self.shown);
                }
                if self.moved.advance_to(moved, most) {
                    self.watch.progressed();
                } else if self.has_all(moved) {
                    self.watch.hears();
                }
            }
            Said::Begins if told.begins() => {
                if server == DESTINATION {
                    self.observer.receives();
                }
                self.watch.progressed();
            }
            Said::Begins | Said::Works => {
                let moved = told.moved();
                if self.has_all(moved) {
                    self.watch.hears();
                }
            }
            Said::Last(reply) => {
                match reply.is_completion() {
                    true => self.watch.progressed(),
                    // The other one waits for data connections, or for data.
                    false => self.watch.shorten(),
                }
                return Some(reply);
            }
        }
        None
    }

    /// Whether the silence of the servers means something: they report no progress of a stream. A server that is
    /// gone breaks its control channel.
    fn must_speak(&self) -> bool {
        self.copy.settings.mode == TransferMode::Extended
            || self.sent.is_some()
            || self.stored.is_some()
    }

    /// Whether all bytes have moved, as far as that is known: the servers write to disk.
    fn has_all(&self, moved: u64) -> bool {
        let all = moved.saturating_add(self.copy.present.covered());
        self.copy.size.is_none_or(|size| all >= size)
    }

    /// The error of one server comes before the silence of the other one, which follows from it.
    fn silence(self) -> TransferFailure {
        let unsent = self.unsent();
        let refused = |command: Command, reply| ControlError::Refused {
            verb: command.verb(),
            reply,
        };
        match (self.sent, self.stored) {
            (Some(reply), _) if reply.is_error() => {
                TransferFailure::Source(refused(self.copy.retrieve(), reply))
            }
            (_, Some(reply)) if reply.is_error() => {
                TransferFailure::Destination(refused(self.copy.store(), reply))
            }
            _ => unsent.unwrap_or_else(|| TransferFailure::Stalled(self.watch.limit())),
        }
    }
}

/// The error of the destination is told if both have one, except that an error before any data is that of the source. `unsent` is the
/// failure if nothing has come because the source has sent nothing.
fn finished(
    copy: &ThirdPartyCopy,
    sent: Option<Reply>,
    stored: Option<Reply>,
    unsent: Option<TransferFailure>,
) -> Result<(), TransferFailure> {
    let (retrieve, store) = (copy.retrieve().verb(), copy.store().verb());
    if let Some(unsent) = unsent
        && stored.as_ref().is_none_or(is_about_data_connections)
    {
        return Err(unsent);
    }
    if let Some(reply) = sent {
        let is_opening = reply.code() / 10 == 55;
        if is_opening {
            return Err(TransferFailure::Source(ControlError::Refused {
                verb: retrieve,
                reply,
            }));
        }
        if let Some(stored) = stored {
            accepted(store, stored).map_err(TransferFailure::Destination)?;
        }
        accepted(retrieve, reply).map_err(TransferFailure::Source)?;
    }
    Ok(())
}

/// Whether the destination has failed because it had no data connection, or because one has ended (RFC 959 4.2).
fn is_about_data_connections(reply: &Reply) -> bool {
    matches!(reply.code(), 425 | 426)
}
