//! Messages of a peer about both rings while data flows.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| gridhaul_rdma::fuzzing::messages(input));
