//! Segments of a peer that knows the keys of our memory.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| gridhaul_iwarp::fuzzing::segments(input));
