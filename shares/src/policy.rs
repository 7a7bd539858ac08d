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
//! Consequences that callers must know:
//!
//! - A single client gets 3/4 of the capacity even if no other source is there. Capacities are chosen with that in
//!   mind; below 4 units a single client gets all but one of them, and always at least one.
//! - Nothing is taken away from a source. What is held must end by itself: by a stall limit, a deadline, or the
//!   end of the session.

/// How many times the free units a source may hold.
pub const ALPHA: usize = 3;

/// What one source gets of `capacity` units when no other source is there: 3/4, and at least one unit if there is
/// any. A single request for more is cut to this.
pub fn sole_share(capacity: usize) -> usize {
    let share = capacity - capacity.div_ceil(ALPHA + 1);
    share.max(capacity.min(1))
}

/// Whether a source that holds `held` units may take `units` more of `free` ones. Says nothing about whether so
/// many are free if it holds nothing.
pub(crate) fn allows(held: usize, units: usize, free: usize) -> bool {
    held == 0
        || free
            .checked_sub(units)
            .is_some_and(|left| held + units <= ALPHA.saturating_mul(left))
}

/// How many units a source that holds `held` may take of `free` ones at most.
pub(crate) fn most(held: usize, free: usize) -> usize {
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
        let shares = [0, 1, 2, 3, 4, 5, 8, 100, 500].map(sole_share);
        assert_eq!(shares, [0, 1, 1, 2, 3, 3, 6, 75, 375]);
        for capacity in 0..1000 {
            let mut held = 0;
            while held < capacity && allows(held, 1, capacity - held) {
                held += 1;
            }
            assert_eq!(held, sole_share(capacity), "of {capacity}");
        }
    }

    #[test]
    fn the_most_is_what_is_still_allowed() {
        for free in 0..60 {
            for held in 1..60 {
                let most = most(held, free);
                assert!(most == 0 || allows(held, most, free), "{held} {free}");
                assert!(!allows(held, most + 1, free), "{held} {free}");
            }
        }
        assert_eq!((most(0, 0), most(0, 1), most(0, 8)), (0, 1, 6));
    }
}
