//! Errors of the interface as plain values, for nodes on other machines.
//!
//! Errors hold static names and errors of the operating system, which cannot be sent. Each has a value here that can: convert it
//! with `From` on the machine of the node, send it, and convert it back on the machine of the session. The error that results
//! has the same text, is of the same kind in every respect that a session distinguishes, and thus leads to the same reply, audit
//! record and log line. Only texts are kept of errors that sessions do not distinguish.
//!
//! A [`gridhaul_stack::StackError`] is its text: [`gridhaul_stack::StackError::Remote`].

mod transfer;

use std::io;
use std::net::SocketAddr;

use gridhaul_stack::{ListenError, StackError};
use gridhaul_storage::{Rule, StorageError};
use rustix::io::Errno;

use super::account::AttachError;
use super::requests::ListenFailure;

pub use transfer::{SentChannelError, SentPeerError, SentTransferError};

/// The longest text that is kept of an error of another machine, in bytes. Texts may have two paths.
pub const MAX_SENT_TEXT_BYTES: usize = 16 * 1024;

/// The name of a call that this program does not know.
const UNKNOWN_CALL: &str = "storage";

/// MAX_ERRNO of Linux.
const MOST_ERRNO: i32 = 4095;

/// A [`StorageError`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SentStorageError {
    /// The name of the call.
    pub call: String,
    /// The error number of Linux.
    pub errno: i32,
    /// The rule that refused the call. [`Rule::ALL`] has numbers for them.
    pub rule: Option<Rule>,
}

/// An error of the operating system that is not one of storage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SentSystemError {
    /// The error number of Linux, if it has one.
    pub errno: Option<i32>,
    /// The text, for an error without a number.
    pub text: String,
}

/// An [`AttachError`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SentAttachError {
    /// [`AttachError::Account`].
    Account(String),
    /// [`AttachError::Root`].
    Root(SentStorageError),
}

/// A [`ListenFailure`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SentListenFailure {
    /// [`ListenFailure::Stack`], as its text.
    Stack(String),
    /// [`ListenError::PortRangeExhausted`].
    PortRangeExhausted {
        /// First port of the range.
        first: u16,
        /// Last port of the range.
        last: u16,
    },
    /// [`ListenError::Network`].
    Network {
        /// The requested address.
        address: SocketAddr,
        /// The operating system's error.
        error: SentSystemError,
    },
    /// Another error, as its text.
    Other(String),
}

impl From<&StorageError> for SentStorageError {
    fn from(error: &StorageError) -> Self {
        Self {
            call: error.call.to_owned(),
            errno: error.errno.raw_os_error(),
            rule: error.rule,
        }
    }
}

impl From<SentStorageError> for StorageError {
    fn from(sent: SentStorageError) -> Self {
        let call = Self::call_named(&sent.call).unwrap_or(UNKNOWN_CALL);
        match sent.rule {
            Some(rule) => Self::refused(call, rule),
            None if is_errno(sent.errno) => Self::new(call, Errno::from_raw_os_error(sent.errno)),
            None => Self::new(call, Errno::IO),
        }
    }
}

impl From<&io::Error> for SentSystemError {
    fn from(error: &io::Error) -> Self {
        Self {
            errno: error.raw_os_error(),
            text: error.to_string(),
        }
    }
}

impl From<SentSystemError> for io::Error {
    fn from(sent: SentSystemError) -> Self {
        match sent.errno {
            Some(errno) if is_errno(errno) => Self::from_raw_os_error(errno),
            _ => Self::other(bounded(sent.text)),
        }
    }
}

impl From<&AttachError> for SentAttachError {
    fn from(error: &AttachError) -> Self {
        match error {
            AttachError::Account(text) => Self::Account(text.clone()),
            AttachError::Root(error) => Self::Root(error.into()),
        }
    }
}

impl From<SentAttachError> for AttachError {
    fn from(sent: SentAttachError) -> Self {
        match sent {
            SentAttachError::Account(text) => Self::Account(bounded(text)),
            SentAttachError::Root(error) => Self::Root(error.into()),
        }
    }
}

impl From<&ListenFailure> for SentListenFailure {
    fn from(failure: &ListenFailure) -> Self {
        match failure {
            ListenFailure::Stack(error) => Self::Stack(error.to_string()),
            &ListenFailure::Listen(ListenError::PortRangeExhausted { first, last }) => {
                Self::PortRangeExhausted { first, last }
            }
            ListenFailure::Listen(ListenError::Network { address, error }) => Self::Network {
                address: *address,
                error: error.into(),
            },
            ListenFailure::Listen(
                error @ (ListenError::Unsupported(_) | ListenError::Remote(_)),
            ) => Self::Other(error.to_string()),
            ListenFailure::Nodes(text) => Self::Other(text.clone()),
        }
    }
}

impl From<SentListenFailure> for ListenFailure {
    fn from(sent: SentListenFailure) -> Self {
        Self::Listen(match sent {
            SentListenFailure::Stack(text) => {
                return Self::Stack(StackError::Remote(bounded(text)));
            }
            SentListenFailure::PortRangeExhausted { first, last } => {
                ListenError::PortRangeExhausted { first, last }
            }
            SentListenFailure::Network { address, error } => ListenError::Network {
                address,
                error: error.into(),
            },
            SentListenFailure::Other(text) => ListenError::Remote(bounded(text)),
        })
    }
}

fn is_errno(number: i32) -> bool {
    (1..=MOST_ERRNO).contains(&number)
}

/// The start of a text that is too long.
fn bounded(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(MAX_SENT_TEXT_BYTES));
    text
}

#[cfg(test)]
mod tests;
