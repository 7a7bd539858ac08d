//! What a control server may send a node.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| gridhaul_nodes::fuzzing::requests(input));
