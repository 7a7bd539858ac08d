//! The GridFTP server: sessions, configuration and the program `gridhaul-server`.
//!
//! A session is a control channel. It speaks FTP with the extensions of GridFTP to its client, in the types
//! of `gridhaul-protocol`, and moves files by asking a data node of `gridhaul-transfer`; it never touches
//! a data socket or a file's bytes. tokio runs what is many and mostly idle: control channels, listeners
//! and timers.
//!
//! [`serve`](serve::serve) is the program; [`Server`] is a server inside another one, for tests.

mod admission;
mod append_file;
pub mod check;
mod checksum_key;
pub mod config;
mod descriptors;
mod events;
mod front;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzzing;
mod helpers;
mod in_place;
mod lateness;
mod listener;
pub mod logging;
mod login;
mod memory;
mod metrics;
mod own_addresses;
pub mod passwords;
pub mod privileges;
mod routes;
mod sandbox;
mod security;
pub mod serve;
mod server;
mod session;
mod settings;
mod shutdown;
pub mod ssh;
mod start_error;
mod storages;
mod threads;
mod transfer_limit;
mod transfer_log;
mod transfer_verb;

pub use checksum_key::ChecksumKeyError;
pub use front::FrontProcessError;
pub use login::LoginProcessError;
pub use security::{HostError, SecurityError};
pub use server::{PreparedServer, Server};
pub use start_error::StartError;

/// The version's number.
const VERSION_NUMBER: &str = env!("CARGO_PKG_VERSION");

/// What clients are told that they speak to.
const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (gridhaul)");

/// The name of this machine.
fn host_name() -> String {
    rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned()
}
