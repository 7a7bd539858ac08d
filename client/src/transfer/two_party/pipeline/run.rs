//! The commands and replies of a pipeline.

use std::collections::VecDeque;

use gridhaul_protocol::feature::SimpleFeature;
use gridhaul_protocol::ranges::RangeSet;
use gridhaul_protocol::reply::Reply;
use tokio::time::Interval;

use super::super::super::ahead::{Budget, Heard, Silence, Supply, ticks};
use super::super::super::dates::Dates;
use super::super::super::said::ReplyLimit;
use super::super::super::{TransferFailure, Transferred};
use super::super::{Direction, FileCopy};
use super::flight::Flight;
use super::here::{Here, HereEnd, check_length};
use crate::session::{Session, StoredMarkers};

pub(super) struct Pipeline<'a> {
    /// The first file, for what all have in common.
    pub(super) model: &'a FileCopy,
    first: Option<FileCopy>,
    supply: &'a mut dyn Supply<FileCopy>,
    flights: VecDeque<Flight>,
    /// Uploads that are stored, and get their times.
    dates: Dates,
    pub(super) here: HereEnd<'a>,
    /// Uploads are compared with what the server says to have stored.
    is_checked: bool,
    /// Those of the server.
    pub(super) markers: StoredMarkers,
    silence: Silence,
    limit: ReplyLimit,
}

impl<'a> Pipeline<'a> {
    pub(super) fn new(
        here: HereEnd<'a>,
        session: &Session,
        model: &'a FileCopy,
        first: FileCopy,
        supply: &'a mut dyn Supply<FileCopy>,
    ) -> Self {
        Self {
            here,
            is_checked: model.direction == Direction::Put && session.has(SimpleFeature::Size),
            markers: session.markers(),
            model,
            first: Some(first),
            supply,
            flights: VecDeque::new(),
            dates: Dates::default(),
            silence: Silence::new(model.stall),
            limit: ReplyLimit::new(),
        }
    }

    pub(super) async fn run(&mut self, session: &mut Session) -> Result<(), TransferFailure> {
        let mut ticks = ticks();
        loop {
            self.fill(session).await?;
            self.advance(session).await?;
            if !self.flights.is_empty() || self.dates.are_owed() {
                self.step(session, &mut ticks).await?;
            } else if self.first.is_none() {
                return Ok(());
            }
        }
    }

    /// Sends the commands of further files, those of several together.
    async fn fill(&mut self, session: &mut Session) -> Result<(), TransferFailure> {
        let mut budget = Budget::new(self.supply.most(), self.flights.iter().map(Flight::cost));
        budget.add_commands(self.dates.command_bytes());
        if !budget.is_low() {
            return Ok(());
        }
        let mut verb = None;
        while budget.has_room() {
            let Some(copy) = self.first.take().or_else(|| self.supply.next()) else {
                break;
            };
            // There is no marker of an empty file.
            let asks_size =
                self.is_checked && (self.markers != StoredMarkers::Sizes || copy.size == Some(0));
            let flight = Flight::prepare(session, copy, asks_size);
            let flight = flight.map_err(|error| self.model.of_server(error))?;
            budget.add(flight.cost());
            verb = Some(flight.copy.command().verb());
            if self.flights.is_empty() {
                self.silence.ends();
            }
            self.flights.push_back(flight);
            self.dates.note_sent();
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
    async fn advance(&mut self, session: &mut Session) -> Result<(), TransferFailure> {
        loop {
            self.here.consent(&self.flights)?;
            let is_started = self.here.start(&mut self.flights)?;
            let is_complete = self.complete(session).await?;
            if !is_started && !is_complete {
                break;
            }
        }
        let sent = self.dates.send(session.control()).await;
        sent.map_err(|error| self.model.of_server(error))
    }

    /// Completes the oldest file, unless it gets its time before.
    async fn complete(&mut self, session: &mut Session) -> Result<bool, TransferFailure> {
        let oldest = self.flights.front_mut();
        let Some(flight) = oldest.filter(|flight| flight.is_complete()) else {
            return Ok(false);
        };
        if self.is_checked {
            let stored = flight.is_stored();
            self.markers = flight.ahead.judged(self.markers, stored.is_ok());
            stored?;
        }
        let checksum = flight.compared().await?;
        let Some(outcome) = flight.outcome.take() else {
            return Err(TransferFailure::Lost);
        };
        check_length(&flight.copy, outcome.bytes)?;
        let took = flight.sent.elapsed();
        let movement = outcome.movement.as_ref();
        let done = Transferred {
            bytes: outcome.bytes,
            channels: outcome.channels,
            took,
            movement: movement.map(|movement| movement.way.to_owned()),
            reason: movement.map(|movement| movement.reason.to_string()),
            details: outcome.details,
            checksum,
            unproven: RangeSet::new(),
        };
        let dated = (&flight.copy.remote, flight.copy.modified);
        let added = self.dates.add(session.control(), dated, done);
        added.map_err(|error| self.model.of_server(error))?;
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

    /// Waits for the next event of either end.
    async fn step(
        &mut self,
        session: &mut Session,
        ticks: &mut Interval,
    ) -> Result<(), TransferFailure> {
        let is_owed = self.awaiting().is_some() || self.dates.are_owed();
        tokio::select! {
            biased;
            event = self.here.next() => {
                self.silence.watch.progressed();
                match event {
                    Here::Arrived(sums) => self.here.arrived(sums),
                    Here::Ended(outcome) => self.here.ended(&mut self.flights, *outcome?)?,
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

    /// The oldest file whose commands have not all been answered.
    fn awaiting(&mut self) -> Option<&mut Flight> {
        let mut flights = self.flights.iter_mut();
        flights.find(|flight| !flight.ahead.is_answered())
    }

    /// Whether the next reply is to a command that gives a file its time.
    fn awaits_date(&self) -> bool {
        let flights = self.flights.iter();
        let answered = flights.take_while(|flight| flight.ahead.is_answered());
        self.dates.are_next(self.flights.len() - answered.count())
    }

    /// Matches a reply with the oldest command that awaits one.
    fn hear(&mut self, reply: Reply) -> Result<(), TransferFailure> {
        if self.awaits_date() {
            return self.hear_date(reply);
        }
        let counted = self.limit.count(self.model.command().verb(), &reply);
        counted.map_err(|error| self.model.of_server(error))?;
        let Some(flight) = self.awaiting() else {
            return Ok(());
        };
        let heard = flight.hear(reply);
        match heard.map_err(|error| self.model.of_server(error))? {
            // A server sends markers also if no data comes.
            Heard::Marker => {}
            Heard::Works => self.silence.hears(),
            Heard::Begins => {
                // The limit is that of one file.
                self.limit = ReplyLimit::new();
                self.silence.progressed();
            }
            Heard::Last => self.silence.watch.progressed(),
        }
        Ok(())
    }

    fn hear_date(&mut self, reply: Reply) -> Result<(), TransferFailure> {
        let limit = &mut self.limit;
        let heard = self.dates.hear(reply, limit, &mut self.silence);
        heard.map_err(|error| self.model.of_server(error))?;
        self.complete_dated();
        Ok(())
    }

    /// Matches a reply that comes after the pipeline has failed.
    pub(super) fn hear_late(&mut self, reply: Reply) {
        if self.awaits_date() {
            // A file without its time is copied again.
            let _ = self.dates.settle(reply);
        } else if let Some(flight) = self.awaiting() {
            // It decides only about what is at the server.
            let _ = flight.hear(reply);
        }
    }

    /// Tells which files may have the content of others at the server: data went to the file behind one that it refused.
    pub(super) fn doubt(&mut self) {
        for (place, flight) in self.flights.iter().enumerate() {
            if flight.copy.direction == Direction::Put
                && let Some(doubt) = flight.ahead.doubt()
            {
                self.supply.doubt(self.dates.len() + place, doubt);
            }
        }
    }

    fn look(&mut self) -> Result<(), TransferFailure> {
        if let Some(running) = self.here.running() {
            let moved = running.moved();
            if self.silence.watch.has_moved_to(moved) {
                self.silence.ends();
            }
            if running.running.is_settling() {
                self.silence.watch.works();
            }
        }
        let oldest = self.flights.front();
        let waits = oldest.is_some_and(|flight| !flight.ahead.has_begun);
        self.silence.check(waits)
    }
}
