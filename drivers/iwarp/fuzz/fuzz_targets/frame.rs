//! The frame that opens an iWARP connection.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| gridhaul_iwarp::fuzzing::frame(input));
