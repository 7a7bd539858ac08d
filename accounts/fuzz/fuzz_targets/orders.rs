//! Orders to the monitor: no account comes out that the rules refuse.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| gridhaul_accounts::fuzzing::orders(input));
