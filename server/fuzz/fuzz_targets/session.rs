//! Whole sessions: commands and data connections of a stranger, with an oracle for files outside of the root.

#![no_main]

use libfuzzer_sys::fuzz_target;

/// Asked by LeakSanitizer. Threads of the server sleep when the process ends, and what they were started with would count
/// as leaked.
// SAFETY: nothing else has this name: the sanitizer's own definition gives way to it.
#[unsafe(no_mangle)]
extern "C" fn __lsan_is_turned_off() -> i32 {
    1
}

fuzz_target!(|input: &[u8]| gridhaul_server::fuzzing::session(input));
