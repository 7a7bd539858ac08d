//! The GridFTP server: sessions, configuration and the program `gridhaul-server`.
//!
//! A session is a control channel. It speaks FTP with the extensions of GridFTP (RFC 959, GFD.20) to its client, in the types
//! of `gridhaul-protocol`, and moves files through a data node of `gridhaul-transfer`; it never touches a data socket or the
//! bytes of a file. tokio runs control channels, listeners and timers, which are many and mostly idle.
//!
//! ```text
//! main ──▶ globus                      the configuration and the command line of globus-gridftp-server
//!                      │
//!          doctor, check   serve, ssh  the commands of the program; `node` is a data node
//!                   └──┬──┘
//!                   validate            whether a configuration can take effect
//!                    │
//!             running  reload          the loop of signals and orders; the configuration again
//!                    │
//!                  front               the process that listens; clients before login
//!                    │
//!                  server              starts, reloads and ends
//!                    │
//!             session  admin           one control channel; the administration interface
//!                    │
//!                  shared              the state of all sessions: settings, limits, the data node
//!                  ┌─┴──────┐
//!             handover    storages     clients between two processes; the roots of accounts
//!                    │
//!             drivers  session_drivers the drivers of data channels; those of sessions of other machines
//!                  │
//!               service                what a service manager passes and hears; upgrades
//!                  │
//!                login                 the process that decides logins, and its clients
//!                  │
//!       security  passwords  admission certificates and rules; users with passwords; limits before login
//!                  │
//!               telemetry              log, transfer log, metrics
//!                  │
//!                config                settings from flags and file
//! ```
//!
//! [`serve`](serve::serve) is the program; [`Server`] is a server inside another one, for tests:
//!
//! ```no_run
//! use gridhaul_server::PreparedServer;
//! use gridhaul_server::config::{Config, ServeArguments, Settings};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let config = Config::load(&ServeArguments {
//!     settings: Settings {
//!         root: Some("/srv/data".into()),
//!         listen: Some(vec!["127.0.0.1:0".parse()?]),
//!         anonymous: Some(true),
//!         ..Settings::default()
//!     },
//!     ..ServeArguments::default()
//! })?;
//! let runtime = tokio::runtime::Runtime::new()?;
//! runtime.block_on(async {
//!     let server = PreparedServer::new(config)?.start()?;
//!     println!("{:?}", server.addresses());
//!     server.shut_down(std::future::pending()).await;
//!     Ok(())
//! })
//! # }
//! ```

mod admin;
mod admission;
mod announce;
pub mod bare;
pub mod called_as;
mod callout;
pub mod check;
mod checksum_key;
pub mod config;
mod data_nodes;
mod debts;
pub mod doctor;
mod drivers;
mod enrolment;
mod front;
#[cfg(any(test, fuzzing))]
mod fuzz_input;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzzing;
pub mod globus;
mod group_limits;
mod handover;
mod harmful;
mod helpers;
mod http;
mod in_place;
mod inetd;
mod live;
mod locks;
mod log_process;
mod login;
mod machine;
pub mod mutual_tls;
pub mod node;
mod own_addresses;
pub mod passwords;
pub mod privileges;
mod rechecked;
mod reload;
mod routes;
mod running;
mod sandbox;
mod security;
pub mod serve;
mod server;
mod service;
mod session;
pub mod session_drivers;
mod shared;
mod shutdown;
pub mod ssh;
mod start_logs;
mod status;
mod storages;
mod telemetry;
pub mod terminal;
mod threads;
mod transfer_limit;
mod transfer_verb;
mod validate;
mod version;
mod wire;

pub use admin::{AdminError, AdminSocketError, AdminTlsError, AdminTokenError};
pub use callout::CalloutProcessError;
pub use checksum_key::ChecksumKeyError;
pub use drivers::DriversError;
pub use enrolment::{EnrolError, InviteError, PlaceError};
pub use front::FrontProcessError;
pub use log_process::LogProcessError;
pub use login::{AuthenticatorError, LoginProcessError};
pub use security::{GsiAuthzError, HostError, SecurityError};
pub use server::{ActivationError, PreparedServer, Server, StartError};
pub use service::EnvironmentError;
pub use shared::SettingsError;
pub use telemetry::LoggingError;
