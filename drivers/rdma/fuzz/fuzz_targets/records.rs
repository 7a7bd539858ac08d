//! Records of the handshake on a data connection.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| gridhaul_rdma::fuzzing::records(input));
