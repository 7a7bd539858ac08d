//! Records of the handshake on a data connection, before a peer has proved anything.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| gridhaul_rdma::fuzzing::records(input));
