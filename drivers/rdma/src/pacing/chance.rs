//! Random loss, which no lower rate reduces.
//!
//! Behind a policer, a rate that is slightly too high causes a loss now and then, and none after a
//! small reduction. Losses that stay as frequent although the rate was reduced step by step are
//! random: the rate is restored, and further losses of about that frequency are ignored.

/// Losses at a rate that had passed. Bytes are counted since the previous loss.
#[derive(Debug, Default)]
pub(super) struct Chance {
    /// The rate before the first loss that is counted, in bytes per second.
    rate: Option<f64>,
    /// Losses since then, and the bytes sent before them in all.
    count: u32,
    bytes: u64,
    /// The usual distance between random losses in bytes, once it is known.
    usual_bytes: Option<u64>,
}

/// This many losses at about equal distances, each at a lower rate, are random.
const MOST: u32 = 5;

/// The first reduction of the rate, which doubles with each loss: a sixth in all.
const EASE: f64 = 0.0125;

/// Losses are rarer if their distance grew by this factor.
const RARER: u64 = 4;

/// A loss that comes sooner than random ones by this factor is not random.
const SOONER: u64 = 8;

impl Chance {
    /// Whether random loss explains this one.
    pub(super) fn explains(&self, bytes: u64) -> bool {
        self.usual_bytes
            .is_some_and(|usual| bytes >= usual / SOONER)
    }

    /// Whether losses became rarer after the reductions.
    pub(super) fn is_rarer(&self, bytes: u64) -> bool {
        bytes >= RARER * self.average()
    }

    /// The rate is reduced because of a loss.
    pub(super) fn suspect(&mut self, rate: f64) {
        self.rate.get_or_insert(rate);
    }

    /// Counts a loss. Returns the share by which to reduce the rate, or `None` if reductions have
    /// not helped.
    pub(super) fn count(&mut self, bytes: u64) -> Option<f64> {
        self.count += 1;
        self.bytes += bytes;
        if self.count < MOST {
            return Some(EASE * f64::from(1 << (self.count - 1)));
        }
        self.usual_bytes = Some(self.average());
        None
    }

    /// Forgets the counted losses and returns the rate before them; `None` if there were none.
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
    fn losses_that_lower_rates_do_not_reduce_are_random() {
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
    fn losses_that_become_rarer_are_not_random() {
        let mut chance = Chance::default();
        chance.count(1000);
        chance.count(3000);
        assert!(!chance.is_rarer(7999) && chance.is_rarer(8000));
    }
}
