//! Hostile messages between the server, the monitor and brokers, for the fuzz targets in `fuzz/` and for tests with arbitrary
//! bytes.
//!
//! Only compiled for tests and with the `cfg` of cargo-fuzz. Each function derives messages from its input, and panics if they
//! have an effect that must be impossible.

mod orders;
mod replies;
mod requests;

pub use orders::orders;
pub use replies::replies;
pub use requests::requests;

/// Reads numbers and bytes from the input, which is continued with zeros.
#[derive(Debug)]
struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn byte(&mut self) -> u8 {
        self.bytes(1).first().copied().unwrap_or_default()
    }

    /// Up to `count` bytes.
    fn bytes(&mut self, count: usize) -> &'a [u8] {
        let (bytes, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        bytes
    }

    /// One of several values.
    fn one_of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[usize::from(self.byte()) % choices.len()]
    }
}

#[cfg(test)]
mod tests {
    use proptest::test_runner::{Config, RngSeed, TestRunner};

    /// Runs a fuzz target on `cases` inputs of up to `longest` bytes, which are the same in each run.
    pub(super) fn over_arbitrary_bytes(cases: u32, longest: usize, target: impl Fn(&[u8])) {
        let config = Config {
            rng_seed: RngSeed::Fixed(0x6772_6964),
            failure_persistence: None,
            ..Config::with_cases(cases)
        };
        let inputs = proptest::collection::vec(proptest::num::u8::ANY, 0..longest);
        let run = TestRunner::new(config).run(&inputs, |input| {
            target(&input);
            Ok(())
        });
        run.unwrap_or_else(|error| panic!("{error}"));
    }
}
