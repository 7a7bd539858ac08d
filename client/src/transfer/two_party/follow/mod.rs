//! Follows both ends of a transfer to their last words, and compares them.

mod ending;

use std::time::{Duration, Instant};

use gridhaul_protocol::command::TransferMode;
use gridhaul_protocol::ranges::RangeSet;
use gridhaul_protocol::reply::Reply;
use gridhaul_transfer::{Answer, Outcome};
use tokio::time::{Interval, MissedTickBehavior, interval};

use super::super::local_end::{LocalTransfer, Sums};
use super::super::said::{self, ReplyLimit, Said, Told};
use super::super::stall::{Claims, StallWatch};
use super::super::{ByteStream, Observer, TransferFailure, verify};
use super::{Direction, FileCopy};
use crate::control::ControlError;
use crate::session::Session;

/// How often progress is looked at.
const TICK: Duration = Duration::from_millis(100);

/// A transfer that both ends call complete.
pub(super) struct Complete {
    pub(super) outcome: Outcome,
    /// Of both ends, if the file was compared before it got its name.
    pub(super) checksum: Option<String>,
}

/// A transfer under way.
pub(super) struct Following<'a> {
    copy: &'a FileCopy,
    observer: &'a mut dyn Observer,
    watch: StallWatch,
    told: Told,
    /// What the server says to have stored.
    claims: Claims,
    /// It says to have stored what is behind the end of the file.
    is_beyond: bool,
    limit: ReplyLimit,
    /// The last reply of the server.
    reply: Option<Reply>,
    /// When it came.
    replied: Instant,
    /// The end of the transfer here.
    outcome: Option<Outcome>,
    /// The end has come, and may have been looked at.
    has_ended: bool,
    /// The file has arrived here, and waits for consent.
    sums: Option<Sums>,
    /// The server has connected to this machine, as far as that is asked for.
    is_connected: bool,
    started: Instant,
}

impl<'a> Following<'a> {
    pub(super) fn new(copy: &'a FileCopy, observer: &'a mut dyn Observer) -> Self {
        Self {
            copy,
            observer,
            watch: StallWatch::new(copy.stall),
            told: Told::default(),
            claims: Claims::new(copy.stall),
            is_beyond: false,
            limit: ReplyLimit::new(),
            reply: None,
            replied: Instant::now(),
            outcome: None,
            has_ended: false,
            sums: None,
            is_connected: copy.first_connection.is_none(),
            started: Instant::now(),
        }
    }

    /// Waits for both ends.
    pub(super) async fn run(
        &mut self,
        session: &mut Session,
        local: &mut LocalTransfer,
    ) -> Result<Complete, TransferFailure> {
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut checksum = None;
        loop {
            if let (Some(reply), Some(sums)) = (&self.reply, &self.sums)
                && reply.is_completion()
            {
                let sums = sums.clone();
                checksum = self.consent(session, local, &sums).await?;
                self.sums = None;
            }
            if self.reply.is_some()
                && let Some(outcome) = self.outcome.take()
                && let Some(reply) = self.reply.take()
            {
                let outcome = self.check(reply, outcome)?;
                return Ok(Complete { outcome, checksum });
            }
            self.step(session, local, &mut ticks).await?;
        }
    }

    /// Waits for the next event of either end.
    async fn step(
        &mut self,
        session: &mut Session,
        local: &mut LocalTransfer,
        ticks: &mut Interval,
    ) -> Result<(), TransferFailure> {
        tokio::select! {
            reply = session.control().next_reply(), if self.reply.is_none() => {
                let reply = reply.map_err(|error| self.copy.of_server(error))?;
                let counted = self.limit.count(self.copy.command().verb(), &reply);
                counted.map_err(|error| self.copy.of_server(error))?;
                self.hear(reply, local)?;
            }
            sums = local.arrival.next() => {
                self.watch.progressed();
                self.sums = Some(sums);
                self.look_for_end(local)?;
            }
            outcome = &mut local.finished, if !self.has_ended => {
                self.has_ended = true;
                let outcome = outcome.map_err(|_| TransferFailure::Lost)?;
                self.note_connection(outcome.channels);
                if self.told.has_begun() {
                    self.observer.moved(outcome.bytes);
                }
                match outcome.result.is_err() {
                    true => self.watch.shorten(),
                    false => self.watch.progressed(),
                }
                self.outcome = Some(outcome);
            }
            _ = ticks.tick() => self.look(local)?,
        }
        Ok(())
    }

    fn hear(&mut self, reply: Reply, local: &LocalTransfer) -> Result<(), TransferFailure> {
        let waits_here = self.sums.is_some() || self.has_ended;
        match Said::of(reply) {
            Said::Stored(ranges) if self.copy.direction == Direction::Put => {
                self.is_beyond |= ranges.end() > self.copy.end();
                let ranges = said::before(self.copy.end(), ranges);
                let sent = local.moved().saturating_add(self.copy.present.covered());
                if self.claims.advance_to(self.told.stores(&ranges), sent) {
                    self.watch.progressed();
                }
                self.observer.stored(&ranges);
            }
            // What is stored here this machine knows itself.
            Said::Stored(_) => {}
            Said::Begins if self.told.begins() => {
                self.watch.progressed();
                // A small file may have been sent before the reply.
                if let Some(outcome) = &self.outcome {
                    self.observer.moved(outcome.bytes);
                }
            }
            // While bytes are to move, only bytes count.
            Said::Begins | Said::Moved(_) | Said::Works if waits_here => self.watch.hears(),
            Said::Begins | Said::Moved(_) | Said::Works => {}
            Said::Last(reply) => {
                match reply.is_completion() {
                    true => self.watch.progressed(),
                    false => self.watch.shorten(),
                }
                (self.reply, self.replied) = (Some(reply), Instant::now());
                return self.look_for_end(local);
            }
        }
        Ok(())
    }

    fn look(&mut self, local: &LocalTransfer) -> Result<(), TransferFailure> {
        let bytes = local.moved();
        // Before the server begins, bytes are only in buffers.
        if !self.has_ended && self.told.has_begun() && self.watch.has_moved_to(bytes) {
            self.observer.channels(&local.running.channels());
            self.observer.moved(bytes);
        }
        self.look_for_connection(local)?;
        self.look_for_end(local)?;
        self.note_received(local);
        let stream = self.copy.stream.as_ref();
        if local.running.is_settling() || stream.is_some_and(ByteStream::waits) {
            self.watch.works();
        }
        if !self.watch.is_overdue() {
            return Ok(());
        }
        let within = self.watch.limit();
        // The error of this machine comes before the silence of the server, which follows from it.
        Err(match (self.outcome.take(), &self.reply) {
            (Some(outcome), None) => match outcome.result {
                Err(error) => TransferFailure::of_local(error),
                Ok(()) => {
                    let verb = self.copy.command().verb();
                    self.copy.of_server(ControlError::Silent { verb, within })
                }
            },
            (_, Some(reply)) if !reply.is_completion() => self.refused(reply.clone()),
            (_, Some(_)) => {
                let unsent = self.unsent(local.moved());
                unsent.unwrap_or(TransferFailure::Stalled(within))
            }
            _ => TransferFailure::Stalled(within),
        })
    }

    /// Whether the server has connected, as long as that is of interest.
    fn look_for_connection(&mut self, local: &LocalTransfer) -> Result<(), TransferFailure> {
        if !self.is_connected {
            self.note_connection(local.running.survey().channels);
        }
        match self.copy.first_connection {
            Some(limit) if !self.is_connected && self.started.elapsed() >= limit => {
                let words = format!("no connection within {} s", limit.as_secs());
                Err(TransferFailure::Unreachable(words))
            }
            _ => Ok(()),
        }
    }

    fn note_connection(&mut self, channels: usize) {
        if !self.is_connected && channels > 0 {
            self.is_connected = true;
            self.observer.connected();
        }
    }

    /// What a failure comes from: before a connection, a server that does not mention the file could not connect.
    pub(super) fn cause(&self, failure: TransferFailure) -> TransferFailure {
        match &failure {
            TransferFailure::Source(ControlError::Refused { reply, .. })
                if !self.is_connected && !is_about_file(reply) =>
            {
                TransferFailure::Unreachable(failure.to_string())
            }
            _ => failure,
        }
    }

    /// Whether the markers of the server say that it has stored a whole file of this size, which has bytes.
    pub(super) fn has_stored(&self, size: u64) -> bool {
        // Markers of a part do not count from the beginning of the file, and those of a restart may tell only what was sent.
        let is_whole = self.copy.part.is_none() && self.copy.present.is_empty();
        is_whole && size > 0 && !self.is_beyond && self.told.has_stored(size)
    }

    fn note_received(&mut self, local: &LocalTransfer) {
        if self.copy.direction != Direction::Get || self.copy.stream.is_some() {
            return;
        }
        let stored = match self.copy.settings.mode {
            TransferMode::Extended => local.running.take_received(),
            // Bytes of a stream have moved when they are in the file.
            TransferMode::Stream => {
                let start = self.copy.present.end();
                RangeSet::from(start..start.saturating_add(local.moved()))
            }
        };
        if !stored.is_empty() {
            self.observer.stored(&stored);
        }
    }

    /// Compares a file that has arrived with that of the server, and lets it get its name.
    async fn consent(
        &mut self,
        session: &mut Session,
        local: &LocalTransfer,
        sums: &Sums,
    ) -> Result<Option<String>, TransferFailure> {
        self.check_length(local.moved())?;
        let checksum = match self.copy.verify {
            None => None,
            Some(algorithm) => {
                let source =
                    verify::checksum_of_server(session, algorithm, &self.copy.remote, None).await;
                let source = source.map_err(TransferFailure::Source)?;
                let here = sums.iter().find(|(known, _)| *known == algorithm);
                let here = here.map(|(_, sum)| sum.clone()).unwrap_or_default();
                let compared = verify::compared(source.clone(), here.clone(), false);
                if compared.is_err() {
                    local.answer(Answer::WrongChecksum {
                        computed: here,
                        expected: source,
                    });
                }
                Some(compared?)
            }
        };
        local.answer(Answer::Complete);
        self.watch.progressed();
        Ok(checksum)
    }
}

/// RFC 959 4.2.1: x3z is about accounts, x5z about the file system. globus-gridftp-server says 500 if it cannot connect.
fn is_about_file(reply: &Reply) -> bool {
    matches!(reply.code() / 10 % 10, 3 | 5)
}
