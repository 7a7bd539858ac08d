//! Misses that no rate mends.
//!
//! Behind a policer a rate that is too much by little makes a device miss something now and then, and no longer once the rate is less by
//! that. What is missed as often although the rate becomes less and less is lost by chance: then the rate is what it was
//! before, and what comes about as often from then on has the same reason.

/// What is known of misses at a rate that was held to be good. Bytes are those that left since the miss before.
#[derive(Debug, Default)]
pub(super) struct Chance {
    /// The rate before the first miss that counts, in bytes per second.
    rate: Option<f64>,
    /// Misses since then, and what passed before them, in all.
    count: u32,
    bytes: u64,
    /// What passes between misses by chance, once that is known.
    usual_bytes: Option<u64>,
}

/// So many misses with about as much between them, each at a lower rate, are chance.
const MOST: u32 = 5;

/// By how much the rate becomes less after the first of them, and twice as much each time: by a sixth in all.
const EASE: f64 = 0.0125;

/// They are rarer if so many times as much passes between them.
const RARER: u64 = 4;

/// What comes so much sooner than by chance has another reason.
const SOONER: u64 = 8;

impl Chance {
    /// Whether a miss is one of those that no rate mends.
    pub(super) fn explains(&self, bytes: u64) -> bool {
        self.usual_bytes
            .is_some_and(|usual| bytes >= usual / SOONER)
    }

    /// Whether misses have become rarer since the rate is less.
    pub(super) fn is_rarer(&self, bytes: u64) -> bool {
        bytes >= RARER * self.average()
    }

    /// The rate becomes less because of a miss.
    pub(super) fn suspect(&mut self, rate: f64) {
        self.rate.get_or_insert(rate);
    }

    /// Counts a miss; returns by which share the rate should become less, or `None` if that has been in vain.
    pub(super) fn count(&mut self, bytes: u64) -> Option<f64> {
        self.count += 1;
        self.bytes += bytes;
        if self.count < MOST {
            return Some(EASE * f64::from(1 << (self.count - 1)));
        }
        self.usual_bytes = Some(self.average());
        None
    }

    /// The rate before all of these misses, which count no more; `None` if there were none.
    pub(super) fn forget(&mut self) -> Option<f64> {
        (self.count, self.bytes) = (0, 0);
        self.rate.take()
    }

    fn average(&self) -> u64 {
        self.bytes / u64::from(self.count.max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: f64 = 1e8;

    #[test]
    fn what_lower_rates_make_no_rarer_is_chance() {
        let mut chance = Chance::default();
        let mut rate = RATE;
        for _ in 1..MOST {
            chance.suspect(rate);
            assert!(!chance.explains(u64::MAX));
            rate *= 1.0 - chance.count(1000).unwrap();
        }
        assert!((0.8..0.85).contains(&(rate / RATE)), "{rate}");
        assert_eq!(chance.count(1000), None);
        assert_eq!(chance.forget(), Some(RATE));
        assert!(chance.explains(1000 / SOONER) && !chance.explains(1000 / SOONER - 1));
        assert_eq!(chance.forget(), None);
    }

    #[test]
    fn what_becomes_rarer_is_not() {
        let mut chance = Chance::default();
        chance.count(1000);
        chance.count(3000);
        assert!(!chance.is_rarer(7999) && chance.is_rarer(8000));
    }
}
