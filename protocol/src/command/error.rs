//! What is wrong with a command line.

use crate::excerpt::Excerpt;
use crate::ranges::RangeError;
use crate::reply::Reply;
use crate::time::TimeError;

/// Why a line is not a command. The client is at fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CommandError {
    /// There is nothing on the line.
    #[error("Invalid command: the line is empty. HELP lists the commands.")]
    Empty,
    /// No command of that name is known.
    #[error("Invalid command '{0}'. HELP lists the commands.")]
    Unknown(Excerpt),
    /// The command is known from a standard or from other servers, and there is nothing like it here.
    #[error("Command not supported: {0}. HELP lists the commands.")]
    Unsupported(&'static str),
    /// The argument cannot be right.
    #[error("{verb}: {fault}. Syntax: {syntax}")]
    Argument {
        /// The command, with the second word of `SITE`.
        verb: &'static str,
        /// What is wrong.
        fault: ArgumentFault,
        /// What would be right.
        syntax: &'static str,
    },
}

impl CommandError {
    pub(super) fn unknown(verb: &[u8]) -> Self {
        Self::Unknown(Excerpt::new(verb))
    }

    /// The reply that tells the client.
    pub fn reply(&self) -> Reply {
        Reply::new(self.code(), self.to_string())
    }

    fn code(&self) -> u16 {
        match self {
            // RFC 959 5.4 has 502 for commands that a server knows and lacks, but clients of GridFTP
            // know what globus-gridftp-server 13.24 says.
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

/// What is wrong with an argument.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ArgumentFault {
    /// It is not there.
    #[error("{what} is missing")]
    Missing {
        /// What the argument would be.
        what: &'static str,
    },
    /// The command takes no more arguments.
    #[error("there are more arguments than the command takes")]
    Unexpected,
    /// It is wrong for every server.
    #[error("'{given}' is not valid as {what}, which must be {expected}")]
    Invalid {
        /// What the argument should be.
        what: &'static str,
        /// The argument, or that it is not shown.
        given: Excerpt,
        /// What would be right.
        expected: &'static str,
    },
    /// It is right in some standard, but not had here.
    #[error("{what} '{given}' is not supported, use {expected}")]
    Unsupported {
        /// What the argument is.
        what: &'static str,
        /// The argument.
        given: Excerpt,
        /// What would be right.
        expected: &'static str,
    },
    /// A restart marker that names no bytes of a file.
    #[error("{0}")]
    Restart(#[source] RangeError),
    /// A time that there is not.
    #[error("{0}")]
    Time(#[source] TimeError),
    /// A network protocol that is neither IPv4 nor IPv6.
    #[error("Network protocol '{0}' not supported, use (1,2)")]
    Family(Excerpt),
    /// A protection level of data channels that there is none of.
    #[error("{0} protection level not supported, use C, S or P")]
    ProtectionLevel(Excerpt),
}
