//! Which directions of a channel the kernel protects.

use gridhaul_stack::Detail;

use super::sending::KernelSender;

/// The directions that the kernel protects after the handshake.
#[derive(Debug, Default)]
pub(crate) struct Offload {
    /// Set if the kernel seals records that are sent.
    pub(crate) sending: Option<KernelSender>,
    /// The kernel opens records that are received.
    pub(crate) is_receiving: bool,
}

impl Offload {
    /// For the log: which directions the kernel protects.
    pub(crate) fn detail(&self) -> Detail {
        let text = match (&self.sending, self.is_receiving) {
            (None, false) => "here",
            (Some(_), false) => "sent by the kernel",
            (None, true) => "received by the kernel",
            (Some(_), true) => "by the kernel",
        };
        Detail::text("tls-records", text)
    }
}
