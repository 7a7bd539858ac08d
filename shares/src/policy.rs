//! How much a source may hold: the dynamic threshold of shared-memory switches (A. K. Choudhury and
//! E. L. Hahne, "Dynamic Queue Length Thresholds for Shared-Memory Packet Switches", IEEE/ACM Transactions on
//! Networking 6(2), 1998).
//!
//! A source that holds units may take more only if it then holds at most [`ALPHA`] times the units that remain
//! free. A source that holds none gets at least one unit whenever one is free.
//!
//! With capacity C and n sources that take all they can get and return units after use, each holds
//! ALPHA / (1 + n * ALPHA) of C, and 1 / (1 + n * ALPHA) stays free for the next source: for n = 1 that is 3/4 and
//! 1/4, for n = 2 it is 3/7 each and 1/7, for n = 10 it is 3/31 each and 1/31. Sources that return nothing and arrive
//! one after the other leave 1/4, 1/16, 1/64 and so on.
//!
//! The rule applies to the network and to the account, and both must allow the units. So an account gets at most one
//! share, however many networks it connects from, and so does a network without accounts. An account that holds
//! nothing gets a unit even if its network is at the threshold: gateways and transfer services have one address
//! for many users, and one user must not shut out the others.
//!
//! Sources without an account (clients before login, and anonymous users) share all but one [`FOR_ACCOUNTS`]th of the
//! capacity, by the same rule applied to that part: addresses are cheap, so many of them could otherwise take nearly
//! the whole capacity from users with an account.
//!
//! Consequences for callers:
//!
//! - A single client gets at most 3/4 of the capacity even when it is alone (without an account: 3/4 of the part for
//!   such sources). Choose capacities accordingly. Of fewer than 4 units a single client gets all but one, and always
//!   at least one.
//! - A request for several units gets as many as the rule allows at that moment, and waits only if that is none. A
//!   request that waited for all of its units could block smaller ones, or be starved by them.
//! - Units are never revoked. Each holder must be bounded by a stall limit, a deadline, or the end of its session.

/// A source may hold at most this many times the free units.
pub const ALPHA: usize = 3;

/// One `FOR_ACCOUNTS`th of the capacity is reserved for sources with an account.
pub const FOR_ACCOUNTS: usize = 8;

/// How many of `capacity` units all sources without an account may hold together: all units if there are fewer than
/// [`FOR_ACCOUNTS`].
pub fn without_account(capacity: usize) -> usize {
    capacity - capacity / FOR_ACCOUNTS
}

/// The most units that a source which holds `held` may take of `free` ones.
pub fn most(held: usize, free: usize) -> usize {
    // held + units <= ALPHA * (free - units)
    let most = ALPHA.saturating_mul(free).saturating_sub(held) / (ALPHA + 1);
    let first = usize::from(held == 0 && free > 0);
    most.max(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sole_source_gets_three_quarters() {
        let shares = [0, 1, 2, 3, 4, 5, 8, 100, 500].map(|capacity| most(0, capacity));
        assert_eq!(shares, [0, 1, 1, 2, 3, 3, 6, 75, 375]);
        for capacity in 0..1000 {
            let mut held = 0;
            while held < capacity && most(held, capacity - held) > 0 {
                held += 1;
            }
            assert_eq!(held, most(0, capacity), "one at a time, of {capacity}");
        }
    }

    #[test]
    fn the_result_is_the_largest_that_the_threshold_allows() {
        let allows = |held, units, free: usize| {
            let left = free.checked_sub(units);
            left.is_some_and(|left| held + units <= ALPHA * left)
        };
        for free in 0..60 {
            for held in 1..60 {
                let most = most(held, free);
                assert!(most == 0 || allows(held, most, free), "{held} {free}");
                assert!(!allows(held, most + 1, free), "{held} {free}");
            }
        }
        assert_eq!((most(0, 0), most(0, 1), most(0, 8)), (0, 1, 6));
    }

    #[test]
    fn an_eighth_is_reserved_for_accounts() {
        assert_eq!([0, 7, 8, 64, 500].map(without_account), [0, 7, 7, 56, 438]);
    }
}
