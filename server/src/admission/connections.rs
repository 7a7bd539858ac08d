//! Limits of control connections: in all, by network, and before login.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use gridhaul_transfer::AddressBlock;
use tokio::sync::Notify;

use super::Network;
use super::dice::Dice;
use super::penalties::{Misconduct, Penalties};
use super::startups::{self, Displaced, Startups};
use crate::config::MaxStartups;
use crate::telemetry::FrontCounts;

/// The limits.
#[derive(Debug, Clone)]
pub(crate) struct Room {
    /// In all.
    pub(crate) connections: usize,
    /// From one network.
    pub(crate) per_network: usize,
    /// Before login.
    pub(crate) startups: MaxStartups,
    /// Networks that get no penalties.
    pub(crate) exempt: Vec<AddressBlock>,
}

/// Counts control connections.
#[derive(Debug)]
pub(crate) struct Connections {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    room: Room,
    total: usize,
    by_network: HashMap<Network, usize>,
    startups: Startups,
    /// Connections of anonymous users, by network.
    unproved: HashMap<Network, usize>,
    penalties: Penalties,
    dice: Dice,
    last_id: u64,
    /// The counters that the serving process reads.
    told: Option<FrontCounts>,
    emptied: Arc<Notify>,
}

/// The place of one connection. Dropping it frees the place.
#[derive(Debug)]
pub(crate) struct Place {
    connections: Arc<Connections>,
    address: IpAddr,
    network: Network,
    id: u64,
    standing: Standing,
    closed: Arc<Notify>,
}

/// The state of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    /// It has not logged in, and may lose its place.
    New,
    /// Its user is anonymous.
    Unproved,
    /// Its user has proved who it is.
    Proved,
}

/// The reason why a connection is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ConnectionRefusal {
    /// `max-connections`.
    #[error("Connection limit exceeded")]
    Total,
    /// `max-connections-per-address`, or the share of the free part of `max-connections`.
    #[error("Connection limit for your address exceeded")]
    Network,
    /// The share of anonymous users in `max-connections`.
    #[error("Connection limit for anonymous users exceeded")]
    Unproved,
    /// `max-startups`.
    #[error("Connection limit for clients that have not logged in exceeded")]
    Startups,
    /// Penalties.
    #[error("Too many connections from your address have failed to log in; limit exceeded")]
    Penalty,
}

/// A network may take another connection only while it has fewer than this factor times the free ones, so that some stay
/// free for new networks (the dynamic threshold of Choudhury and Hahne, 1998). Of 2000 connections one network gets some
/// 1780 if `max-connections-per-address` allows it, two get 940 each, ten 197 each.
const TIMES_FREE: usize = 8;

/// One in this number of `max-connections` is reserved for authenticated users. The number of anonymous users has no bound,
/// because addresses are cheap.
const FOR_PROVED: usize = 8;

impl Connections {
    pub(crate) fn new(room: Room) -> Arc<Self> {
        Self::with_dice(room, Dice::new())
    }

    fn with_dice(room: Room, dice: Dice) -> Arc<Self> {
        let penalties = Penalties::new(room.exempt.clone());
        let state = State {
            room,
            total: 0,
            by_network: HashMap::new(),
            startups: Startups::default(),
            unproved: HashMap::new(),
            penalties,
            dice,
            last_id: 0,
            told: None,
            emptied: Arc::default(),
        };
        Arc::new(Self {
            state: Mutex::new(state),
        })
    }

    /// Writes the counts to these counters from now on.
    pub(crate) fn tell(&self, counts: FrontCounts) {
        self.lock().told = Some(counts);
    }

    /// Sets new limits; existing connections stay.
    pub(crate) fn set(&self, room: Room) {
        let mut state = self.lock();
        state.penalties.exempt(room.exempt.clone());
        state.room = room;
    }

    /// Gives a new connection from `address` a place, if necessary that of another connection, or refuses it.
    pub(crate) fn admit(
        self: &Arc<Self>,
        address: IpAddr,
        now: Instant,
    ) -> Result<Place, ConnectionRefusal> {
        let network = Network::of(address);
        let mut state = self.lock();
        state.refuse_penalized(address, network, now)?;
        state.make_room(network, now)?;
        state.last_id += 1;
        let id = state.last_id;
        let closed = Arc::<Notify>::default();
        state.startups.add(network, id, Arc::clone(&closed), now);
        *state.by_network.entry(network).or_default() += 1;
        state.total += 1;
        state.tell();
        Ok(Place {
            connections: Arc::clone(self),
            address,
            network,
            id,
            standing: Standing::New,
            closed,
        })
    }

    /// Closes a connection before login, because the process has no free descriptors.
    pub(crate) fn give_one_back(&self) {
        let mut state = self.lock();
        let State { startups, dice, .. } = &mut *state;
        let displaced = startups.displace_any(dice);
        state.displaced(displaced);
    }

    /// The number of connections.
    pub(crate) fn total(&self) -> usize {
        self.lock().total
    }

    /// Waits until there are no connections. Only one caller may wait.
    pub(crate) async fn empty(&self) {
        let emptied = Arc::clone(&self.lock().emptied);
        while self.total() > 0 {
            emptied.notified().await;
        }
    }

    /// The number of connections before login.
    pub(crate) fn startups(&self) -> usize {
        self.lock().startups.count()
    }

    /// The counts are complete at every unlock, so a panic elsewhere leaves no partial state.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn refuse_penalized(
        &mut self,
        address: IpAddr,
        network: Network,
        now: Instant,
    ) -> Result<(), ConnectionRefusal> {
        let Self {
            penalties, dice, ..
        } = self;
        if penalties.concerns(address) && penalties.refuses(network, now, dice) {
            return Err(ConnectionRefusal::Penalty);
        }
        Ok(())
    }

    /// Each limit displaces a connection before login, or refuses the newcomer.
    fn make_room(&mut self, network: Network, now: Instant) -> Result<(), ConnectionRefusal> {
        let own = self.by_network.get(&network).copied().unwrap_or(0);
        let free = self.room.connections.saturating_sub(self.total);
        if own >= self.room.per_network || (free > 0 && own >= TIMES_FREE * free) {
            self.displace_own(network, now)
                .ok_or(ConnectionRefusal::Network)?;
        } else if free == 0 {
            self.displace_for(network, now)
                .ok_or(ConnectionRefusal::Total)?;
        }
        match self.startups.room(self.room.startups, &mut self.dice) {
            startups::Room::Enough => Ok(()),
            startups::Room::Short => {
                self.displace_old(network, now);
                Ok(())
            }
            startups::Room::Full => self
                .displace_for(network, now)
                .ok_or(ConnectionRefusal::Startups),
        }
    }

    fn displace_for(&mut self, network: Network, now: Instant) -> Option<()> {
        let displaced = self.startups.displace_for(network, now, &mut self.dice);
        self.displaced(displaced)
    }

    fn displace_own(&mut self, network: Network, now: Instant) -> Option<()> {
        let displaced = self.startups.displace_settled(network, now, &mut self.dice);
        self.displaced(displaced)
    }

    fn displace_old(&mut self, newcomer: Network, now: Instant) {
        let largest = self.startups.largest().unwrap_or(newcomer);
        self.displace_own(largest, now);
    }

    /// The displaced connection does not count from now on, though its session may need a moment to end.
    fn displaced(&mut self, displaced: Option<Displaced>) -> Option<()> {
        let displaced = displaced?;
        self.uncount(displaced.network);
        displaced.close();
        Some(())
    }

    /// Counts a connection of an anonymous user, if the rule of [`TIMES_FREE`] allows it in their share.
    fn add_unproved(&mut self, network: Network) -> Result<(), ConnectionRefusal> {
        let room = self.room.connections - self.room.connections / FOR_PROVED;
        let free = room.saturating_sub(self.unproved.values().sum());
        let own = self.unproved.get(&network).copied().unwrap_or(0);
        if free == 0 || own >= TIMES_FREE * free {
            return Err(ConnectionRefusal::Unproved);
        }
        self.unproved.insert(network, own + 1);
        Ok(())
    }

    fn uncount(&mut self, network: Network) {
        self.total -= 1;
        subtract(&mut self.by_network, network);
        self.tell();
        if self.total == 0 {
            self.emptied.notify_one();
        }
    }

    fn tell(&self) {
        if let Some(told) = &self.told {
            told.open.set(self.total);
            told.before_login.set(self.startups.count());
        }
    }
}

fn subtract(counts: &mut HashMap<Network, usize>, network: Network) {
    if let Some(count) = counts.get_mut(&network) {
        *count = count.saturating_sub(1);
        if *count == 0 {
            counts.remove(&network);
        }
    }
}

impl Place {
    /// The client has logged in, so it keeps its place. `proved` means with a password or a certificate, which pays off
    /// penalties of its network.
    ///
    /// # Errors
    ///
    /// When anonymous users have all of their share, or another connection has taken the place. The connection must end
    /// then.
    pub(crate) fn logged_in(
        &mut self,
        proved: bool,
        now: Instant,
    ) -> Result<(), ConnectionRefusal> {
        let mut state = self.connections.lock();
        let is_displaced =
            self.standing == Standing::New && !state.startups.contains(self.network, self.id);
        if is_displaced {
            // Another connection has taken the place.
            return Err(ConnectionRefusal::Startups);
        }
        match (self.standing, proved) {
            (Standing::New, false) => state.add_unproved(self.network)?,
            (Standing::Unproved, true) => subtract(&mut state.unproved, self.network),
            _ => {}
        }
        if self.standing == Standing::New {
            state.startups.remove(self.network, self.id);
        }
        // An authenticated client keeps its standing after REIN.
        self.standing = if proved || self.standing == Standing::Proved {
            Standing::Proved
        } else {
            Standing::Unproved
        };
        if proved {
            state.penalties.forgive(self.network, now);
        }
        state.tell();
        Ok(())
    }

    /// Adds a penalty for the network.
    pub(crate) fn penalize(&self, misconduct: Misconduct, now: Instant) {
        let mut state = self.connections.lock();
        if state.penalties.concerns(self.address) {
            state.penalties.add(self.network, misconduct, now);
        }
    }

    /// Completes when another connection has taken this place. The session must end then.
    pub(crate) fn displaced(&self) -> impl Future<Output = ()> + Send + use<> {
        let closed = Arc::clone(&self.closed);
        async move { closed.notified().await }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.penalize(Misconduct::Panic, Instant::now());
        }
        let mut state = self.connections.lock();
        match self.standing {
            // A displaced connection does not count any more.
            Standing::New if !state.startups.remove(self.network, self.id) => return,
            Standing::Unproved => subtract(&mut state.unproved, self.network),
            Standing::New | Standing::Proved => {}
        }
        state.uncount(self.network);
    }
}

#[cfg(test)]
mod tests;
