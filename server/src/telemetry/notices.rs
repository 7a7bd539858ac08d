//! Rate limits for log lines about refusals, so that a flood of refusals does not fill the disk.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use gridhaul_shares::Network;

use crate::debts::Debts;

/// The debt of one line of a network. After a burst of a hundred lines, which shows an administrator what a site's users are
/// refused for, a network gets a line a second.
const EACH: Duration = Duration::from_secs(1);

/// A network gets lines while its debt is smaller.
const BURST: Duration = Duration::from_secs(100);

/// The debt of one line, for all networks together: twenty lines a second, after a burst of a thousand. With 300 bytes a
/// line that is at most 500 MB a day.
const EACH_OF_ALL: Duration = Duration::from_millis(50);

/// There are lines while the common debt is smaller.
const BURST_OF_ALL: Duration = Duration::from_secs(50);

/// The number of networks that are kept.
const REMEMBERED: usize = 4096;

/// Decides which refusals get a line.
#[derive(Debug)]
pub(crate) struct Notices {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    debts: Debts<Network>,
    /// The time when the common debt is paid.
    all: Option<Instant>,
    /// Refusals without a line since the last line of each network.
    untold: HashMap<Network, u64>,
    /// Refusals without a line of networks that were dropped from the table.
    untold_others: u64,
}

impl Default for Notices {
    fn default() -> Self {
        let state = State {
            debts: Debts::new(REMEMBERED, BURST + EACH),
            all: None,
            untold: HashMap::new(),
            untold_others: 0,
        };
        Self {
            state: Mutex::new(state),
        }
    }
}

impl Notices {
    /// Whether a refusal of this network gets a line now; then the number of refusals without a line since the last one.
    pub(crate) fn tell(&self, network: Network, now: Instant) -> Option<u64> {
        // A panic elsewhere leaves counts that are accurate enough.
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let of_all = state
            .all
            .map_or(Duration::ZERO, |paid| paid.saturating_duration_since(now));
        if state.debts.of(network, now) >= BURST || of_all >= BURST_OF_ALL {
            state.leave_out(network);
            return None;
        }
        state.debts.add(network, EACH, now);
        state.all = Some(now + of_all + EACH_OF_ALL);
        let own = state.untold.remove(&network).unwrap_or(0);
        Some(own + std::mem::take(&mut state.untold_others))
    }
}

impl State {
    fn leave_out(&mut self, network: Network) {
        if self.untold.len() >= REMEMBERED && !self.untold.contains_key(&network) {
            // The next line of any network reports them.
            self.untold_others += self.untold.drain().map(|(_, count)| count).sum::<u64>();
        }
        *self.untold.entry(network).or_default() += 1;
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    fn network(number: u32) -> Network {
        Network::of(IpAddr::from(number.to_be_bytes()))
    }

    #[test]
    fn a_flood_is_a_few_lines_with_a_count() {
        let notices = Notices::default();
        let now = Instant::now();
        let lines = (0..10_000).filter_map(|_| notices.tell(network(1), now));
        assert_eq!(lines.collect::<Vec<_>>(), [0; 100]);
        assert_eq!(notices.tell(network(2), now), Some(0), "another network");
        let later = now + EACH;
        assert_eq!(notices.tell(network(1), later), Some(9900));
        assert_eq!(notices.tell(network(1), later), None);
    }

    #[test]
    fn many_networks_have_a_bound_together_and_nothing_is_lost() {
        let notices = Notices::default();
        let now = Instant::now();
        let told = |range: std::ops::Range<u32>, now| {
            range
                .filter_map(|number| notices.tell(network(number), now))
                .fold((0, 0), |(lines, untold), more| (lines + 1, untold + more))
        };
        let (lines, untold) = told(0..100_000, now);
        assert_eq!((lines, untold), (1000, 0));
        let (more, untold) = told(0..100_000, now + Duration::from_secs(1));
        assert_eq!(more, 20);
        let remembered = notices.state.lock().expect("no panic");
        let kept = remembered.untold.values().sum::<u64>() + remembered.untold_others;
        assert_eq!(1000 + 20 + untold + kept, 200_000);
        assert!(remembered.untold.len() <= REMEMBERED);
    }
}
