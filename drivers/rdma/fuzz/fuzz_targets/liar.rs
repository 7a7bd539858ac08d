//! A peer that lies in the exchange of a whole channel, and an oracle for the memory of other sessions.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| gridhaul_rdma::fuzzing::liar(input));
