//! The transforms `gsi` and `ftps`: data channels that prove who is at their other end, and are
//! protected.
//!
//! Both are drivers of one session: what they prove, whom they accept and what happens to the bytes is what
//! the session agreed on with its client (`DCAU`, `PROT`). A program registers [`Gsi::without_session`], so
//! that its name and its options can stand in stacks; a session puts its own in its place. Users do not write `ftps`
//! in a stack: the session adds it.
//!
//! The connecting end is the TLS client of `gsi`, whatever the direction of the data; the server of a
//! session is always the TLS server of `ftps`.

mod channel;
mod ftps;
mod gsi;
mod handshake;
mod identity;
mod incoming;
mod kernel;
mod outgoing;
mod pieces;
mod record;
#[cfg(test)]
mod tests;

pub use ftps::Ftps;
pub use gsi::{ChannelSecurity, Gsi, Protection};
pub use kernel::{KernelSupport, kernel_support};
