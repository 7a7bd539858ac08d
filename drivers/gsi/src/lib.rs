//! The transforms `gsi` and `ftps`: authenticated and protected data channels.
//!
//! Both are drivers of one session. The session negotiates with its client which credential they present, which peers they
//! accept, and whether data is encrypted (`DCAU`, `PROT`). A program registers [`Gsi::without_session`], so that its name and
//! options are valid in stacks; a session replaces it by its own. Users do not write `ftps` in a stack: the session adds it.
//!
//! The connecting end is the TLS client of `gsi`, in both directions of data. The server of a session is always the TLS
//! server of `ftps`.
//!
//! ```text
//!   gsi, ftps, ftps_client ──> handshake, identity      before data
//!       ├──> value                         the driver of a session for another machine
//!       └──> channel                       TLS records over the channel below
//!              ├──> engine                 rustls (ftps) or gridhaul_security::tls (gsi), without I/O
//!              ├──> incoming, outgoing, pieces, record
//!              └──> kernel                 kernel TLS (ktls)
//! ```
//!
//! # Example
//!
//! ```
//! use gridhaul_gsi::Gsi;
//! use gridhaul_protocol::stack::StackSpec;
//! use gridhaul_stack::{Memory, Registry};
//!
//! let mut registry = Registry::new();
//! registry.register(Memory);
//! registry.register(Gsi::without_session());
//! registry.build(&StackSpec::parse("memory,gsi:ktls=off")?)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod channel;
mod engine;
mod ftps;
mod ftps_client;
mod gsi;
mod handshake;
mod identity;
mod incoming;
mod kernel;
mod outgoing;
mod pieces;
mod record;
mod security;
#[cfg(test)]
mod tests;
mod value;

pub use ftps::Ftps;
pub use ftps_client::FtpsClient;
pub use gsi::Gsi;
pub use security::{ChannelSecurity, Protection};
