//! What commands have set for the next transfer, and the terms under which a transfer begins.

use super::port::PassiveRequest;
use super::refusal::Refusal;
use crate::command::{AlgorithmName, Checksum, Representation, StoreAttributes, TransferMode};
use crate::ranges::RangeSet;

/// What the next transfer takes with it, whether it succeeds or not.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NextTransfer {
    /// `REST`: bytes that the receiver has already.
    pub restart: RangeSet,
    /// `ALLO`: how many bytes will come.
    pub promised: Option<u64>,
    /// `SCKS`: the checksum that the stored file must have.
    pub expected: Option<(AlgorithmName, Checksum)>,
    /// `SITE STORATTR`.
    pub attributes: StoreAttributes,
}

/// How a transfer that may begin is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Terms {
    /// `MODE`.
    pub mode: TransferMode,
    /// `TYPE`; always [`Representation::Image`] in MODE E, whose offsets count the bytes of the file.
    pub representation: Representation,
    /// What waited for this transfer.
    pub pending: NextTransfer,
    /// The data port was delayed: the session listens now, calls [`Negotiated::listening`], and sends
    /// the address in a 127 or 129 first.
    pub delayed: Option<PassiveRequest>,
}

impl Terms {
    /// Whether a file can be transferred under these terms.
    ///
    /// # Errors
    ///
    /// When a restart waited for it, and TYPE A is to be sent or received.
    pub fn check_file(&self) -> Result<(), Refusal> {
        if self.representation == Representation::Ascii && !self.pending.restart.is_empty() {
            return Err(Refusal::RestartOfText);
        }
        Ok(())
    }

    /// Whether a file can be received that is not there yet.
    ///
    /// # Errors
    ///
    /// When a restart waited for it.
    pub fn check_new_file(&self) -> Result<(), Refusal> {
        if !self.pending.restart.is_empty() {
            return Err(Refusal::RestartOfNewFile);
        }
        Ok(())
    }
}
