//! Confines each process of the server before it handles input: system calls, files, networks and privileges.
//!
//! | module | process |
//! |---|---|
//! | [`front`] | listens, and talks to clients until they have logged in |
//! | [`server`] | runs sessions and moves data, on many threads |
//! | [`login`] | holds the host key and authenticates clients |
//! | [`logs`] | writes the log files |
//! | [`monitor`] | keeps root's privileges and starts brokers |
//! | [`launcher`] | starts the next version of the server |
//! | [`broker`] | opens the files of one account |
//! | [`measuring`] | measures RDMA with a peer (`doctor --rdma-listen`) |
//!
//! Each of these modules names the groups of system calls that its process may make, with the reason for each group, and
//! applies the rules about files; `monitor` and `launcher` instead deny a list of calls, and have no rules about files. All processes set
//! `no_new_privs`.
//!
//! ```text
//! front  server  login  logs  monitor  launcher  broker  measuring   one module for each process
//!   │      │       │      │      │        │         │        │
//!   ├──────┴───────┴──────┴──────┴────────┴─────────┴────────┤
//!   groups ──> calls                          place ──> files       privileges
//!              (seccomp)                                (Landlock)  (no_new_privs, capabilities)
//! ```
//!
//! A forbidden system call fails with `EPERM` and does not end the process: if a later C library uses another call for
//! the same work, only that call fails. Calls that were added in Linux 5.1 and later fail with `ENOSYS` instead, as they
//! do on an older kernel, so that libraries fall back to the older call.
//!
//! A process lists its files while it still has the privileges to open them, and confines itself before it starts a
//! second thread:
//!
//! ```no_run
//! use gridhaul_sandbox::server::{self, Needs};
//! use gridhaul_sandbox::{Access, Files, Place};
//!
//! let files = Files::at([
//!     Place::fixed("/etc", Access::Read),
//!     Place::new("/srv/data", Access::Write),
//! ]);
//! let confinement = server::confine(Needs::default(), files)?;
//! for missing in confinement.missing() {
//!     eprintln!("this kernel does not enforce: {missing}");
//! }
//! # Ok::<(), gridhaul_sandbox::SandboxError>(())
//! ```

pub mod broker;
mod calls;
mod confinement;
mod error;
mod files;
pub mod front;
mod groups;
mod kernel;
pub mod launcher;
pub mod login;
pub mod logs;
pub mod measuring;
pub mod monitor;
mod place;
mod privileges;
pub mod server;

pub use calls::Filter;
pub use confinement::Confinement;
pub use error::SandboxError;
pub use files::Files;
pub use kernel::{has_seccomp_filters, landlock_abi};
pub use place::{Access, Place};
pub use privileges::{give_up_new_rights, keep_capabilities, narrow_bounding_set};
