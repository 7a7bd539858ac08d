//! The headers of MODE E blocks, and the count of EODs.

#![no_main]

use gridhaul_protocol::block::{Block, EndOfDataCount, HEADER_BYTES, Header, MAX_EODS};
use gridhaul_protocol::ranges::MAX_OFFSET;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let mut ends = EndOfDataCount::default();
    for bytes in input.as_chunks::<HEADER_BYTES>().0 {
        let header = Header::decode(bytes);
        assert_eq!(&header.encode(), bytes);
        match Block::parse(header) {
            Ok(Block::Data { offset, count, .. }) => {
                assert!(
                    offset
                        .checked_add(count)
                        .is_some_and(|end| end <= MAX_OFFSET)
                );
            }
            Ok(Block::EndOfFile { eods, .. }) => {
                assert!((1..=MAX_EODS).contains(&eods));
                let _ = ends.on_end_of_file(eods);
            }
            Ok(Block::EndOfData { .. }) => {
                let _ = ends.on_end_of_data();
            }
            Ok(Block::RestartMarker { .. }) | Err(_) => {}
        }
        assert!(
            ends.expected()
                .is_none_or(|expected| ends.seen() <= expected)
        );
        assert_eq!(ends.complete(), ends.expected() == Some(ends.seen()));
    }
});
