//! What a node may answer a control server.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| gridhaul_nodes::fuzzing::replies(input));
