//! The commands and replies of a pipeline.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use gridhaul_protocol::command::Command;
use gridhaul_protocol::ranges::RangeSet;
use gridhaul_protocol::reply::Reply;
use gridhaul_stack::Details;
use tokio::time::Interval;

use super::super::super::ahead::{self, Ahead, Budget, Cost, Heard, Silence, Step, Supply, ticks};
use super::super::super::dates::Dates;
use super::super::super::said::ReplyLimit;
use super::super::super::{TransferFailure, Transferred, verify};
use super::super::ThirdPartyCopy;
use crate::control::ControlError;
use crate::session::{Session, StoredMarkers};

/// A file whose commands were sent.
struct Flight {
    copy: ThirdPartyCopy,
    sent: Instant,
    /// What was said to each server and by it.
    ends: [Ahead; 2],
    /// A server has refused it.
    is_refused: bool,
}

/// The places in [`Flight::ends`].
const SOURCE: usize = 0;
const DESTINATION: usize = 1;

impl Flight {
    /// Prepares the commands of a file.
    fn prepare(
        source: &mut Session,
        destination: &mut Session,
        (copy, asks_size): (ThirdPartyCopy, bool),
    ) -> Result<Self, TransferFailure> {
        let (from, to) = (TransferFailure::Source, TransferFailure::Destination);
        let bytes = copy.size.unwrap_or(0);
        let announce = Command::Allo {
            bytes,
            record_bytes: None,
        };
        let mut store = vec![(Step::Announce, announce), (Step::Move, copy.store())];
        if asks_size {
            store.push((Step::Size, Command::Size(copy.destination.clone())));
        }
        let mut retrieve = vec![(Step::Move, copy.retrieve())];
        if let Some(algorithm) = copy.verify {
            store.push(ahead::sum(algorithm, &copy.destination).map_err(to)?);
            retrieve.push(ahead::sum(algorithm, &copy.source).map_err(from)?);
        }
        let retrieve = Ahead::prepare(source.control(), &retrieve).map_err(from)?;
        let store = Ahead::prepare(destination.control(), &store).map_err(to)?;
        Ok(Self {
            copy,
            sent: Instant::now(),
            ends: [retrieve, store],
            is_refused: false,
        })
    }

    fn cost(&self) -> Cost {
        let commands = self.ends.iter().map(Ahead::unread_bytes);
        Cost {
            bytes: self.copy.size.unwrap_or(0),
            command_bytes: commands.max().unwrap_or(0),
        }
    }

    fn is_answered(&self) -> bool {
        self.ends.iter().all(Ahead::is_answered)
    }

    /// Compares the copy with the source; returns the checksum of both.
    fn compared(&self) -> Result<Option<String>, TransferFailure> {
        let [source, destination] = &self.ends;
        // A file of unknown size is not in a pipeline.
        if let Some(expected) = self.copy.size {
            self.copy
                .check_length(expected, destination.copied(expected))?;
        }
        match (&source.sum, &destination.sum) {
            (None, None) => Ok(None),
            (one, other) => {
                let [one, other] = [one, other].map(|sum| sum.clone().unwrap_or_default());
                verify::compared(one, other, true).map(Some)
            }
        }
    }
}

pub(super) struct Pipeline<'a> {
    first: Option<ThirdPartyCopy>,
    supply: &'a mut dyn Supply<ThirdPartyCopy>,
    flights: VecDeque<Flight>,
    /// Files that are stored, and get their times.
    dates: Dates,
    /// Those of the destination.
    pub(super) markers: StoredMarkers,
    /// What a server has said when it refused a file. Files before that one may become complete.
    refusal: Option<TransferFailure>,
    stall: Duration,
    silence: Silence,
    limits: [ReplyLimit; 2],
}

impl<'a> Pipeline<'a> {
    pub(super) fn new(first: ThirdPartyCopy, supply: &'a mut dyn Supply<ThirdPartyCopy>) -> Self {
        Self {
            stall: first.stall,
            silence: Silence::new(first.stall),
            limits: [ReplyLimit::new(), ReplyLimit::new()],
            first: Some(first),
            supply,
            flights: VecDeque::new(),
            dates: Dates::default(),
            markers: StoredMarkers::Unknown,
            refusal: None,
        }
    }

    /// Without progress for so long, the pipeline has failed.
    pub(super) fn stall(&self) -> Duration {
        self.stall
    }

    pub(super) async fn run(
        &mut self,
        source: &mut Session,
        destination: &mut Session,
    ) -> Result<(), TransferFailure> {
        let mut ticks = ticks();
        loop {
            self.fill(source, destination).await?;
            while self.complete(destination)? {}
            let dated = self.dates.send(destination.control()).await;
            dated.map_err(TransferFailure::Destination)?;
            let oldest = self.flights.front();
            if oldest.is_some_and(|flight| flight.is_refused)
                && let Some(refusal) = self.refusal.take()
            {
                return Err(refusal);
            }
            if !self.flights.is_empty() || self.dates.are_owed() {
                self.step(source, destination, &mut ticks).await?;
            } else if self.first.is_none() {
                return Ok(());
            }
        }
    }

    /// Sends the commands of further files, those of several together: first to the destination, which listens.
    async fn fill(
        &mut self,
        source: &mut Session,
        destination: &mut Session,
    ) -> Result<(), TransferFailure> {
        let mut budget = Budget::new(self.supply.most(), self.flights.iter().map(Flight::cost));
        budget.add_commands(self.dates.command_bytes());
        if self.refusal.is_some() || !budget.is_low() {
            return Ok(());
        }
        let mut verbs = None;
        while budget.has_room() {
            let Some(copy) = self.first.take().or_else(|| self.supply.next()) else {
                break;
            };
            // There is no marker of an empty file.
            let asks_size = self.markers != StoredMarkers::Sizes || copy.size == Some(0);
            let flight = Flight::prepare(source, destination, (copy, asks_size))?;
            budget.add(flight.cost());
            verbs = Some((flight.copy.store().verb(), flight.copy.retrieve().verb()));
            if self.flights.is_empty() {
                self.silence.ends();
            }
            self.flights.push_back(flight);
            self.dates.note_sent();
        }
        if let Some((store, retrieve)) = verbs {
            let sent = destination.control().send_prepared(store).await;
            sent.map_err(TransferFailure::Destination)?;
            let sent = source.control().send_prepared(retrieve).await;
            sent.map_err(TransferFailure::Source)?;
        }
        Ok(())
    }

    /// Completes the oldest file, unless it gets its time before.
    fn complete(&mut self, destination: &mut Session) -> Result<bool, TransferFailure> {
        let is_complete = |flight: &Flight| flight.is_answered() && !flight.is_refused;
        let Some(flight) = self.flights.front().filter(|flight| is_complete(flight)) else {
            return Ok(false);
        };
        let compared = flight.compared();
        let is_right = !matches!(compared, Err(TransferFailure::Length { .. }));
        self.markers = flight.ends[DESTINATION].judged(self.markers, is_right);
        let checksum = compared?;
        let done = Transferred {
            bytes: flight.copy.size.unwrap_or(0),
            channels: usize::from(flight.copy.settings.parallelism),
            took: flight.sent.elapsed(),
            movement: None,
            reason: None,
            details: Details::default(),
            checksum,
            unproven: RangeSet::new(),
        };
        let dated = (&flight.copy.destination, flight.copy.modified);
        let added = self.dates.add(destination.control(), dated, done);
        added.map_err(TransferFailure::Destination)?;
        self.flights.pop_front();
        self.silence.ends();
        self.complete_dated();
        Ok(true)
    }

    /// Completes the files that have their times.
    pub(super) fn complete_dated(&mut self) {
        while let Some(done) = self.dates.next() {
            self.supply.complete(done);
        }
    }

    /// Waits for the next reply of either server.
    async fn step(
        &mut self,
        source: &mut Session,
        destination: &mut Session,
        ticks: &mut Interval,
    ) -> Result<(), TransferFailure> {
        let mut owe = [SOURCE, DESTINATION].map(|end| self.awaiting(end).is_some());
        owe[DESTINATION] |= self.dates.are_owed();
        tokio::select! {
            reply = source.control().next_reply(), if owe[SOURCE] => {
                self.hear(SOURCE, reply.map_err(TransferFailure::Source)?)?;
            }
            reply = destination.control().next_reply(), if owe[DESTINATION] => {
                self.hear(DESTINATION, reply.map_err(TransferFailure::Destination)?)?;
            }
            _ = ticks.tick() => self.look()?,
        }
        Ok(())
    }

    /// The oldest file whose commands a server has not all answered.
    fn awaiting(&mut self, end: usize) -> Option<&mut Flight> {
        let mut flights = self.flights.iter_mut();
        flights.find(|flight| !flight.ends[end].is_answered())
    }

    /// Matches a reply with the oldest command that awaits one.
    fn hear(&mut self, end: usize, reply: Reply) -> Result<(), TransferFailure> {
        if end == DESTINATION && self.awaits_date() {
            return self.hear_date(reply);
        }
        let verb = match end {
            SOURCE => "RETR",
            _ => "STOR",
        };
        let counted = self.limits[end].count(verb, &reply);
        counted.map_err(|error| of_end(end, error))?;
        let Some(flight) = self.awaiting(end) else {
            return Ok(());
        };
        match flight.ends[end].hear(reply, true) {
            // The destination sends markers also if no data comes.
            Ok(Heard::Marker) => {}
            Ok(Heard::Works) => self.silence.hears(),
            Ok(Heard::Begins) => {
                // The limit is that of one file.
                self.limits[end] = ReplyLimit::new();
                self.silence.progressed();
            }
            Ok(Heard::Last) => self.silence.watch.progressed(),
            Err(error @ ControlError::Refused { .. }) => {
                flight.is_refused = true;
                self.refusal.get_or_insert_with(|| of_end(end, error));
                // The other server waits for data, or for its confirmation.
                self.silence.watch.shorten();
            }
            Err(error) => return Err(of_end(end, error)),
        }
        Ok(())
    }

    /// Whether the next reply of the destination is to a command that gives a file its time.
    fn awaits_date(&self) -> bool {
        let flights = self.flights.iter();
        let answered = flights.take_while(|flight| flight.ends[DESTINATION].is_answered());
        self.dates.are_next(self.flights.len() - answered.count())
    }

    fn hear_date(&mut self, reply: Reply) -> Result<(), TransferFailure> {
        let limit = &mut self.limits[DESTINATION];
        let heard = self.dates.hear(reply, limit, &mut self.silence);
        heard.map_err(TransferFailure::Destination)?;
        self.complete_dated();
        Ok(())
    }

    /// Whether the source has refused the oldest file before it has sent any of it.
    pub(super) fn lacks_data(&self, failure: &TransferFailure) -> bool {
        let is_refusal = matches!(
            failure,
            TransferFailure::Source(ControlError::Refused { .. })
        );
        let oldest = self.flights.front();
        is_refusal && oldest.is_some_and(|flight| !flight.ends[SOURCE].has_begun)
    }

    /// Matches a reply of the destination that comes after the pipeline has failed.
    pub(super) fn hear_late(&mut self, reply: Reply) {
        if self.awaits_date() {
            // A file without its time is copied again.
            let _ = self.dates.settle(reply);
        } else if let Some(flight) = self.awaiting(DESTINATION) {
            // It decides only about what is at the server.
            let _ = flight.ends[DESTINATION].hear(reply, true);
        }
    }

    /// Tells which files may have the content of others at the destination.
    pub(super) fn doubt(&mut self) {
        for (place, flight) in self.flights.iter().enumerate() {
            if let Some(doubt) = flight.ends[DESTINATION].doubt() {
                self.supply.doubt(self.dates.len() + place, doubt);
            }
        }
    }

    fn look(&mut self) -> Result<(), TransferFailure> {
        let oldest = self.flights.front();
        let has_begun = |flight: &Flight| flight.ends.iter().all(|end| end.has_begun);
        let waits = oldest.is_some_and(|flight| !has_begun(flight));
        let checked = self.silence.check(waits);
        checked.map_err(|stalled| self.refusal.take().unwrap_or(stalled))
    }
}

fn of_end(end: usize, error: ControlError) -> TransferFailure {
    match end {
        SOURCE => TransferFailure::Source(error),
        _ => TransferFailure::Destination(error),
    }
}
