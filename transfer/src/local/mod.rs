//! The data node in the same process.
//!
//! ```text
//!   LocalNode ── attach ──> LocalSession ── transfer ──> Job ──> Opened ──> send or receive
//!                                └─ ChannelSlot <── channels ──┘
//! ```

mod channel_slot;
mod config;
mod inline_transfer;
mod job;
mod node;
mod opened;
mod pace;
mod requested_checksums;
mod session;
mod share_check;
mod shared;

pub use config::{AccountFiles, NodeConfig, OpenStorage};
pub use node::LocalNode;
