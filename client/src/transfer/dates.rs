//! Files of a pipeline that get the times of their sources at the server that has stored them.
//!
//! ```text
//!   commands   STOR a | STOR b | STOR c |        MFMT a | STOR d |      MFMT b | ...
//!   replies                       226 a                    226 b  226 c  213 a ...
//! ```
//!
//! `MFMT` follows the confirmation of a file, and not its `STOR`: if that fails, the file before would get the time, and would be taken
//! for the copy. Nothing waits for its reply, which comes behind those to the commands that were sent before.

use std::collections::VecDeque;
use std::time::SystemTime;

use gridhaul_protocol::path::PathArgument;
use gridhaul_protocol::reply::Reply;

use super::Transferred;
use super::ahead::Silence;
use super::said::ReplyLimit;
use crate::control::{Control, ControlError};
use crate::session::mfmt;

/// The command, in errors.
const VERB: &str = "MFMT";

/// Files that are stored, in their order, until they have their times.
#[derive(Debug, Default)]
pub(super) struct Dates {
    /// The files whose commands were sent.
    sent: u64,
    waiting: VecDeque<Dated>,
    has_prepared: bool,
}

#[derive(Debug)]
struct Dated {
    done: Transferred,
    time: Time,
    command_bytes: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Time {
    /// The `MFMT` has no last reply. The commands of so many files were sent before it.
    Owed(u64),
    /// The server has set it, or there is none.
    Settled,
    /// The server has set none.
    Refused,
}

impl Dated {
    fn is_owed(&self) -> bool {
        matches!(self.time, Time::Owed(_))
    }
}

impl Dates {
    /// The commands of a file are sent.
    pub(super) fn note_sent(&mut self) {
        self.sent += 1;
    }

    /// Adds a file that is stored. One without a time, or with a time that the command has no place for, waits only for those before.
    pub(super) fn add(
        &mut self,
        control: &mut Control,
        (path, modified): (&PathArgument, Option<SystemTime>),
        done: Transferred,
    ) -> Result<(), ControlError> {
        let command = modified.and_then(|modified| mfmt(path, modified));
        let command_bytes = match &command {
            Some(command) => control.prepare(command)?,
            None => 0,
        };
        self.has_prepared |= command.is_some();
        self.waiting.push_back(Dated {
            done,
            time: command.map_or(Time::Settled, |_| Time::Owed(self.sent)),
            command_bytes,
        });
        Ok(())
    }

    /// Sends the commands of the files that were added.
    pub(super) async fn send(&mut self, control: &mut Control) -> Result<(), ControlError> {
        match std::mem::take(&mut self.has_prepared) {
            true => control.send_prepared(VERB).await,
            false => Ok(()),
        }
    }

    /// Whether a command has no last reply.
    pub(super) fn are_owed(&self) -> bool {
        self.waiting.iter().any(Dated::is_owed)
    }

    /// Whether the next reply is to one of these commands, while the commands of so many files await replies.
    pub(super) fn are_next(&self, unanswered: usize) -> bool {
        let answered = self.sent.saturating_sub(unanswered as u64);
        let mut owed = self.waiting.iter().filter(|dated| dated.is_owed());
        let next = owed.next().map(|dated| dated.time);
        matches!(next, Some(Time::Owed(sent)) if sent <= answered)
    }

    /// Takes the next reply, which counts for the limits of the pipeline.
    pub(super) fn hear(
        &mut self,
        reply: Reply,
        limit: &mut ReplyLimit,
        silence: &mut Silence,
    ) -> Result<(), ControlError> {
        limit.count(VERB, &reply)?;
        match self.settle(reply)? {
            true => silence.progressed(),
            false => silence.hears(),
        }
        Ok(())
    }

    /// Takes the next reply; whether it is the last one to a command.
    pub(super) fn settle(&mut self, reply: Reply) -> Result<bool, ControlError> {
        if reply.is_preliminary() {
            return Ok(false);
        }
        let mut waiting = self.waiting.iter_mut();
        let owed = waiting.find(|dated| dated.is_owed());
        let (time, heard) = match reply.code() {
            200..=299 => (Time::Settled, Ok(true)),
            400.. => (
                Time::Refused,
                Err(ControlError::Refused { verb: VERB, reply }),
            ),
            _ => (
                Time::Refused,
                Err(ControlError::Unexpected { verb: VERB, reply }),
            ),
        };
        if let Some(dated) = owed {
            dated.time = time;
        }
        heard
    }

    /// The oldest file, if it has its time.
    pub(super) fn next(&mut self) -> Option<Transferred> {
        let dated = self
            .waiting
            .pop_front_if(|dated| dated.time == Time::Settled)?;
        Some(dated.done)
    }

    /// The files that are stored and have no result.
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// The bytes of the commands that a server may not have read.
    pub(super) fn command_bytes(&self) -> usize {
        let owed = self.waiting.iter().filter(|dated| dated.is_owed());
        owed.map(|dated| dated.command_bytes).sum()
    }
}
