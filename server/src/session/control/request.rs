//! One line of the control channel, decoded.

use gridhaul_protocol::command::{Command, CommandError};
use gridhaul_protocol::line::LineError;

/// A line that the client sent.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) content: Result<Command, Fault>,
    /// A later `ABOR` ended this command before it began.
    pub(crate) aborted: bool,
    /// The length of the line.
    pub(super) bytes: usize,
}

/// Why a line is not a command.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Fault {
    #[error(transparent)]
    Line(#[from] LineError),
    #[error(transparent)]
    Command(#[from] CommandError),
    /// It came in clear although the session has a security context.
    #[error("Commands must be protected in this session.")]
    Unprotected,
    /// Its token could not be opened. The context is lost, so no later token can be opened either.
    #[error("The token of a command was refused: {0}.")]
    Token(String),
}

impl Request {
    pub(super) fn is_abort(&self) -> bool {
        matches!(self.content, Ok(Command::Abor))
    }
}
