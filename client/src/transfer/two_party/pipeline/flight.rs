//! A file of a pipeline: its commands, and what the server says about it.

use std::collections::VecDeque;
use std::time::Instant;

use gridhaul_protocol::command::Command;
use gridhaul_protocol::reply::Reply;
use gridhaul_transfer::Outcome;

use super::super::{Direction, FileCopy};
use crate::control::ControlError;
use crate::session::Session;

/// A file of a pipeline: of known size, in MODE E, and as a whole.
#[derive(Debug)]
pub struct Piped {
    /// The file.
    pub copy: FileCopy,
}

/// A command whose last reply is awaited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// `ALLO`, which a server may refuse.
    Announce,
    /// `STOR`, `RETR`.
    Move,
}

/// A file whose commands were sent.
pub(super) struct Flight {
    pub(super) copy: FileCopy,
    pub(super) sent: Instant,
    /// Commands without their last replies.
    pub(super) owed: VecDeque<Step>,
    pub(super) command_bytes: usize,
    /// The server has begun the transfer.
    pub(super) has_begun: bool,
    /// The server has confirmed it.
    pub(super) is_confirmed: bool,
    /// The file was begun here.
    pub(super) is_started: bool,
    pub(super) outcome: Option<Outcome>,
}

/// What a reply means for a file.
pub(super) enum Heard {
    Nothing,
    /// The server begins the transfer.
    Begins,
    /// A command has its last reply.
    Last,
}

impl Flight {
    /// Takes the next reply to the commands of this file.
    pub(super) fn hear(&mut self, reply: Reply) -> Result<Heard, ControlError> {
        let verb = self.copy.command().verb();
        let Some(step) = self.owed.front() else {
            return Err(ControlError::Unexpected { verb, reply });
        };
        match (step, reply.code()) {
            (Step::Move, 125 | 150) if !self.has_begun => {
                self.has_begun = true;
                return Ok(Heard::Begins);
            }
            (Step::Move, 125 | 150) => return Err(ControlError::Unexpected { verb, reply }),
            (Step::Move, _) if reply.is_preliminary() => return Ok(Heard::Nothing),
            (Step::Move, _) if reply.is_error() => {
                return Err(ControlError::Refused { verb, reply });
            }
            (Step::Move, 226 | 250) if self.has_begun && self.may_end() => {
                self.is_confirmed = true;
            }
            // A server may refuse what it does not need.
            (Step::Announce, 200 | 202 | 400..) => {}
            _ => return Err(ControlError::Unexpected { verb, reply }),
        }
        self.owed.pop_front();
        Ok(Heard::Last)
    }

    /// Whether the server can have all of the file: a file that was not begun here has no end yet.
    fn may_end(&self) -> bool {
        self.is_started || self.copy.direction == Direction::Get
    }
}

/// Prepares the commands of a file.
pub(super) fn prepare(session: &mut Session, piped: Piped) -> Result<Flight, ControlError> {
    let Piped { copy } = piped;
    let mut commands = Vec::with_capacity(2);
    if let (Direction::Put, Some(bytes)) = (copy.direction, copy.size) {
        let announce = Command::Allo {
            bytes,
            record_bytes: None,
        };
        commands.push((Step::Announce, announce));
    }
    commands.push((Step::Move, copy.command()));
    let mut command_bytes = 0;
    for (_, command) in &commands {
        command_bytes += session.control().prepare(command)?;
    }
    Ok(Flight {
        copy,
        sent: Instant::now(),
        owed: commands.into_iter().map(|(step, _)| step).collect(),
        command_bytes,
        has_begun: false,
        is_confirmed: false,
        is_started: false,
        outcome: None,
    })
}
