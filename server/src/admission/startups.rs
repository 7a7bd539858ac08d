//! Connections before login, and which of them is displaced when there are too many.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use super::Network;
use super::dice::Dice;
use crate::config::MaxStartups;

/// The connections before login, by network.
#[derive(Debug, Default)]
pub(super) struct Startups {
    count: usize,
    by_network: HashMap<Network, Vec<Startup>>,
}

#[derive(Debug)]
struct Startup {
    id: u64,
    since: Instant,
    closed: Arc<Notify>,
}

/// A connection whose place another one has taken.
#[derive(Debug)]
pub(super) struct Displaced {
    pub(super) network: Network,
    closed: Arc<Notify>,
}

impl Displaced {
    /// Notifies its session.
    pub(super) fn close(self) {
        self.closed.notify_one();
    }
}

/// How a newcomer finds room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Room {
    /// There is room.
    Enough,
    /// A connection should be displaced, if one has waited for long.
    Short,
    /// A connection must be displaced, or the newcomer refused.
    Full,
}

/// A younger connection is probably about to log in. It keeps its place unless another network needs it.
const SETTLED: Duration = Duration::from_secs(5);

impl Startups {
    pub(super) fn count(&self) -> usize {
        self.count
    }

    pub(super) fn add(&mut self, network: Network, id: u64, closed: Arc<Notify>, now: Instant) {
        let since = now;
        let startup = Startup { id, since, closed };
        self.by_network.entry(network).or_default().push(startup);
        self.count += 1;
    }

    pub(super) fn contains(&self, network: Network, id: u64) -> bool {
        let found = self.by_network.get(&network);
        found.is_some_and(|all| all.iter().any(|startup| startup.id == id))
    }

    /// Removes a connection. Returns whether it was there.
    pub(super) fn remove(&mut self, network: Network, id: u64) -> bool {
        let found = self.by_network.get(&network);
        let index = found.and_then(|all| all.iter().position(|startup| startup.id == id));
        index.is_some_and(|index| {
            self.take(network, index);
            true
        })
    }

    /// How a newcomer finds room.
    pub(super) fn room(&self, limits: MaxStartups, dice: &mut Dice) -> Room {
        let Some(over) = self.count.checked_sub(limits.start) else {
            return Room::Enough;
        };
        if self.count >= limits.full {
            return Room::Full;
        }
        let range = limits.full - limits.start;
        let chance = limits.rate * range + (100 - limits.rate) * over;
        if dice.below(100 * range) < chance {
            Room::Short
        } else {
            Room::Enough
        }
    }

    /// Displaces a connection of the network with most connections for one of `newcomer`. If these are the same, only a
    /// connection that has waited for long is displaced. `None` if none is.
    ///
    /// A newcomer of a network without connections always gets a place, even from a network with one: in a crowd of many
    /// addresses each has one. Clients that log in do so within about a second, and an attacker must replace all connections
    /// in this time to keep them out, while it could fill a table that refuses newcomers with one connection per place in
    /// `login-timeout`.
    pub(super) fn displace_for(
        &mut self,
        newcomer: Network,
        now: Instant,
        dice: &mut Dice,
    ) -> Option<Displaced> {
        let own = self.by_network.get(&newcomer).map_or(0, Vec::len);
        let most = self.by_network.values().map(Vec::len).max()?;
        if own == 0 || own + 1 < most {
            return self.displace_largest(most, dice);
        }
        self.displace_settled(newcomer, now, dice)
    }

    /// A network with most connections.
    pub(super) fn largest(&self) -> Option<Network> {
        let largest = self.by_network.iter().max_by_key(|(_, all)| all.len());
        largest.map(|(network, _)| *network)
    }

    /// Closes a connection of the network with most connections.
    pub(super) fn displace_any(&mut self, dice: &mut Dice) -> Option<Displaced> {
        let most = self.by_network.values().map(Vec::len).max()?;
        self.displace_largest(most, dice)
    }

    /// Closes a connection of `network` that has waited for long.
    pub(super) fn displace_settled(
        &mut self,
        network: Network,
        now: Instant,
        dice: &mut Dice,
    ) -> Option<Displaced> {
        let all = self.by_network.get(&network)?;
        let settled = |index: &usize| now.saturating_duration_since(all[*index].since) >= SETTLED;
        let settled: Vec<usize> = (0..all.len()).filter(settled).collect();
        let picks = [(); 2].map(|()| settled.get(dice.below(settled.len())).copied());
        let index = picks
            .into_iter()
            .flatten()
            .min_by_key(|index| all[*index].since)?;
        Some(self.take(network, index))
    }

    /// The older one of two random connections of the networks with `most`. The oldest one would be predictable: an attacker
    /// who replaces all connections once closes all others. A single random one would as often be about to log in as silent.
    fn displace_largest(&mut self, most: usize, dice: &mut Dice) -> Option<Displaced> {
        let largest: Vec<Network> = self
            .by_network
            .iter()
            .filter(|(_, all)| all.len() == most)
            .map(|(network, _)| *network)
            .collect();
        let picks = [(); 2].map(|()| {
            let network = *largest.get(dice.below(largest.len()))?;
            let index = dice.below(most);
            let since = self.by_network.get(&network)?.get(index)?.since;
            Some((since, network, index))
        });
        let (_, network, index) = picks.into_iter().flatten().min()?;
        Some(self.take(network, index))
    }

    /// `index` must be the index of a connection of `network`.
    fn take(&mut self, network: Network, index: usize) -> Displaced {
        let all = self.by_network.entry(network).or_default();
        let Startup { closed, .. } = all.swap_remove(index);
        if all.is_empty() {
            self.by_network.remove(&network);
        }
        self.count -= 1;
        Displaced { network, closed }
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    fn network(number: u32) -> Network {
        Network::of(IpAddr::from((0x0a00_0000 + number).to_be_bytes()))
    }

    fn limits(text: &str) -> MaxStartups {
        text.parse().expect(text)
    }

    #[test]
    fn the_chance_grows_from_the_rate_to_all() {
        let mut startups = Startups::default();
        let mut dice = Dice::seeded(7);
        let now = Instant::now();
        let mut short_at = |startups: &Startups| {
            let rooms = (0..1000).map(|_| startups.room(limits("10:30:20"), &mut dice));
            rooms.filter(|room| *room == Room::Short).count()
        };
        let mut found = Vec::new();
        for id in 0..20 {
            found.push(short_at(&startups));
            startups.add(network(1), id, Arc::default(), now);
        }
        assert_eq!(found[..10], [0; 10]);
        assert!((250..350).contains(&found[10]), "{found:?}");
        assert!((600..700).contains(&found[15]), "{found:?}");
        assert_eq!(startups.room(limits("10:30:20"), &mut dice), Room::Full);
        assert_eq!(startups.room(limits("20:30:20"), &mut dice), Room::Full);
    }

    #[test]
    fn the_network_that_has_most_gives_a_place_back() {
        let mut startups = Startups::default();
        let mut dice = Dice::seeded(7);
        let now = Instant::now();
        for id in 0..100 {
            // Nine of ten are of the first one.
            startups.add(network(u32::from(id % 10 == 0)), id, Arc::default(), now);
        }
        for _ in 0..79 {
            let displaced = startups.displace_for(network(2), now, &mut dice);
            assert_eq!(displaced.expect("room").network, network(0));
        }
        // It has eleven left, and the other ten.
        let displaced = startups.displace_for(network(1), now, &mut dice);
        assert!(displaced.is_none(), "it would have as many");
        // Young connections of the same network keep their places, old ones do not.
        assert!(startups.displace_for(network(0), now, &mut dice).is_none());
        let displaced = startups.displace_for(network(0), now + SETTLED, &mut dice);
        assert_eq!(displaced.expect("room").network, network(0));
        assert_eq!(startups.count(), 20);
    }

    /// A crowd of addresses that never log in, with one connection each, fills the room again and again. A client
    /// that needs a second to log in mostly gets through, as the arithmetic in `displace_for` says.
    #[test]
    fn a_crowd_of_many_addresses_does_not_keep_a_client_out() {
        const ROOM: usize = 300;
        const ARRIVALS_WHILE_LOGGING_IN: usize = 100;
        let mut startups = Startups::default();
        let mut dice = Dice::seeded(7);
        let start = Instant::now();
        let mut id = 0_u32;
        let mut arrive = |startups: &mut Startups, dice: &mut Dice| {
            id += 1;
            let now = start + id * Duration::from_millis(10);
            let network = network(id);
            if startups.count() >= ROOM {
                startups
                    .displace_for(network, now, dice)
                    .expect("always room");
            }
            startups.add(network, u64::from(id), Arc::default(), now);
            (network, u64::from(id))
        };
        for _ in 0..ROOM {
            arrive(&mut startups, &mut dice);
        }
        let mut let_in = 0;
        for _ in 0..1000 {
            let (network, id) = arrive(&mut startups, &mut dice);
            for _ in 0..ARRIVALS_WHILE_LOGGING_IN {
                arrive(&mut startups, &mut dice);
            }
            let_in += u32::from(startups.remove(network, id));
        }
        // With a victim picked at random it would be 716 (exp(-1/3)), with a room that refuses newcomers none.
        assert!(let_in > 850, "{let_in} of 1000");
    }
}
