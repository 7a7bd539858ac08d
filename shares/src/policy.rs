//! How much a source may hold: the dynamic threshold of shared-memory switches (A. K. Choudhury and
//! E. L. Hahne, "Dynamic Queue Length Thresholds for Shared-Memory Packet Switches", IEEE/ACM Transactions on
//! Networking 6(2), 1998).
//!
//! A source that holds units may take more only if afterwards it holds at most [`ALPHA`] times what is then
//! free. A source that holds nothing gets units whenever they are free.
//!
//! With capacity C and n sources that take everything they can get and give units back after use, each holds
//! ALPHA / (1 + n * ALPHA) of C, and 1 / (1 + n * ALPHA) stays free for the next source: with one 3/4 and 1/4, with
//! two 3/7 each and 1/7, with ten 3/31 each and 1/31. Sources that give nothing back and come one after the other
//! leave 1/4, 1/16, 1/64 and so on.
//!
//! The rule is applied to the network and to the account, and both must allow it. So one account gets no more
//! than one share, however many networks it comes from, and so does a network without accounts. An account that
//! holds nothing gets units even if its network is at the threshold: gateways and transfer services have one address
//! for many users, of whom one must not shut out the others.
//!
//! Sources without an account (clients that have not logged in, and anonymous ones) share all but one
//! [`FOR_ACCOUNTS`]th of the capacity, by the same rule over that room: addresses are cheap, so many of them could
//! otherwise take nearly everything from users with an account.
//!
//! Consequences that callers must know:
//!
//! - A single client gets 3/4 of the capacity even if no other source is there; without an account, of what such
//!   sources share. Capacities are chosen with that in mind; below 4 units a single client gets all but one of them,
//!   and always at least one.
//! - A request for several units gets as many as the rule gives at that moment. It waits only if that is none: a
//!   request that waited for all of them could hold up smaller ones, or be held up by them for ever.
//! - Nothing is taken away from a source. What is held must end by itself: by a stall limit, a deadline, or the
//!   end of the session.

/// How many times the free units a source may hold.
pub const ALPHA: usize = 3;

/// This part of the capacity is for sources with an account.
pub const FOR_ACCOUNTS: usize = 8;

/// How many of `capacity` units sources without an account may hold together: all of them if there are fewer than
/// [`FOR_ACCOUNTS`].
pub fn for_strangers(capacity: usize) -> usize {
    capacity - capacity / FOR_ACCOUNTS
}

/// How many units a source that holds `held` may take of `free` ones at most.
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
    fn the_most_is_what_the_threshold_allows() {
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
    fn an_eighth_is_for_accounts() {
        assert_eq!([0, 7, 8, 64, 500].map(for_strangers), [0, 7, 7, 56, 438]);
    }
}
