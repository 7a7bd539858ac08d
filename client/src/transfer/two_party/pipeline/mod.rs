//! Several files without waiting in between: commands are sent before the replies to earlier ones, as `globus-url-copy -pp` does.
//!
//! ```text
//!   commands   ALLO STOR | ALLO STOR | ALLO STOR | ...      at most so many files ahead
//!   data                 [file] [file] [file]               MODE E: over the same channels, one file after the other
//!   replies                       200 125 226 | 200 125 226 | ...
//! ```
//!
//! Replies have no names, so they are matched by their order. A file is complete when the replies of the server show that
//! its own transfer has begun and ended, and all bytes have moved here. Anything else ends the pipeline: data channels do not say which file
//! a block belongs to, so after an error of one file they cannot be used for the next one. The files that are not complete are
//! copied by themselves, and that attempt has the error of the file.

mod flight;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gridhaul_protocol::command::Command;
use gridhaul_protocol::reply::Reply;
use gridhaul_transfer::{Answer, CancelReason, NodeSession, Outcome};
use tokio::time::{Interval, MissedTickBehavior, interval, timeout};

pub use self::flight::Piped;
use self::flight::{Flight, Heard, prepare};
use super::super::local_end::LocalTransfer;
use super::super::said::Pace;
use super::super::stall::{FAREWELL, StallWatch};
use super::super::{TransferFailure, Transferred};
use super::{Direction, FileCopy, open_port};
use crate::control::ControlError;
use crate::session::Session;

/// Received files of at most this size arrive in the buffers of the kernel, so they are stored when the server has confirmed them.
const BUFFERED: u64 = 16 << 10;

/// The bytes of files ahead. More would only take them away from other sessions.
const MOST_BYTES: u64 = 8 << 20;

/// The bytes of commands ahead: a server that reads none during a transfer must have room for all of them, because the client would
/// wait for it without serving the transfer.
const MOST_COMMAND_BYTES: usize = 8 << 10;

/// A server that has not begun a file after so long may have discarded the command.
const LONGEST_SILENCE: Duration = Duration::from_secs(30);

/// How long the replies to commands that were sent ahead for files from the server may take after an error.
const DRAIN: Duration = Duration::from_secs(2);

const TICK: Duration = Duration::from_millis(100);

/// The files of a pipeline.
pub trait Supply: Send {
    /// The next file, if one waits now. It goes the same way as the first one, with the same settings.
    fn next(&mut self) -> Option<Piped>;

    /// The oldest file that has no result is complete.
    fn complete(&mut self, done: Transferred);
}

/// Copies files one after the other; `most` of them are ahead. Ends when none waits.
///
/// # Errors
///
/// When a file fails. Those that [`Supply::complete`] was not called for may be there or not. The session can be used again if
/// [`Session::is_usable`] says so.
pub async fn pipeline(
    session: &mut Session,
    files: &Arc<dyn NodeSession>,
    first: Piped,
    most: usize,
    supply: &mut dyn Supply,
) -> Result<(), TransferFailure> {
    let copy = first.copy.clone();
    let of_server = |error| copy.of_server(error);
    session.settle(&copy.settings).await.map_err(of_server)?;
    if copy.direction == Direction::Put {
        session.settle_markers().await.map_err(of_server)?;
    }
    let channels = copy.channels(files);
    let are_open = session.takes_kept(&channels);
    if !are_open {
        open_port(session, &**files, &copy).await?;
    }
    let mut pipeline = Pipeline::new(&**files, &copy, first, most, supply);
    pipeline.are_open = are_open;
    let ended = pipeline.run(session).await;
    if let Err(failure) = ended {
        pipeline.give_up().await;
        files.release();
        let is_settled = settle(session, &failure, &copy).await;
        return Err(match is_settled || copy.direction == Direction::Get {
            true => failure,
            false => TransferFailure::Unsettled(Box::new(failure)),
        });
    }
    if session.control().has_unread() {
        session.control().note_out_of_step();
    }
    session.keep(channels);
    Ok(())
}

/// Waits until the server has carried out the commands that were sent ahead. A `STOR` that it carries out later would replace the file
/// that was copied there in the meantime. Returns whether it has.
async fn settle(session: &mut Session, failure: &TransferFailure, copy: &FileCopy) -> bool {
    let limit = match copy.direction {
        // Late commands change nothing.
        Direction::Get | Direction::List => DRAIN,
        Direction::Put => copy.stall,
    };
    let is_matched = !is_out_of_step(failure);
    if !is_matched {
        session.control().note_out_of_step();
        // Its reply is the last one, and the connection ends behind it.
        if session.control().send(&Command::Quit).await.is_err() {
            return false;
        }
    }
    let settled = async {
        loop {
            if is_matched && session.is_usable() {
                return true;
            }
            if let Err(error) = session.control().next_reply().await {
                return matches!(error, ControlError::Closed);
            }
        }
    };
    timeout(limit, settled).await.unwrap_or(false)
}

/// Whether replies came that do not fit the commands.
pub fn is_out_of_step(failure: &TransferFailure) -> bool {
    matches!(
        failure,
        TransferFailure::Source(ControlError::Unexpected { .. })
            | TransferFailure::Destination(ControlError::Unexpected { .. })
    )
}

struct Pipeline<'a> {
    files: &'a dyn NodeSession,
    /// The first file, for what all have in common.
    model: &'a FileCopy,
    first: Option<Piped>,
    most: usize,
    supply: &'a mut dyn Supply,
    flights: VecDeque<Flight>,
    /// There are data channels. Before, the server may wait for a handshake with this machine.
    are_open: bool,
    /// The transfer here, which is that of the last file that was started.
    running: Option<LocalTransfer>,
    /// It waits for consent.
    has_arrived: bool,
    watch: StallWatch,
    pace: Pace,
    silence: Instant,
}

/// What the transfer here does.
enum Here {
    Arrived,
    Ended(Result<Box<Outcome>, TransferFailure>),
}

impl<'a> Pipeline<'a> {
    fn new(
        files: &'a dyn NodeSession,
        model: &'a FileCopy,
        first: Piped,
        most: usize,
        supply: &'a mut dyn Supply,
    ) -> Self {
        Self {
            files,
            model,
            first: Some(first),
            most,
            supply,
            flights: VecDeque::new(),
            are_open: false,
            running: None,
            has_arrived: false,
            watch: StallWatch::new(model.stall),
            pace: Pace::new(),
            silence: Instant::now(),
        }
    }

    async fn run(&mut self, session: &mut Session) -> Result<(), TransferFailure> {
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            self.fill(session).await?;
            self.advance()?;
            if !self.flights.is_empty() {
                self.step(session, &mut ticks).await?;
            } else if self.first.is_none() {
                return Ok(());
            }
        }
    }

    /// Sends the commands of further files, those of several together.
    async fn fill(&mut self, session: &mut Session) -> Result<(), TransferFailure> {
        if self.flights.len() > self.most / 2 {
            return Ok(());
        }
        let owed = self.flights.iter().filter(|flight| !flight.owed.is_empty());
        let mut command_bytes: usize = owed.map(|flight| flight.command_bytes).sum();
        let sizes = self
            .flights
            .iter()
            .map(|flight| flight.copy.size.unwrap_or(0));
        let mut bytes: u64 = sizes.sum();
        let mut verb = None;
        while self.flights.len() < self.most
            && bytes < MOST_BYTES
            && command_bytes < MOST_COMMAND_BYTES
        {
            let Some(piped) = self.first.take().or_else(|| self.supply.next()) else {
                break;
            };
            let flight = prepare(session, piped).map_err(|error| self.model.of_server(error))?;
            bytes += flight.copy.size.unwrap_or(0);
            command_bytes += flight.command_bytes;
            verb = Some(flight.copy.command().verb());
            if self.flights.is_empty() {
                self.silence = Instant::now();
            }
            self.flights.push_back(flight);
        }
        match verb {
            Some(verb) => {
                let sent = session.control().send_prepared(verb).await;
                sent.map_err(|error| self.model.of_server(error))
            }
            None => Ok(()),
        }
    }

    /// Starts and completes what can be without waiting.
    fn advance(&mut self) -> Result<(), TransferFailure> {
        loop {
            self.consent()?;
            let is_started = self.start()?;
            let is_complete = self.complete()?;
            if !is_started && !is_complete {
                return Ok(());
            }
        }
    }

    /// Starts the next file here, if there is none under way.
    fn start(&mut self) -> Result<bool, TransferFailure> {
        if self.running.is_some() {
            return Ok(false);
        }
        let Some(flight) = self.flights.iter_mut().find(|flight| !flight.is_started) else {
            return Ok(false);
        };
        let copy = &flight.copy;
        let (files, plan) = (self.files, copy.plan());
        let mut running = match (copy.direction, copy.size) {
            (Direction::Get, Some(bytes)) if bytes <= BUFFERED && self.are_open => {
                if !flight.is_confirmed {
                    return Ok(false);
                }
                LocalTransfer::start_here(files, plan, Some(bytes))
            }
            (Direction::Get, _) => LocalTransfer::start(files, plan, copy.asks_consent()),
            _ => LocalTransfer::start_here(files, plan, None),
        };
        flight.is_started = true;
        match running.finished.try_recv() {
            Ok(outcome) => self.ended(outcome)?,
            Err(_) => self.running = Some(running),
        }
        Ok(true)
    }

    /// Lets a file that has arrived get its name, when the server has confirmed it.
    fn consent(&mut self) -> Result<(), TransferFailure> {
        let Some(running) = self.running.as_ref().filter(|_| self.has_arrived) else {
            return Ok(());
        };
        let started = self.flights.iter().rfind(|flight| flight.is_started);
        let Some(flight) = started.filter(|flight| flight.is_confirmed) else {
            return Ok(());
        };
        check_length(&flight.copy, running.moved())?;
        running.answer(Answer::Complete);
        self.has_arrived = false;
        Ok(())
    }

    /// Completes the oldest file.
    fn complete(&mut self) -> Result<bool, TransferFailure> {
        let is_complete = |flight: &Flight| flight.owed.is_empty() && flight.outcome.is_some();
        if !self.flights.front().is_some_and(is_complete) {
            return Ok(false);
        }
        let flight = self.flights.pop_front();
        let Some(Flight {
            copy,
            sent,
            outcome: Some(outcome),
            ..
        }) = flight
        else {
            return Err(TransferFailure::Lost);
        };
        check_length(&copy, outcome.bytes)?;
        self.silence = Instant::now();
        let movement = outcome.movement.as_ref();
        self.supply.complete(Transferred {
            bytes: outcome.bytes,
            channels: outcome.channels,
            took: sent.elapsed(),
            movement: movement.map(|movement| movement.way.to_owned()),
            reason: movement.map(|movement| movement.reason.to_string()),
            details: outcome.details,
            checksum: None,
        });
        Ok(true)
    }

    /// Waits for the next event of either end.
    async fn step(
        &mut self,
        session: &mut Session,
        ticks: &mut Interval,
    ) -> Result<(), TransferFailure> {
        let is_owed = self.flights.iter().any(|flight| !flight.owed.is_empty());
        tokio::select! {
            biased;
            here = here(&mut self.running) => {
                self.watch.progressed();
                match here {
                    Here::Arrived => self.has_arrived = true,
                    Here::Ended(outcome) => self.ended(*outcome?)?,
                }
            }
            reply = session.control().next_reply(), if is_owed => {
                let reply = reply.map_err(|error| self.model.of_server(error))?;
                self.hear(reply)?;
            }
            _ = ticks.tick() => self.look()?,
        }
        Ok(())
    }

    fn ended(&mut self, outcome: Outcome) -> Result<(), TransferFailure> {
        (self.running, self.has_arrived) = (None, false);
        let started = self.flights.iter_mut().rfind(|flight| flight.is_started);
        let Some(flight) = started else {
            return Err(TransferFailure::Lost);
        };
        match outcome.result {
            // The server may say why. It is asked by the copy of this file alone.
            Err(error) => Err(TransferFailure::of_local(error)),
            Ok(()) => {
                self.are_open = true;
                flight.outcome = Some(outcome);
                Ok(())
            }
        }
    }

    /// Matches a reply with the oldest command that awaits one.
    fn hear(&mut self, reply: Reply) -> Result<(), TransferFailure> {
        let awaiting = self
            .flights
            .iter_mut()
            .find(|flight| !flight.owed.is_empty());
        let Some(flight) = awaiting else {
            return Ok(());
        };
        // Those that begin a file are as many as files.
        let paced = match reply.code() {
            125 | 150 => Ok(()),
            _ => self.pace.count(self.model.command().verb(), &reply),
        };
        let heard = flight
            .hear(reply)
            .map_err(|error| self.model.of_server(error))?;
        match heard {
            // GFD.20 120: the file waits at the server, or is brought from tape.
            Heard::Nothing => {
                paced.map_err(|error| self.model.of_server(error))?;
                self.silence = Instant::now();
                self.watch.hears();
            }
            Heard::Begins => {
                self.silence = Instant::now();
                self.watch.progressed();
            }
            Heard::Last => self.watch.progressed(),
        }
        Ok(())
    }

    fn look(&mut self) -> Result<(), TransferFailure> {
        if let Some(running) = &self.running {
            let moved = running.moved();
            if self.watch.has_moved_to(moved) {
                self.silence = Instant::now();
            }
            if running.running.is_settling() {
                self.watch.works();
            }
        }
        let waits = self.flights.front().is_some_and(|flight| !flight.has_begun);
        let silence = self.silence.elapsed();
        if self.watch.is_overdue() || waits && silence >= LONGEST_SILENCE {
            return Err(TransferFailure::Stalled(self.watch.limit().min(silence)));
        }
        Ok(())
    }

    /// Ends the transfer here.
    async fn give_up(&mut self) {
        if let Some(mut running) = self.running.take() {
            running.running.cancel(CancelReason::ControlChannelLost);
            // What a file system does not end in time, it ends later.
            let _ = timeout(FAREWELL, &mut running.finished).await;
        }
    }
}

/// Waits for the transfer here. For ever if there is none.
async fn here(running: &mut Option<LocalTransfer>) -> Here {
    let Some(running) = running else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = running.arrival.next() => Here::Arrived,
        outcome = &mut running.finished => {
            Here::Ended(outcome.map(Box::new).map_err(|_| TransferFailure::Lost))
        }
    }
}

fn check_length(copy: &FileCopy, copied: u64) -> Result<(), TransferFailure> {
    match copy.size {
        Some(expected) if expected != copied => Err(TransferFailure::Length { expected, copied }),
        _ => Ok(()),
    }
}
