//! Errors of command lines.

use crate::excerpt::Excerpt;
use crate::ranges::RangeError;
use crate::reply::Reply;
use crate::time::TimeError;

/// Why a line is not a command. The client is at fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CommandError {
    /// The line is empty.
    #[error("Invalid command: the line is empty. HELP lists the commands.")]
    Empty,
    /// There is no such command.
    #[error("Invalid command '{0}'. HELP lists the commands.")]
    Unknown(Excerpt),
    /// The command exists in a standard or in other servers, but is not supported.
    #[error("Command not supported: {0}. HELP lists the commands.")]
    Unsupported(&'static str),
    /// The argument is invalid.
    #[error("{verb}: {fault}. Syntax: {syntax}")]
    Argument {
        /// The command; for `SITE`, with its second word.
        verb: &'static str,
        /// The error.
        fault: ArgumentFault,
        /// The syntax of the command.
        syntax: &'static str,
    },
}

impl CommandError {
    pub(super) fn unknown(verb: &[u8]) -> Self {
        Self::Unknown(Excerpt::new(verb))
    }

    /// The reply for the client.
    pub fn reply(&self) -> Reply {
        Reply::new(self.code(), self.to_string())
    }

    fn code(&self) -> u16 {
        match self {
            // RFC 959 5.4 has 502 for commands that are not implemented, but GridFTP clients expect the codes of
            // globus-gridftp-server 13.24.
            Self::Empty | Self::Unknown(_) | Self::Unsupported(_) => 500,
            Self::Argument { fault, .. } => match fault {
                ArgumentFault::Missing { .. }
                | ArgumentFault::Unexpected
                | ArgumentFault::Invalid { .. }
                | ArgumentFault::Restart(_)
                | ArgumentFault::Time(_) => 501,
                ArgumentFault::Unsupported { .. } => 504,
                // RFC 2428 2.
                ArgumentFault::Family(_) => 522,
                // RFC 2228 3, PROT.
                ArgumentFault::ProtectionLevel(_) => 536,
            },
        }
    }
}

/// Why an argument is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ArgumentFault {
    /// It is missing.
    #[error("{what} is missing")]
    Missing {
        /// The name of the argument.
        what: &'static str,
    },
    /// The command takes no more arguments.
    #[error("there are more arguments than the command takes")]
    Unexpected,
    /// It is invalid for every server.
    #[error("'{given}' is not valid as {what}, which must be {expected}")]
    Invalid {
        /// The name of the argument.
        what: &'static str,
        /// The argument, or a placeholder.
        given: Excerpt,
        /// The valid values.
        expected: &'static str,
    },
    /// It is valid in some standard, but not supported.
    #[error("{what} '{given}' is not supported, use {expected}")]
    Unsupported {
        /// The name of the argument.
        what: &'static str,
        /// The argument.
        given: Excerpt,
        /// The valid values.
        expected: &'static str,
    },
    /// An invalid restart marker.
    #[error("{0}")]
    Restart(#[source] RangeError),
    /// An invalid time.
    #[error("{0}")]
    Time(#[source] TimeError),
    /// A network protocol that is neither IPv4 nor IPv6.
    #[error("Network protocol '{0}' not supported, use (1,2)")]
    Family(Excerpt),
    /// An unsupported protection level of data channels.
    #[error("{0} protection level not supported, use C, S or P")]
    ProtectionLevel(Excerpt),
}
