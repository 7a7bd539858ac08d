//! The commands that talk to a running server: `status`, `top`, `kick`, `drain`, `reload`, `upgrade`.
//!
//! ```text
//! commands        what each command does
//!   ├─ screen       top: the terminal, and what is typed
//!   ├─ client       requests over the Unix socket
//!   │    └─ search    sockets of servers, where none is named
//!   └─ tables       the status as text
//!        └─ words     sizes, times, and names without control characters
//! ```

mod client;
mod commands;
mod screen;
mod search;
mod tables;
mod words;

pub use client::TerminalError;
pub(crate) use commands::{document_at, status_of};
pub use commands::{drain, kick, reload, status, top, upgrade};
