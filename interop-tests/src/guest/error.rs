//! Why a guest did not run its command to the end.

use std::io;
use std::time::Duration;

/// Why a guest did not run its command to the end.
#[derive(Debug, thiserror::Error)]
pub enum GuestError {
    /// Its kernel was not built.
    #[error("the guest's kernel is not there: {0}")]
    Kernel(String),
    /// It ended early.
    #[error("the guest did not run the command; it said: {console}")]
    Boot {
        /// What was on its console.
        console: String,
    },
    /// It was killed.
    #[error("the guest was not done in {} s; until then: {output}", limit.as_secs())]
    TimedOut {
        /// How long it had.
        limit: Duration,
        /// What the command had printed, and the console.
        output: String,
    },
    /// The host's kernel refused something.
    #[error("cannot run a guest: {0}")]
    System(#[from] io::Error),
}
