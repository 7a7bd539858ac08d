//! A file of a pipeline: its commands, and its transfer here.

use std::time::Instant;

use gridhaul_protocol::command::Command;
use gridhaul_protocol::reply::Reply;
use gridhaul_transfer::Outcome;
use tokio::task::JoinHandle;

use super::super::super::ahead::{self, Ahead, Cost, Heard, Step};
use super::super::super::{TransferFailure, verify};
use super::super::{Direction, FileCopy};
use crate::control::ControlError;
use crate::session::Session;

/// A file whose commands were sent: of known size, in MODE E, and as a whole.
pub(super) struct Flight {
    pub(super) copy: FileCopy,
    pub(super) sent: Instant,
    /// What was said to the server and by it.
    pub(super) ahead: Ahead,
    /// The file was begun here.
    pub(super) is_started: bool,
    pub(super) outcome: Option<Outcome>,
    /// The checksum of a sent file, which is computed when it was sent.
    pub(super) sum_here: Option<JoinHandle<Result<String, TransferFailure>>>,
}

impl Flight {
    /// Prepares the commands of a file. `asks_size` is whether the server is asked for the size of an upload.
    pub(super) fn prepare(
        session: &mut Session,
        copy: FileCopy,
        asks_size: bool,
    ) -> Result<Self, ControlError> {
        let mut commands = Vec::with_capacity(4);
        if let (Direction::Put, Some(bytes)) = (copy.direction, copy.size) {
            let announce = Command::Allo {
                bytes,
                record_bytes: None,
            };
            commands.push((Step::Announce, announce));
        }
        commands.push((Step::Move, copy.command()));
        if asks_size {
            commands.push((Step::Size, Command::Size(copy.remote.clone())));
        }
        if let Some(algorithm) = copy.verify {
            commands.push(ahead::sum(algorithm, &copy.remote)?);
        }
        Ok(Self {
            ahead: Ahead::prepare(session.control(), &commands)?,
            copy,
            sent: Instant::now(),
            is_started: false,
            outcome: None,
            sum_here: None,
        })
    }

    pub(super) fn cost(&self) -> Cost {
        Cost {
            bytes: self.copy.size.unwrap_or(0),
            command_bytes: self.ahead.unread_bytes(),
        }
    }

    /// Takes the next reply to the commands of this file.
    pub(super) fn hear(&mut self, reply: Reply) -> Result<Heard, ControlError> {
        // The server cannot have all of a file that was not begun here.
        let may_end = self.is_started || self.copy.direction == Direction::Get;
        self.ahead.hear(reply, may_end)
    }

    /// Whether the server has confirmed the file, and said its checksum if that is compared.
    pub(super) fn is_confirmed(&self) -> bool {
        let is_known = self.copy.verify.is_none() || self.ahead.sum.is_some();
        self.ahead.is_confirmed && is_known
    }

    /// Whether both ends have done all that they must.
    pub(super) fn is_complete(&self) -> bool {
        self.ahead.is_answered() && self.outcome.is_some()
    }

    /// Whether the server has stored all of an upload, by `SIZE` or else by its markers.
    pub(super) fn is_stored(&self) -> Result<(), TransferFailure> {
        let Some(expected) = self.copy.size else {
            return Ok(());
        };
        match self.ahead.copied(expected) {
            copied if copied == expected => Ok(()),
            copied => Err(TransferFailure::Length { expected, copied }),
        }
    }

    /// Compares a sent file with the copy of the server. A received one was compared before it got its name.
    pub(super) async fn compared(&mut self) -> Result<Option<String>, TransferFailure> {
        let there = self.ahead.sum.clone();
        let Some(here) = self.sum_here.take() else {
            return Ok(there);
        };
        let here = here.await.map_err(|_| TransferFailure::Lost)??;
        verify::compared(here, there.unwrap_or_default(), true).map(Some)
    }
}
