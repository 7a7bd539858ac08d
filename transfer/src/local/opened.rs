//! The two halves of a transfer: opening the file, and moving the data.

use super::share_check;
use crate::channels::DataChannels;
use crate::context::Context;
use crate::error::{SequenceError, TransferError};
use crate::node::{ByteSink, LineSource, Plan, Task};
use crate::{receive, send};

/// The open file of a transfer, or the source of its lines.
pub(super) enum Opened {
    Send(send::FilePart),
    /// Opened when the lines are sent.
    Lines(LineSource),
    Receive(receive::OpenedTarget),
    Bytes(ByteSink),
}

impl Opened {
    /// Opens the file of a transfer.
    pub(super) fn open(
        context: &Context,
        plan: &Plan,
        channels: &DataChannels,
    ) -> Result<Self, TransferError> {
        share_check::check(plan, channels.stripes()).map_err(SequenceError::from)?;
        Ok(match &plan.task {
            Task::SendFile {
                path,
                offset,
                length,
                restart,
            } => {
                let part = send::Part {
                    path,
                    offset: *offset,
                    length: *length,
                    restart,
                };
                Self::Send(send::open(context, plan, part, channels)?)
            }
            Task::SendLines(source) => Self::Lines(source.clone()),
            Task::ReceiveBytes(sink) => Self::Bytes(sink.clone()),
            Task::ReceiveFile {
                path,
                placement,
                restart,
                promised,
            } => {
                let target = receive::Target {
                    path,
                    placement: *placement,
                    restart,
                    promised: *promised,
                };
                Self::Receive(receive::open(context, plan, target, channels)?)
            }
        })
    }

    /// Moves the data.
    pub(super) fn transfer(
        self,
        context: &Context,
        plan: &Plan,
        channels: &mut DataChannels,
    ) -> Result<(), TransferError> {
        match self {
            Self::Send(part) => send::file(context, plan, part, channels),
            Self::Lines(source) => send::lines(context, plan, &source, channels),
            Self::Bytes(sink) => receive::bytes(context, plan, &sink, channels),
            Self::Receive(target) => receive::file(context, plan, target, channels),
        }
    }
}
