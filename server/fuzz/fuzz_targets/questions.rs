//! What a process that strangers have taken over may ask the login process.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| gridhaul_server::fuzzing::questions(input));
