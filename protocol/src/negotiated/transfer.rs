//! The parameters of the next transfer, and the terms of a transfer.

use super::port::PassiveRequest;
use super::refusal::Refusal;
use crate::command::{AlgorithmName, Checksum, Representation, StoreAttributes, TransferMode};
use crate::ranges::RangeSet;

/// The parameters of the next transfer. They are reset by it, whether it succeeds or not.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NextTransfer {
    /// `REST`: bytes that the receiver already has.
    pub restart: RangeSet,
    /// `ALLO`: the number of bytes that the client will send.
    pub promised: Option<u64>,
    /// `SCKS`: the checksum that the stored file must have.
    pub expected: Option<(AlgorithmName, Checksum)>,
    /// `SITE STORATTR`.
    pub attributes: StoreAttributes,
}

/// The terms of a transfer that may begin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Terms {
    /// `MODE`.
    pub mode: TransferMode,
    /// `TYPE`; always [`Representation::Image`] in MODE E, whose offsets count the bytes of the file.
    pub representation: Representation,
    /// The parameters that were set for this transfer.
    pub pending: NextTransfer,
    /// The data port was delayed: the session listens now, calls [`Negotiated::listening`](super::Negotiated::listening), and sends
    /// the address in a 127 or 129 first.
    pub delayed: Option<PassiveRequest>,
}

impl Terms {
    /// Whether a file can be transferred under these terms.
    ///
    /// # Errors
    ///
    /// For a restart in TYPE A.
    pub fn check_file(&self) -> Result<(), Refusal> {
        if self.representation == Representation::Ascii && !self.pending.restart.is_empty() {
            return Err(Refusal::RestartOfText);
        }
        Ok(())
    }

    /// Whether a new file can be received under these terms.
    ///
    /// # Errors
    ///
    /// For a restart.
    pub fn check_new_file(&self) -> Result<(), Refusal> {
        if !self.pending.restart.is_empty() {
            return Err(Refusal::RestartOfNewFile);
        }
        Ok(())
    }
}
