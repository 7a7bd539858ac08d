//! Control connections: how many there may be, in all, from one network, and before login.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use gridhaul_transfer::AddressBlock;
use tokio::sync::Notify;

use super::Network;
use super::dice::Dice;
use super::penalties::{Misconduct, Penalties};
use super::startups::{self, Displaced, MaxStartups, Startups};

/// How many connections there may be.
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
    penalties: Penalties,
    dice: Dice,
    last_id: u64,
}

/// The place of one connection. Dropping it makes room for another one.
#[derive(Debug)]
pub(crate) struct Place {
    connections: Arc<Connections>,
    address: IpAddr,
    network: Network,
    id: u64,
    is_logged_in: bool,
    closed: Arc<Notify>,
}

/// Why a connection is turned away.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ConnectionRefusal {
    /// `max-connections`.
    #[error("Connection limit exceeded")]
    Total,
    /// `max-connections-per-address`, or what is left of `max-connections`.
    #[error("Connection limit for your address exceeded")]
    Network,
    /// `max-startups`.
    #[error("Connection limit for clients that have not logged in exceeded")]
    Startups,
    /// Penalties.
    #[error("Too many connections from your address have failed to log in; limit exceeded")]
    Penalty,
}

/// A network that has connections may take another one only while it has fewer than so many times the free ones, so
/// that some stay free for a network that has none (the dynamic threshold of Choudhury and Hahne, 1998). Of 2000
/// connections one network gets some 1780 if `max-connections-per-address` allows it, two get 940 each, ten 197 each.
const TIMES_FREE: usize = 8;

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
            penalties,
            dice,
            last_id: 0,
        };
        Arc::new(Self {
            state: Mutex::new(state),
        })
    }

    /// Counts connections by new limits; those that exist stay.
    pub(crate) fn set(&self, room: Room) {
        let mut state = self.lock();
        state.penalties.exempt(room.exempt.clone());
        state.room = room;
    }

    /// Gives a new connection from `address` a place, if need be that of another one, or says why there is none.
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
        Ok(Place {
            connections: Arc::clone(self),
            address,
            network,
            id,
            is_logged_in: false,
            closed,
        })
    }

    /// Closes a connection that has not logged in, because the process has no descriptors left.
    pub(crate) fn give_one_back(&self) {
        let mut state = self.lock();
        let State { startups, dice, .. } = &mut *state;
        let displaced = startups.displace_any(dice);
        state.displaced(displaced);
    }

    /// Connections that exist now.
    pub(crate) fn total(&self) -> usize {
        self.lock().total
    }

    /// Those of them that have not logged in.
    pub(crate) fn startups(&self) -> usize {
        self.lock().startups.count()
    }

    /// The counts are whole at every unlock, so a panic elsewhere does not spoil them.
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

    /// Each limit makes room among connections that have not logged in, or refuses the newcomer.
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

    /// It does not count from now on, though its session may need a moment to end.
    fn displaced(&mut self, displaced: Option<Displaced>) -> Option<()> {
        let displaced = displaced?;
        self.uncount(displaced.network);
        displaced.close();
        Some(())
    }

    fn uncount(&mut self, network: Network) {
        self.total -= 1;
        if let Some(count) = self.by_network.get_mut(&network) {
            *count -= 1;
            if *count == 0 {
                self.by_network.remove(&network);
            }
        }
    }
}

impl Place {
    /// The client has logged in: it keeps its place. `proved` means with a password or a certificate, which speaks
    /// for the network that it comes from.
    pub(crate) fn logged_in(&mut self, proved: bool, now: Instant) {
        let mut state = self.connections.lock();
        // One that is displaced already ends at once.
        self.is_logged_in |= state.startups.remove(self.network, self.id);
        if proved {
            state.penalties.forgive(self.network, now);
        }
    }

    /// Adds a penalty for the network.
    pub(crate) fn penalize(&self, misconduct: Misconduct, now: Instant) {
        let mut state = self.connections.lock();
        if state.penalties.concerns(self.address) {
            state.penalties.add(self.network, misconduct, now);
        }
    }

    /// Completes when another connection got this place. The session must end then.
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
        // A displaced one does not count any more.
        if self.is_logged_in || state.startups.remove(self.network, self.id) {
            state.uncount(self.network);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const ONE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));
    const TWO: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 2));
    const THREE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 3));

    fn connections(total: usize, per_network: usize, startups: &str) -> Arc<Connections> {
        let room = Room {
            connections: total,
            per_network,
            startups: startups.parse().expect(startups),
            exempt: Vec::new(),
        };
        Connections::with_dice(room, Dice::seeded(3))
    }

    fn user(connections: &Arc<Connections>, address: IpAddr) -> Result<Place, ConnectionRefusal> {
        let now = Instant::now();
        let mut place = connections.admit(address, now)?;
        place.logged_in(true, now);
        Ok(place)
    }

    fn is_displaced(place: &Place) -> bool {
        let mut displaced = Box::pin(place.displaced());
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        displaced.as_mut().poll(&mut context).is_ready()
    }

    #[test]
    fn users_are_counted_in_all_and_by_network() {
        let connections = connections(3, 2, "10:30:10");
        let first = user(&connections, ONE).expect("one");
        let _second = user(&connections, ONE).expect("two");
        let refusal = user(&connections, ONE).expect_err("too many");
        assert_eq!(refusal, ConnectionRefusal::Network);
        let _third = user(&connections, TWO).expect("three");
        let refusal = user(&connections, TWO).expect_err("too many");
        assert_eq!(refusal, ConnectionRefusal::Total);
        drop(first);
        assert_eq!(connections.total(), 2);
        let _fourth = user(&connections, ONE).expect("there is room again");
    }

    #[test]
    fn the_addresses_of_one_ipv6_network_are_one() {
        let connections = connections(100, 2, "10:30:10");
        let address = |text: &str| text.parse::<IpAddr>().expect(text);
        let _places = ["2001:db8::1", "2001:db8::ffff:2"]
            .map(|text| user(&connections, address(text)).expect(text));
        let refusal = user(&connections, address("2001:db8::3")).expect_err("the same network");
        assert_eq!(refusal, ConnectionRefusal::Network);
        user(&connections, address("2001:db8:0:1::1")).expect("another network");
    }

    #[test]
    fn nothing_is_kept_of_networks_that_are_gone() {
        let connections = connections(3, 2, "10:30:10");
        drop(connections.admit(ONE, Instant::now()).expect("one"));
        drop(user(&connections, ONE).expect("one"));
        let state = connections.lock();
        assert!(state.by_network.is_empty() && state.total == 0);
        assert_eq!(state.startups.count(), 0);
    }

    #[test]
    fn two_networks_of_silent_connections_leave_a_third_its_place() {
        let connections = connections(200, 100, "50:30:120");
        let now = Instant::now();
        let silent: Vec<Place> = (0..200)
            .filter_map(|number| connections.admit([ONE, TWO][number % 2], now).ok())
            .collect();
        assert_eq!(connections.startups(), 120);
        let third = connections.admit(THREE, now).expect("a place");
        assert_eq!(connections.startups(), 120);
        assert_eq!(silent.iter().filter(|place| is_displaced(place)).count(), 1);
        assert!(!is_displaced(&third));
        drop(silent);
        assert_eq!(connections.total(), 1);
    }

    #[test]
    fn users_of_two_networks_leave_a_third_its_place() {
        let connections = connections(200, 200, "50:30:120");
        let users: Vec<Place> = (0..400)
            .filter_map(|number| user(&connections, [ONE, TWO][number % 2]).ok())
            .collect();
        assert_eq!(users.len(), 189, "eleven are kept free");
        let _third = user(&connections, THREE).expect("a place");
        assert!(users.iter().all(|place| !is_displaced(place)));
    }

    #[test]
    fn silent_connections_do_not_keep_users_of_the_same_network_out() {
        let connections = connections(200, 20, "150:30:150");
        let now = Instant::now();
        let silent: Vec<Place> = (0..20)
            .map(|_| connections.admit(ONE, now).expect("a place"))
            .collect();
        // They could be about to log in.
        let refusal = connections
            .admit(ONE, now)
            .expect_err("the network's limit");
        assert_eq!(refusal, ConnectionRefusal::Network);
        let later = now + Duration::from_secs(6);
        let mut place = connections.admit(ONE, later).expect("a place");
        place.logged_in(true, later);
        assert_eq!(silent.iter().filter(|place| is_displaced(place)).count(), 1);
    }

    #[test]
    fn hundreds_of_clients_of_one_site_log_in_at_the_same_second() {
        let room = Room {
            connections: 2000,
            per_network: 1000,
            startups: MaxStartups::default(),
            exempt: Vec::new(),
        };
        let connections = Connections::with_dice(room, Dice::seeded(3));
        let now = Instant::now();
        let places: Vec<Place> = (0..1000)
            .map(|_| connections.admit(ONE, now).expect("a place"))
            .collect();
        assert!(places.iter().all(|place| !is_displaced(place)));
    }

    #[test]
    fn a_network_that_misbehaves_is_refused_and_its_sessions_stay() {
        let connections = connections(200, 100, "50:30:120");
        let now = Instant::now();
        let running = user(&connections, ONE).expect("a place");
        let refused = |now| {
            (0..100)
                .filter(|_| connections.admit(ONE, now).is_err())
                .count()
        };
        assert_eq!(refused(now), 0);
        for _ in 0..100 {
            running.penalize(Misconduct::Garbage, now);
        }
        assert!(refused(now) > 70);
        assert!(!is_displaced(&running));
        connections.admit(TWO, now).expect("another network");
        assert_eq!(refused(now + Duration::from_secs(120)), 0);
    }

    #[test]
    fn descriptors_are_taken_from_those_who_have_most() {
        let connections = connections(200, 100, "50:30:120");
        let now = Instant::now();
        let places = [ONE, ONE, TWO].map(|address| connections.admit(address, now).expect("room"));
        connections.give_one_back();
        let gone = places.iter().filter(|place| is_displaced(place));
        let gone: Vec<Network> = gone.map(|place| place.network).collect();
        assert_eq!(gone, [Network::of(ONE)]);
    }
}
