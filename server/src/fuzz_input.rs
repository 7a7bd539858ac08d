//! The input of the fuzz targets, read as numbers and choices.

/// Reads numbers and bytes from the input; zeros follow its end.
#[derive(Debug)]
pub(crate) struct Input<'a>(pub(crate) &'a [u8]);

impl<'a> Input<'a> {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn byte(&mut self) -> u8 {
        self.bytes(1).first().copied().unwrap_or_default()
    }

    /// At most `count` bytes.
    pub(crate) fn bytes(&mut self, count: usize) -> &'a [u8] {
        let (bytes, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        bytes
    }

    /// One of several choices.
    pub(crate) fn one_of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[usize::from(self.byte()) % choices.len()]
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::test_runner::{Config, RngSeed, TestRunner};

    /// Runs a fuzz target over `cases` inputs of up to `longest` bytes, the same ones each time.
    pub(crate) fn over_arbitrary_bytes(cases: u32, longest: usize, target: impl Fn(&[u8])) {
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
