//! Unpredictable numbers.

use rustix::rand::{GetRandomFlags, getrandom};

/// Random bytes from the kernel.
///
/// # Panics
///
/// When getrandom(2) is missing: on kernels older than 3.17.
pub fn random_bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    let mut filled = 0;
    while filled < N {
        // A signal may interrupt the call before the kernel's pool is ready, soon after boot.
        filled +=
            getrandom(&mut bytes[filled..], GetRandomFlags::empty()).unwrap_or_else(|errno| {
                assert_eq!(errno, rustix::io::Errno::INTR, "getrandom(2)");
                0
            });
    }
    bytes
}
