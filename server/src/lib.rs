//! The GridFTP server: sessions, configuration and the program `gridhaul-server`.
//!
//! A session is a control channel. It speaks FTP with the extensions of GridFTP to its client, in the types
//! of `gridhaul-protocol`, and moves files by asking a data node of `gridhaul-transfer`; it never touches
//! a data socket or a file's bytes. tokio runs what is many and mostly idle: control channels, listeners
//! and timers.
//!
//! [`serve`](serve::serve) is the program; [`Server`] is a server inside another one, for tests.

mod admission;
pub mod check;
mod checksum_key;
pub mod config;
mod debts;
mod drivers;
mod front;
#[cfg(any(test, fuzzing))]
mod fuzz_input;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzzing;
mod handover;
mod helpers;
mod in_place;
mod login;
mod machine;
mod own_addresses;
pub mod passwords;
pub mod privileges;
mod routes;
mod sandbox;
mod security;
pub mod serve;
mod server;
mod session;
mod shared;
mod shutdown;
pub mod ssh;
mod storages;
mod telemetry;
mod threads;
mod transfer_limit;
mod transfer_verb;
mod version;
mod wire;

pub use checksum_key::ChecksumKeyError;
pub use drivers::DriversError;
pub use front::FrontProcessError;
pub use login::{DeskError, LoginProcessError};
pub use security::{HostError, SecurityError};
pub use server::{PreparedServer, Server, StartError};
pub use shared::SettingsError;
pub use telemetry::LoggingError;
