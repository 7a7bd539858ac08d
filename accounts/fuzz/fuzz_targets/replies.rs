//! What a broker may answer the server.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| gridhaul_accounts::fuzzing::replies(input));
