//! Errors of the connection manager.

use std::ffi::c_int;
use std::io;

use gridhaul_stack::ChannelError;

use crate::verbs::bindings::LibraryError;
use crate::verbs::objects::check;

/// Why a queue pair is not connected.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectionError {
    #[error(transparent)]
    Channel(#[from] ChannelError),
    #[error(transparent)]
    Library(#[from] LibraryError),
    #[error("{what} by librdmacm: {error}")]
    Call {
        what: &'static str,
        error: io::Error,
    },
    #[error("librdmacm reports {words} (status {status})")]
    Event { words: String, status: c_int },
}

/// Checks the result of a call.
pub(super) fn called(what: &'static str, code: c_int) -> Result<(), ConnectionError> {
    check(code).map_err(|error| ConnectionError::Call { what, error })
}
