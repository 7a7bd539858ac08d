//! Drivers of sessions, as another machine describes them.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| gridhaul_server::fuzzing::session_values(input));
