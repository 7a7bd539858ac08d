//! Patterns of NLST and LIST, against a plainer matcher.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| gridhaul_server::fuzzing::pattern(input));
