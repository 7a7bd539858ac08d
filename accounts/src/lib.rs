//! File access as local accounts, by processes with the accounts' permissions.
//!
//! The server process has no privileges. A [`Monitor`], started as root before there is a thread or a network, starts a
//! *broker* for each active account: a process with the user and groups of the account. The broker opens, lists and renames
//! files beneath the account's root, and passes open descriptors to the server, which reads and writes them without further
//! requests. So the kernel checks the permissions of the account, and new files belong to it.
//!
//! ```text
//! server: Accounts, AccountStorage         root: Monitor
//!        │                                    │ fork, setresuid, Landlock, seccomp
//!        │                                    v
//!        └── calls of Storage, descriptors ── broker of alice, broker of bob, ...
//! ```
//!
//! [`Accounts`] is the server's side: it starts a broker at the first login, ends idle ones, and starts them again on demand.
//! [`AccountStorage`] implements [`Storage`](gridhaul_storage::Storage). A server that was started without root serves its own
//! account only ([`open_own`]).
//!
//! The monitor also opens files for the server that only root may read, such as a renewed host key or a password file, and
//! logs in directories of root after their rotation, from lists that it was started with. Passwords and logins are not handled here.
//!
//! ```no_run
//! use std::path::Path;
//! use std::sync::Arc;
//!
//! use gridhaul_accounts::{
//!     AccountPolicy, AccountRequest, Accounts, BrokerLimits, ListedFiles, Monitor, MonitorOptions,
//! };
//! use gridhaul_storage::Storage as _;
//!
//! // As root, before the process starts a thread:
//! let options = MonitorOptions {
//!     gridmapdir: None,
//!     policy: AccountPolicy::default(),
//!     pam_service: None,
//!     umask: None,
//!     brokers: 100,
//! };
//! let monitor = Monitor::start(Some(options), ListedFiles::default())?;
//!
//! // At a login, without privileges:
//! let limits = BrokerLimits {
//!     brokers: 100,
//!     idle: std::time::Duration::from_secs(600),
//!     call: BrokerLimits::CALL,
//!     fresh: BrokerLimits::FRESH,
//! };
//! let accounts = Accounts::new(Arc::new(monitor), limits);
//! let storage = accounts.open(&AccountRequest {
//!     account: "alice".to_owned(),
//!     root: "$HOME".into(),
//!     read_only: false,
//!     file_mode: 0o644,
//! })?;
//! storage.stat(Path::new("/data"))?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod account;
mod broker;
mod children;
mod client;
mod directory;
mod facts;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzzing;
mod listed;
mod log_files;
mod messages;
mod monitor;
mod options;
mod own;
mod pam;
mod policy;
mod pool_accounts;
pub mod process;
mod refusal;
mod shared;
pub mod socket;

pub use client::{
    AccountError, AccountRequest, AccountStorage, Accounts, BrokerCounts, BrokerLimits,
    BrokerSource,
};
pub use directory::{is_private, lock_directory, remove_dead_socket};
pub use listed::{ListedFiles, OpenError, may_be_opened};
pub use log_files::{may_be_appended, open_log};
pub use monitor::{Monitor, MonitorError};
pub use options::MonitorOptions;
pub use own::{open_own, own_directory};
pub use pam::pam_service_is_described;
pub use policy::AccountPolicy;
pub use pool_accounts::{LeaseError, count_pool};
pub use refusal::Refusal;
