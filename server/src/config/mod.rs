//! The configuration: settings from flags and a file, with defaults filled in.
//!
//! ```text
//! flags  file            the command line, the TOML file
//!   └──┬──┘
//!   Settings             every setting once: flag, key, and whether a reload applies a change
//!      │  resolve        defaults and checks, in the files named after their parts
//!   Config               complete and checked; a reload keeps what only a restart can change
//! ```

mod accounts;
mod authorization;
mod configuration;
mod data;
mod error;
mod file;
mod flags;
mod globus_tls;
mod group_limits;
mod limits;
mod load;
mod max_startups;
mod places;
mod port_range;
mod ranges;
mod reload;
mod resolve;
mod security;
mod settings;
mod tls_range;
mod values;

pub use accounts::LocalAccounts;
pub use authorization::{Claimant, MemberOf, Outcome, Rule};
pub use configuration::{Anonymous, Config, Log};
pub use data::DataConnections;
pub use error::ConfigError;
pub use file::FileError;
pub use flags::{CheckArguments, Command, CommandLine, PasswdArguments, ServeArguments};
pub use group_limits::{GroupLimit, Member};
pub use limits::Limits;
pub use max_startups::{MaxStartups, MaxStartupsError};
pub use places::HostFiles;
pub use reload::Reload;
pub use security::{Gsi, Security};
pub use settings::Settings;
pub use tls_range::TlsRange;
pub use values::{
    ArrivalChecksums, AtomicRoot, Bytes, ClientOptions, DataHosts, ExemptBlock, FileMode, KeyKind,
    LogFormat, PortRange, SyncFiles, ValueError,
};
