//! The ranges of `REST`.

#![no_main]

use gridhaul_protocol::ranges::{MAX_OFFSET, RangeSet};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let Ok(ranges) = RangeSet::parse_rest(input) else {
        return;
    };
    assert!(ranges.end() <= MAX_OFFSET);
    let mut end = None;
    for range in ranges.iter() {
        assert!(range.start < range.end);
        assert!(end.is_none_or(|end| end < range.start));
        end = Some(range.end);
    }
    let missing: RangeSet = ranges.missing_in(0..MAX_OFFSET).collect();
    assert_eq!(missing.covered() + ranges.covered(), MAX_OFFSET);
    if !ranges.is_empty() {
        let written = ranges.to_string();
        assert_eq!(RangeSet::parse_rest(written.as_bytes()), Ok(ranges));
    }
});
