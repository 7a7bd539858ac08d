//! Hostile messages between control servers and data nodes, for the fuzz targets in `fuzz/` and for tests with arbitrary bytes.
//!
//! Only compiled for tests and with the `cfg` of cargo-fuzz. Each function makes a message of its input, and panics if the values
//! of the message are ones that no correct sender makes.

mod replies;
mod requests;

pub use replies::replies;
pub use requests::requests;

use prost::Message;
use prost::encoding::{WireType, encode_key, encode_varint};

/// Decodes the input as a message whose body is the field `tag`, so that short inputs reach the bodies. The first byte of the input
/// chooses among `tags`; with the value 255 the whole rest is the message.
fn message_of<M: Message + Default>(
    input: &[u8],
    tags: std::ops::RangeInclusive<u32>,
) -> Option<M> {
    let (choice, rest) = input.split_first()?;
    if *choice == u8::MAX {
        return M::decode(rest).ok();
    }
    let count = tags.end() - tags.start() + 1;
    let mut bytes = Vec::with_capacity(rest.len() + 8);
    encode_key(
        tags.start() + u32::from(*choice) % count,
        WireType::LengthDelimited,
        &mut bytes,
    );
    encode_varint(rest.len() as u64, &mut bytes);
    bytes.extend_from_slice(rest);
    M::decode(bytes.as_slice()).ok()
}

#[cfg(test)]
mod tests {
    use proptest::test_runner::{Config, RngSeed, TestRunner};

    /// Runs a fuzz target on 2,000 inputs of up to 120 bytes, which are the same in each run.
    pub(super) fn over_arbitrary_bytes(target: impl Fn(&[u8])) {
        let config = Config {
            rng_seed: RngSeed::Fixed(0x6e6f_6465),
            failure_persistence: None,
            ..Config::with_cases(2000)
        };
        let inputs = proptest::collection::vec(proptest::num::u8::ANY, 0..120);
        let run = TestRunner::new(config).run(&inputs, |input| {
            target(&input);
            Ok(())
        });
        run.unwrap_or_else(|error| panic!("{error}"));
    }
}
