//! Requests to a broker, with an oracle for files outside of its root.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| gridhaul_accounts::fuzzing::requests(input));
