//! Functions over the bytes of a peer, for the fuzz targets in `fuzz/` and for tests with arbitrary
//! bytes.
//!
//! They are not part of programs: cargo-fuzz sets the `cfg` that they need. Each function takes
//! bytes that a peer could send, and panics if they have a forbidden effect.

mod frames;
mod segments;

pub use frames::frame;
pub use segments::segments;

/// Takes numbers from the input; zeros follow its end.
#[derive(Debug)]
struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn byte(&mut self) -> u8 {
        self.bytes(1).first().copied().unwrap_or_default()
    }

    /// At most this many bytes.
    fn bytes(&mut self, count: usize) -> &'a [u8] {
        let (bytes, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        bytes
    }

    fn u64(&mut self) -> u64 {
        let mut number = [0; 8];
        let bytes = self.bytes(8);
        number[..bytes.len()].copy_from_slice(bytes);
        u64::from_be_bytes(number)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn arbitrary_bytes_have_no_forbidden_effect(
            input in proptest::collection::vec(any::<u8>(), 0..400),
        ) {
            frame(&input);
            segments(&input);
        }
    }
}
