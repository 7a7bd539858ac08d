//! Whether the clock is synchronized.

use std::io;
use std::time::Duration;

use nix::libc;

/// The state of the kernel's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClockState {
    /// A program keeps it right.
    Synchronized {
        /// The largest error that the program has told the kernel.
        error: Duration,
    },
    /// No program does.
    Unsynchronized,
}

/// Asks the kernel, and changes nothing (adjtimex(2)).
///
/// # Errors
///
/// When the kernel does not tell.
pub(crate) fn clock_state() -> io::Result<ClockState> {
    // SAFETY: all fields are integers, for which zeros are valid.
    let mut state: libc::timex = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel reads and writes the structure only during the call. `modes` is 0, so nothing is set.
    let answer = unsafe { libc::adjtimex(&raw mut state) };
    if answer < 0 {
        return Err(io::Error::last_os_error());
    }
    if answer == libc::TIME_ERROR || state.status & libc::STA_UNSYNC != 0 {
        return Ok(ClockState::Unsynchronized);
    }
    let micros = u64::try_from(state.maxerror).unwrap_or(0);
    Ok(ClockState::Synchronized {
        error: Duration::from_micros(micros),
    })
}
