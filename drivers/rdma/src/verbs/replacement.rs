//! Replaces lost queue pairs; `slot` describes how.

use std::io;
use std::net::IpAddr;

use super::adapter::{Adapter, Rail};
use super::bindings::PORT_NEEDS_GLOBAL_ROUTES;
use super::control_socket::{Notice, Step};
use super::ports::Protocol;
use super::slot::{Connecting, Content, LEAST_INTERVAL, Proof};
use super::sysfs;
use super::{Failure, VerbsEndpoint};
use crate::clock;
use crate::provider::{Completion, Loss, PortRecord, QueuePairRecord, rail_of};

impl VerbsEndpoint {
    /// Replaces a queue pair now, or a while after the last time if nothing got through since.
    pub(super) fn replace(&mut self, number: usize) {
        match self.slots[number].waits_until(clock::now()) {
            None => self.replace_now(number),
            Some(due) => {
                if let Err(error) = self.retries.add(number, due, &self.watch) {
                    self.give_up(number, &error);
                }
            }
        }
    }

    /// Begins the next generation of a queue pair, and notifies the peer.
    fn replace_now(&mut self, number: usize) {
        if let Err(error) = self.begin_generation(number) {
            self.give_up(number, &error);
        }
    }

    /// Replaces the queue pairs whose time has come.
    pub(super) fn retry(&mut self) {
        if !self.limits.replaces {
            // They are reported as lost when the peer ends.
            return self.retries.stop();
        }
        for number in self.retries.take_due(clock::now()) {
            self.replace_now(number);
        }
    }

    /// The peer would wait for the queue pair as long as others work.
    fn give_up(&mut self, number: usize, error: &io::Error) {
        // Without a connection the peer has noticed.
        let _ = self.notify(number, Step::GivenUp);
        self.fail(
            number,
            format!("the queue pair cannot be replaced: {error}"),
        );
    }

    pub(super) fn fail(&mut self, queue_pair: usize, words: String) {
        self.failures.push(Failure {
            queue_pair,
            generation: self.slots[queue_pair].generation,
            loss: Loss::Failed(words),
        });
    }

    /// Reports failures, unless another generation has begun since, or is waited for.
    pub(super) fn report_failures(&mut self, completions: &mut Vec<Completion>) {
        for failure in std::mem::take(&mut self.failures) {
            let Failure {
                queue_pair, loss, ..
            } = failure;
            let slot = &mut self.slots[queue_pair];
            if slot.generation != failure.generation || self.retries.has(queue_pair) {
                continue;
            }
            if slot.current.is_some() {
                self.lose(queue_pair, loss, completions);
            } else {
                slot.clear();
                completions.push(Completion::Lost { queue_pair, loss });
            }
        }
    }

    pub(super) fn begin_generation(&mut self, number: usize) -> io::Result<()> {
        // An address may be absent for a moment, as while a bond changes its link: the attempt counts, and fails where the queue
        // pair is connected.
        let rail = rail_of(number, self.rails.len());
        self.refresh_port(rail);
        self.search_route(rail);
        let generation = self.slots[number].next_generation();
        let adapter = self.adapter(number);
        let generation = generation.ok_or_else(|| {
            let absence = adapter.absence.clone();
            io::Error::other(absence.unwrap_or_else(|| "nothing got through several times".into()))
        })?;
        if adapter.is_broken {
            return Err(io::Error::other("its device has had a fatal error"));
        }
        let mut connecting = self.queue_pair(number, generation)?;
        if self.rails.len() > 1 {
            connecting.proof = Proof::Wanted;
        }
        let step = Step::Replaced(connecting.record(), self.rails[rail].path.port);
        self.slots[number].connecting = Some(connecting);
        self.notify(number, step)
    }

    /// Reads the addresses of a rail's port again, and keeps the earlier ones where they are absent. Since the channel was opened, a
    /// subnet manager may have given it another LID or subnet prefix, and the kernel may have moved its GID in the table.
    fn refresh_port(&mut self, rail: usize) {
        let Rail { adapter, path, .. } = &mut self.rails[rail];
        let adapter = &mut self.adapters[*adapter];
        // A device that does not tell fails when a queue pair is created.
        if let Ok(port) = adapter.device.port(adapter.place.port.number) {
            path.port.lid = port.lid;
            path.needs_global_routes = port.flags & PORT_NEEDS_GLOBAL_ROUTES != 0;
            // A queue pair cannot be connected with an MTU above the active one.
            let active = u8::try_from(port.active_mtu).unwrap_or(1);
            path.port.mtu = path.port.mtu.min(active);
        }
        // A port may have hundreds of files, and a channel several queue pairs.
        let now = clock::now();
        let is_recent = |at| now < at + LEAST_INTERVAL;
        if !adapter.refreshed_at.is_some_and(is_recent) {
            adapter.refreshed_at = Some(now);
            adapter.absence = adapter.refresh_place().err();
        }
        // Another rail over the same port may have refreshed it.
        let place = &adapter.place;
        path.move_to(place.gid, place.gid_index);
        path.partition = place.partition;
        path.port.partition = place.partition.key.0;
    }

    pub(super) fn notify(&self, number: usize, step: Step) -> io::Result<()> {
        let control = self.control.as_ref().ok_or(io::ErrorKind::NotConnected)?;
        control.send(Notice {
            queue_pair: u8::try_from(number).map_err(io::Error::other)?,
            generation: self.slots[number].generation,
            step,
        })
    }

    /// The peer replaces a queue pair, so this end does too.
    pub(super) fn handle_notice(&mut self, notice: Notice, completions: &mut Vec<Completion>) {
        let number = usize::from(notice.queue_pair);
        if number >= self.slots.len() || !self.limits.replaces {
            return;
        }
        let generation = self.slots[number].generation;
        let is_next = Some(notice.generation) == generation.checked_add(1);
        if notice.step == Step::GivenUp {
            if is_next || notice.generation == generation {
                self.peer_gave_up(number, completions);
            }
            return;
        }
        if is_next {
            // The peer noticed the loss first, or has begun another generation.
            if self.slots[number].clear() == Content::Connected {
                completions.push(Completion::Lost {
                    queue_pair: number,
                    loss: Loss::Reset,
                });
            }
            self.retries.remove(number);
            self.replace_now(number);
        }
        if notice.generation != self.slots[number].generation {
            return;
        }
        let heard = match notice.step {
            Step::Replaced(record, port) => self
                .accept_port(number, port)
                .and_then(|()| self.connect_replacement(number, record)),
            Step::Connected => {
                if let Some(connecting) = &mut self.slots[number].connecting {
                    connecting.peer_is_connected = true;
                }
                Ok(())
            }
            Step::GivenUp => Ok(()),
        };
        self.proceed(number, heard, completions);
    }

    /// Takes the next step of a replacement after one that may have failed: it is tested and used when both ends are connected.
    pub(super) fn proceed(
        &mut self,
        number: usize,
        step: io::Result<()>,
        completions: &mut Vec<Completion>,
    ) {
        let proven = step.and_then(|()| {
            let connecting = self.slots[number].connecting.as_mut();
            connecting.map_or(Ok(()), Connecting::prove)
        });
        if let Err(error) = proven {
            return self.lose(number, Loss::Failed(error.to_string()), completions);
        }
        if self.slots[number].promote() {
            completions.push(Completion::Restored { queue_pair: number });
        }
    }

    fn peer_gave_up(&mut self, number: usize, completions: &mut Vec<Completion>) {
        self.retries.remove(number);
        let words = match &self.adapter(number).absence {
            // The other end waited for this one.
            Some(absence) => format!("the queue pair cannot be replaced: {absence}"),
            None => "the other end could not replace the queue pair".to_owned(),
        };
        let lost = Completion::Lost {
            queue_pair: number,
            loss: Loss::Failed(words),
        };
        // The first loss of a connected queue pair is one that may be restored.
        if self.slots[number].clear() == Content::Connected {
            completions.push(lost.clone());
        }
        completions.push(lost);
    }

    /// The peer's port of a rail is addressed in this way from now on. As in the handshake, RoCE packets go to no
    /// other host than before, unless an administrator allows it.
    fn accept_port(&mut self, number: usize, port: PortRecord) -> io::Result<()> {
        let on_rail = rail_of(number, self.rails.len());
        let rail = &mut self.rails[on_rail];
        let before = rail.peer_port.map(|before| before.gid);
        let is_routable = rail.path.protocol == Protocol::Roce;
        let allows_any = self.adapters[rail.adapter].place.allows_any_peer();
        if is_routable && !allows_any && before != Some(port.gid) {
            let address = IpAddr::V6(port.gid.into()).to_canonical();
            return Err(io::Error::other(format!(
                "the adapter of the other end has another address now, {address}"
            )));
        }
        if before != Some(port.gid) {
            // The route led to the earlier one.
            rail.path.route = None;
        }
        rail.peer_port = Some(port);
        self.search_route(on_rail);
        Ok(())
    }

    /// Connects a replacement queue pair to the peer's, when the path is known and the rail may.
    fn connect_replacement(&mut self, number: usize, peer: QueuePairRecord) -> io::Result<()> {
        let on_rail = rail_of(number, self.rails.len());
        let rail = self.rails[on_rail];
        let others_work = self.others_work(on_rail);
        let slot = &mut self.slots[number];
        let (Some(connecting), Some(port)) = (&mut slot.connecting, &rail.peer_port) else {
            return Ok(());
        };
        if connecting.is_connected {
            return Ok(());
        }
        slot.connects_later = Some(peer);
        if self.adapters[rail.adapter].route_search.is_some() {
            return Ok(());
        }
        let begins = clock::now();
        if let Some(due) = self.turns.waits_until(on_rail, others_work, begins)
            && self.later.add(number, due, &self.watch).is_ok()
        {
            return Ok(());
        }
        slot.connects_later = None;
        rail.path.check(port).map_err(io::Error::other)?;
        let connected = rail.path.connect(connecting, port, peer);
        let now = clock::now();
        self.turns.took(on_rail, now.saturating_sub(begins), now);
        connected?;
        connecting.is_connected = true;
        if !rail.limit(&mut connecting.queue_pair) {
            self.lift_all_limits();
        }
        self.notify(number, Step::Connected)
    }

    /// Connects a queue pair that has waited.
    pub(super) fn connect_later(&mut self, number: usize, completions: &mut Vec<Completion>) {
        if let Some(peer) = self.slots[number].connects_later.take() {
            let connected = self.connect_replacement(number, peer);
            self.proceed(number, connected, completions);
        }
    }

    /// Connects the queue pairs whose time has come.
    pub(super) fn connect_due(&mut self, completions: &mut Vec<Completion>) {
        let due = self.later.take_due(clock::now());
        if !self.limits.replaces {
            return self.later.stop();
        }
        for number in due {
            self.connect_later(number, completions);
        }
    }

    /// Queue pairs wait while other rails work. If none works any more, their time has come.
    pub(super) fn hurry(&mut self) {
        if self.later.is_empty() || self.slots.iter().any(|slot| slot.current.is_some()) {
            return;
        }
        let now = clock::now();
        for number in 0..self.slots.len() {
            if self.slots[number].connects_later.is_some() {
                // The timer is there, and setting it fails for no valid time.
                let _ = self.later.add(number, now, &self.watch);
            }
        }
    }

    /// Whether another rail has a connected queue pair.
    fn others_work(&self, rail: usize) -> bool {
        let rails = self.rails.len();
        let mut slots = self.slots.iter().enumerate();
        slots.any(|(number, slot)| rail_of(number, rails) != rail && slot.current.is_some())
    }
}

impl Adapter {
    /// Reads the tables of the port again.
    ///
    /// # Errors
    ///
    /// What they lack; the earlier place is kept.
    fn refresh_place(&mut self) -> Result<(), String> {
        let port = self.place.port.read_again(&sysfs::devices());
        self.place = self.place.refreshed(port).ok_or_else(|| {
            let address = IpAddr::V6(self.place.gid.into()).to_canonical();
            format!(
                "{} has no address {address} any more, or is no member of the partition",
                self.place.device()
            )
        })?;
        Ok(())
    }
}
