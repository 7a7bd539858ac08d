//! grid-mapfiles.

#![no_main]

use gridhaul_security::gridmap::Gridmap;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let (map, _) = Gridmap::parse(input);
    for entry in map.entries() {
        assert!(!entry.accounts.is_empty());
        assert_eq!(map.accounts(&entry.subject), entry.accounts);
    }
});
