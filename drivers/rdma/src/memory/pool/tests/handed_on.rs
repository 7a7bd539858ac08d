//! The content of rings that another channel has used before.

use std::io::Write as _;
use std::os::fd::AsFd as _;

use proptest::prelude::*;

use super::{ACCEPTOR, MIB, take};
use crate::memory::{Buffer, Memory, Pool, Span};

const RING_BYTES: u64 = MIB;

/// How a channel puts bytes into its ring.
#[derive(Debug, Clone, Copy)]
enum Way {
    Copied,
    /// Read from a file.
    Read,
    /// Written by a device or a system call.
    Pointer,
}

fn content(memory: &Memory) -> Vec<u8> {
    let mut bytes = vec![0; memory.length()];
    memory.copy_out(0, &mut bytes);
    bytes
}

fn put(memory: &Memory, way: Way, span: Span) {
    let secret = vec![0xa5; span.length];
    match way {
        Way::Copied => memory.copy_in(span.offset, &secret),
        Way::Read => {
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(&secret).unwrap();
            let count = memory.read_from(file.as_fd(), 0, span).unwrap();
            assert_eq!(count, span.length);
        }
        Way::Pointer => {
            let start = memory.pointer(span);
            // SAFETY: `pointer` has checked the span.
            unsafe { start.write_bytes(0xa5, span.length) };
        }
    }
}

fn writes() -> impl Strategy<Value = (usize, Way, Span)> {
    let way = prop_oneof![Just(Way::Copied), Just(Way::Read), Just(Way::Pointer)];
    let most = usize::try_from(RING_BYTES).unwrap();
    let span = (0..=most)
        .prop_flat_map(move |offset| (Just(offset), 0..=(most - offset).min(100_000)))
        .prop_map(|(offset, length)| Span::new(offset, length));
    (0..2_usize, way, span)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// After any writes of a channel, in any way, the next one finds zeros in the same pages.
    #[test]
    fn rings_hold_zeros_after_any_channel(
        channels in proptest::collection::vec(proptest::collection::vec(writes(), 0..4), 1..4),
    ) {
        let pool = Pool::new(64 * MIB, u64::MAX);
        let mut addresses = None;
        for writes in channels {
            let rings = take(&pool, ACCEPTOR, RING_BYTES).unwrap().map(0, &|| true).unwrap().1;
            let mut now = rings.each_ref().map(|ring| ring.address());
            now.sort_unstable();
            prop_assert_eq!(*addresses.get_or_insert(now), now, "the pages are used again");
            for ring in &rings {
                prop_assert!(content(ring).iter().all(|byte| *byte == 0), "it holds another's bytes");
            }
            for (ring, way, span) in writes {
                put(&rings[ring], way, span);
            }
        }
    }
}
