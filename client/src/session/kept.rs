//! The data channels that a transfer has left open.
//!
//! In MODE E they serve the next transfer, if it needs the same ones and no other data port is requested (GFD.20 3.4.2). That saves
//! the connections and handshakes of every further file.

use std::sync::Arc;

use gridhaul_protocol::stack::StackSpec;
use gridhaul_transfer::NodeSession;

use super::{Session, TransferSettings};

/// Data channels between this server and another end.
#[derive(Debug, Clone)]
pub(crate) struct Kept {
    /// The other end.
    pub(crate) with: OtherEnd,
    /// Whether the server sends.
    pub(crate) sends: bool,
    /// The settings of their transfers.
    pub(crate) settings: TransferSettings,
    /// The stack of this machine, if that is the other end.
    pub(crate) stack: Option<StackSpec>,
}

/// The other end of data channels.
#[derive(Debug, Clone)]
pub(crate) enum OtherEnd {
    /// This machine.
    Here(Arc<dyn NodeSession>),
    /// The session with this id.
    Session(u64),
}

impl PartialEq for OtherEnd {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Here(one), Self::Here(other)) => Arc::ptr_eq(one, other),
            (Self::Session(one), Self::Session(other)) => one == other,
            _ => false,
        }
    }
}

impl PartialEq for Kept {
    fn eq(&self, other: &Self) -> bool {
        self.with == other.with
            && self.sends == other.sends
            && self.settings == other.settings
            && self.stack == other.stack
    }
}

impl Session {
    /// Whether these channels are open. They count as lost until [`Self::keep`], because a transfer that fails closes them.
    pub(crate) fn takes_kept(&mut self, wanted: &Kept) -> bool {
        self.kept.take().is_some_and(|kept| kept == *wanted)
    }

    /// Records the channels of a transfer that has succeeded.
    pub(crate) fn keep(&mut self, channels: Kept) {
        self.kept = Some(channels);
    }
}
