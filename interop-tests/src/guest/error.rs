//! Why a guest did not run its command to the end.

use std::io;
use std::time::Duration;

/// Why a guest did not run its command to the end.
#[derive(Debug, thiserror::Error)]
pub enum GuestError {
    /// Its kernel could not be built.
    #[error("the guest's kernel could not be built: {0}")]
    Kernel(String),
    /// It ended without running the command.
    #[error("the guest did not run the command; its console: {console}")]
    Boot {
        /// The text of its console.
        console: String,
    },
    /// It exceeded the time limit and was killed.
    #[error("the guest exceeded its limit of {} s; its output: {output}", limit.as_secs())]
    TimedOut {
        /// The time limit.
        limit: Duration,
        /// The output of the command, and the console.
        output: String,
    },
    /// A system call on the host failed.
    #[error("cannot run a guest: {0}")]
    System(#[from] io::Error),
}
