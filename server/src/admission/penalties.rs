//! Penalties that expire, for networks whose connections fail to log in: as `PerSourcePenalties` of OpenSSH 9.8.
//!
//! Each kind of misconduct adds seconds to the network's debt ([`Debts`]). Below [`ENFORCED`] it has no effect. Above, new
//! connections are refused at random, more often with a larger debt, but never all of them: many users may share an address
//! with one broken client, and each of their attempts has a chance of at least one in eight. A login with a password or a
//! certificate pays off a part of the debt, so a network from which users log in is refused only if its failures are many
//! times its logins. Penalties never close existing connections.
//!
//! OpenSSH's constants are for logins by people. Here one address may be a site with hundreds of machines, or a
//! transfer service that retries each minute, so the constants are smaller:

use std::time::{Duration, Instant};

use gridhaul_transfer::AddressBlock;

use super::Network;
use super::dice::Dice;
use crate::debts::Debts;

/// The misconduct of a connection that did not log in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Misconduct {
    /// A password, a certificate or a mapping was refused.
    Refused,
    /// It ended without a login and without an attempt.
    NoLogin,
    /// It used up `login-timeout`.
    Timeout,
    /// It sent something other than FTP commands.
    Garbage,
    /// Its session panicked.
    Panic,
}

impl Misconduct {
    /// The penalty in seconds.
    pub(super) fn penalty(self) -> Duration {
        match self {
            // Clients that fail less than once a second, as a service does that retries with an expired
            // certificate, never build up a debt. A guesser who tries all the time does in 15 s.
            Self::Refused => Duration::from_secs(1),
            // Probes of monitoring connect and quit each few seconds from one address; port scanners and silent
            // crowds come in hundreds.
            Self::NoLogin => Duration::from_millis(500),
            // It held a place for two minutes. One or two stalled clients per timeout are usual, a crowd is not.
            Self::Timeout => Duration::from_secs(5),
            // A browser or a TLS client at the wrong port does it once or twice.
            Self::Garbage => Duration::from_secs(5),
            // A panic may come from a search for vulnerabilities. One panic is not enough for a refusal, since a harmless
            // client may hit a fault of the server too.
            Self::Panic => Duration::from_secs(10),
        }
    }
}

/// Up to this debt all connections are accepted: a few failures are normal. As `min` of OpenSSH.
const ENFORCED: Duration = Duration::from_secs(15);

/// The largest debt: two minutes after the last offence a network has no disadvantage. OpenSSH has ten minutes, after which
/// a site with a repaired client would still be refused.
const MOST: Duration = Duration::from_secs(120);

/// A login with a password or a certificate pays off this part of the debt: thirty failures, so that a site where one login
/// in thirty succeeds is not refused. Guessing passwords beside an own account has other limits
/// (`crate::passwords::budget`).
const LOGIN: Duration = Duration::from_secs(30);

/// With the largest debt one connection in this number is accepted.
const ACCEPTED_OF: usize = 8;

/// The networks of each family that are kept: some 10 MB at most.
const REMEMBERED: usize = 65_536;

/// The penalties of all networks.
#[derive(Debug)]
pub(super) struct Penalties {
    debts: Debts<Network>,
    exempt: Vec<AddressBlock>,
}

impl Penalties {
    pub(super) fn new(exempt: Vec<AddressBlock>) -> Self {
        Self {
            debts: Debts::new(REMEMBERED, MOST),
            exempt,
        }
    }

    /// Exempts these networks from now on.
    pub(super) fn exempt(&mut self, blocks: Vec<AddressBlock>) {
        self.exempt = blocks;
    }

    /// Whether penalties count for this address.
    pub(super) fn concerns(&self, address: std::net::IpAddr) -> bool {
        !self.exempt.iter().any(|block| block.contains(address))
    }

    pub(super) fn add(&mut self, network: Network, misconduct: Misconduct, now: Instant) {
        self.debts.add(network, misconduct.penalty(), now);
    }

    /// A user of the network has authenticated.
    pub(super) fn forgive(&mut self, network: Network, now: Instant) {
        self.debts.forgive(network, LOGIN, now);
    }

    /// Whether a new connection is refused. The chance grows linearly from none at [`ENFORCED`] to seven in eight at
    /// [`MOST`].
    pub(super) fn refuses(&self, network: Network, now: Instant, dice: &mut Dice) -> bool {
        let Some(over) = self.debts.of(network, now).checked_sub(ENFORCED) else {
            return false;
        };
        let range = MOST.saturating_sub(ENFORCED).as_secs_f64();
        let refused = over.as_secs_f64() / range * (1.0 - 1.0 / ACCEPTED_OF as f64);
        (dice.below(1 << 20) as f64) < refused * f64::from(1 << 20)
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    fn network() -> Network {
        Network::of(IpAddr::from([192, 0, 2, 1]))
    }

    /// How many of so many attempts a second are refused in five minutes: of a broken client, and of good ones.
    fn refused(broken: u64, good: u64) -> (f64, f64) {
        let mut penalties = Penalties::new(Vec::new());
        let mut dice = Dice::seeded(1);
        let mut counts = [[0_u32; 2]; 2];
        let start = Instant::now();
        for millisecond in 0..300_000 {
            let now = start + Duration::from_millis(millisecond);
            let due = |rate: u64| rate > 0 && millisecond % (60_000 / rate) == 0;
            if due(broken) {
                let is_refused = penalties.refuses(network(), now, &mut dice);
                counts[0][usize::from(is_refused)] += 1;
                if !is_refused {
                    penalties.add(network(), Misconduct::Refused, now);
                }
            }
            if due(good) {
                let is_refused = penalties.refuses(network(), now, &mut dice);
                counts[1][usize::from(is_refused)] += 1;
                if !is_refused {
                    penalties.forgive(network(), now);
                }
            }
        }
        let share = |[accepted, refused]: [u32; 2]| {
            f64::from(refused) / f64::from((accepted + refused).max(1))
        };
        (share(counts[0]), share(counts[1]))
    }

    #[test]
    fn a_few_failures_and_slow_retries_are_not_punished() {
        let mut penalties = Penalties::new(Vec::new());
        let mut dice = Dice::seeded(1);
        let now = Instant::now();
        for _ in 0..15 {
            penalties.add(network(), Misconduct::Refused, now);
            assert!((0..100).all(|_| !penalties.refuses(network(), now, &mut dice)));
        }
        // Fifty failures a minute.
        assert_eq!(refused(50, 0), (0.0, 0.0));
    }

    #[test]
    fn a_guesser_is_refused_and_forgotten_two_minutes_later() {
        let (broken, _) = refused(6000, 0);
        assert!(broken > 0.8, "{broken}");
        let mut penalties = Penalties::new(Vec::new());
        let mut dice = Dice::seeded(1);
        let now = Instant::now();
        for _ in 0..10_000 {
            penalties.add(network(), Misconduct::Garbage, now);
        }
        let attempts = (0..8000).filter(|_| penalties.refuses(network(), now, &mut dice));
        let share = attempts.count();
        assert!((6900..7100).contains(&share), "seven in eight: {share}");
        let later = now + MOST - ENFORCED;
        assert!((0..100).all(|_| !penalties.refuses(network(), later, &mut dice)));
    }

    #[test]
    fn good_clients_behind_the_address_of_a_broken_one_mostly_get_in() {
        // One retries each second without a pause, thirty others log in each minute.
        let (_, good) = refused(60, 30);
        assert!(good <= f64::EPSILON, "{good}");
        // Five times a second.
        let (_, good) = refused(300, 30);
        assert!(good < 0.1, "{good}");
        // Twenty times a second; the good ones log in each second.
        let (_, good) = refused(1200, 60);
        assert!(good < 0.1, "{good}");
    }

    #[test]
    fn exempt_networks_are_no_concern() {
        let mut penalties = Penalties::new(vec!["192.0.2.0/24".parse().expect("a block")]);
        assert!(!penalties.concerns(IpAddr::from([192, 0, 2, 1])));
        assert!(penalties.concerns(IpAddr::from([192, 0, 3, 1])));
        penalties.exempt(Vec::new());
        assert!(penalties.concerns(IpAddr::from([192, 0, 2, 1])));
    }
}
