//! A hostile peer in the protocol of a whole channel, with an oracle for the memory of other sessions.

#![no_main]

use libfuzzer_sys::fuzz_target;

/// Called by LeakSanitizer. The background thread that drops idle rings sleeps when the process
/// ends, and its start arguments would count as leaked.
// SAFETY: no other definition has this name: the sanitizer's own one is weak.
#[unsafe(no_mangle)]
extern "C" fn __lsan_is_turned_off() -> i32 {
    1
}

fuzz_target!(|input: &[u8]| gridhaul_rdma::fuzzing::hostile_peer(input));
