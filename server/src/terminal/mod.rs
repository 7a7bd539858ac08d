//! The commands that talk to a running server: `status`, `top`, `kick`, `drain`, `nodes`, `reload`, `upgrade`.
//!
//! ```text
//! commands        what each command does
//!   ├─ nodes        nodes, nodes drain, nodes resume
//!   ├─ screen       top: the terminal, and what is typed
//!   ├─ client       requests over the Unix socket
//!   │    └─ search    sockets of servers, where none is named
//!   └─ tables       the status as text
//!        ├─ node_table
//!        └─ words     sizes, times, and names without control characters
//! ```

mod client;
mod commands;
mod node_table;
mod nodes;
mod screen;
mod search;
mod tables;
mod words;

pub use client::TerminalError;
pub(crate) use commands::{document_at, status_of};
pub use commands::{drain, kick, reload, status, top, upgrade};
pub use nodes::nodes;
