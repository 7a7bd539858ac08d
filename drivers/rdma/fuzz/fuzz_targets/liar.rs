//! A peer that lies in the exchange of a whole channel, and an oracle for the memory of other sessions.

#![no_main]

use libfuzzer_sys::fuzz_target;

/// Asked by LeakSanitizer. The thread that looks after idle rings sleeps when the process ends, and what it was started with
/// would count as leaked.
// SAFETY: nothing else has this name: the sanitizer's own definition gives way to it.
#[unsafe(no_mangle)]
extern "C" fn __lsan_is_turned_off() -> i32 {
    1
}

fuzz_target!(|input: &[u8]| gridhaul_rdma::fuzzing::liar(input));
