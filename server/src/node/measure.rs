//! The machine of a node, which control servers compare with others.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gridhaul_nodes::{Card, CardLoad, MachineSample, Traffic};

use super::connection::Served;
use crate::drivers;
use crate::machine::{NetworkCard, network_cards};

/// How often the machine is measured. Control servers hear of it twice as often.
const EVERY: Duration = Duration::from_secs(1);

/// Measures the machine for as long as the node runs.
pub(super) async fn measure(served: Arc<Served>) {
    let mut before = None;
    loop {
        // The kernel may take its time for the speed of a link.
        let found = tokio::task::spawn_blocking(network_cards).await;
        let now = Reading {
            at: Instant::now(),
            cards: found.unwrap_or_default(),
            transferred: served.transferred(),
        };
        if let Some(before) = &before {
            served.set_machine(sample(before, &now));
        }
        before = Some(now);
        tokio::time::sleep(EVERY).await;
    }
}

/// Counters at one time.
struct Reading {
    at: Instant,
    cards: Vec<NetworkCard>,
    transferred: Traffic,
}

/// What has happened between two readings.
fn sample(before: &Reading, now: &Reading) -> MachineSample {
    let passed = now.at.saturating_duration_since(before.at);
    let counted = before.cards.iter().map(|card| (&card.name, bytes(card)));
    let counted: HashMap<_, _> = counted.collect();
    let cards = now.cards.iter().map(|card| {
        // An interface that is new has moved everything at any time.
        let earlier = counted.get(&card.name).copied();
        let moved = bytes(card).since(earlier.unwrap_or_else(|| bytes(card)));
        Card {
            load: CardLoad {
                name: card.name.clone(),
                traffic: moved.per_second(passed),
                link: card.link,
            },
            addresses: card.addresses.clone(),
        }
    });
    let (ring_bytes, ring_bytes_limit) = drivers::ring_memory();
    MachineSample {
        ring_bytes,
        ring_bytes_limit,
        cards: cards.collect(),
        transferred: now.transferred.since(before.transferred).per_second(passed),
    }
}

fn bytes(card: &NetworkCard) -> Traffic {
    Traffic {
        received: card.received_bytes,
        sent: card.sent_bytes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traffic_is_what_was_counted_between_two_readings() {
        let began = Instant::now();
        let reading = |seconds, cards: &[(&str, u64, u64)], received| Reading {
            at: began + Duration::from_secs(seconds),
            cards: cards
                .iter()
                .map(|(name, received_bytes, sent_bytes)| NetworkCard {
                    name: (*name).to_owned(),
                    received_bytes: *received_bytes,
                    sent_bytes: *sent_bytes,
                    link: Some(125_000_000),
                    addresses: Vec::new(),
                })
                .collect(),
            transferred: Traffic { received, sent: 0 },
        };
        let before = reading(0, &[("eth0", 1_000, 50), ("eth1", 9_000, 9_000)], 100);
        // eth1 was made anew, and eth2 is new.
        let now = [("eth0", 3_000, 50), ("eth1", 10, 10), ("eth2", 7_000, 0)];
        let sample = sample(&before, &reading(2, &now, 1_100));
        let traffic: Vec<_> = sample
            .cards
            .iter()
            .map(|card| (card.load.traffic.received, card.load.traffic.sent))
            .collect();
        assert_eq!(traffic, [(1_000, 0), (0, 0), (0, 0)]);
        assert_eq!(sample.transferred.received, 500);
        assert_eq!(sample.cards[0].load.link, Some(125_000_000));
    }
}
