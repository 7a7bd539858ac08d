//! Numbers that nobody can guess.

use rustix::rand::{GetRandomFlags, getrandom};

/// Random bytes of the system.
///
/// # Panics
///
/// When the system has none, which is a kernel from before 2014.
pub(crate) fn random_bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    let mut filled = 0;
    while filled < N {
        // A signal may come before the system has gathered enough, once after it was started.
        filled +=
            getrandom(&mut bytes[filled..], GetRandomFlags::empty()).unwrap_or_else(|errno| {
                assert_eq!(errno, rustix::io::Errno::INTR, "getrandom(2)");
                0
            });
    }
    bytes
}
