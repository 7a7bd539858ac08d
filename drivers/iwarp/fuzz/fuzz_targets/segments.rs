//! Segments of a peer that has the keys of this end's memory.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| gridhaul_iwarp::fuzzing::segments(input));
