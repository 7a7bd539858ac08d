//! The configuration: settings from flags and a file, with defaults filled in.
//!
//! ```text
//! flags  file            the command line, the TOML file
//!   └──┬──┘
//!   Settings             every setting once: flag, key, and whether a reload applies a change
//!      │  resolve        defaults and checks, in the files named after their parts
//!   Config               complete and checked; a reload keeps what only a restart can change
//! ```
//!
//! Each step collects problems with their places, so that one run names all of them.

mod accounts;
mod admin;
mod as_node;
mod authorization;
mod configuration;
mod cover;
mod data;
mod error;
mod examples;
mod file;
mod flags;
mod globus_file;
mod globus_tls;
mod group_limits;
mod invite_command;
mod keys;
mod limits;
mod listen;
mod load;
mod log_level;
mod log_targets;
mod max_startups;
mod name_server;
mod nodes;
mod nodes_command;
mod one_line;
mod places;
mod port_range;
mod problem;
mod ranges;
mod reload;
mod resolve;
mod resolve_node;
mod seconds;
mod security;
mod settings;
mod shown;
mod similar;
mod socket_arguments;
mod source_file;
mod sources;
mod tables;
mod texts;
mod tls_range;
mod values;
mod wrong_flags;

pub use accounts::LocalAccounts;
pub use admin::{AdminSocket, Administration};
pub use as_node::{AsNode, ControlServer};
pub use authorization::{Claimant, MemberOf, Outcome, Rule};
pub use configuration::{Anonymous, Config, Log};
pub use data::DataConnections;
pub use flags::{
    CheckArguments, Command, CommandLine, DoctorArguments, GctArguments, ImportArguments,
    KickArguments, NodeServeArguments, PasswdArguments, ServeArguments, StatusArguments,
    TopArguments, Whom,
};
pub use group_limits::{GroupLimit, Member};
pub use invite_command::{
    EnrolArguments, INVITE_PORT, InviteArguments, InvitingServer, NODE_AUTHORITY,
};
pub use keys::{KeyInForce, Keys, Reload, Source};
pub use limits::Limits;
pub use listen::ListenAddress;
pub use log_level::{LogLevel, LogLevelError};
pub use max_startups::{MaxStartups, MaxStartupsError};
pub use name_server::NameServer;
pub use nodes::{MOST_NODES, NODE_PORT, NodeAddress, NodeSource, ServiceName};
pub use nodes_command::{NodeArguments, NodesAction, NodesArguments};
pub use places::HostFiles;
pub use problem::WrongFlag;
pub use seconds::Seconds;
pub use security::{Gsi, Security};
pub use settings::Settings;
pub use socket_arguments::SocketArguments;
pub use source_file::SourceFile;
pub use sources::ConfigErrors;
pub use tls_range::TlsRange;
pub use values::{
    ArrivalChecksums, AtomicRoot, Bytes, Callout, ClientOptions, DataHosts, ExemptBlock, FileMode,
    KeyKind, LogFormat, PortRange, SyncFiles, ValueError,
};
pub use wrong_flags::ForeignFlag;

pub(crate) use invite_command::CONTROL_FILE;
pub(crate) use load::Loaded;
pub(crate) use places::has_host_credential;
pub(crate) use problem::{Place, Problem};
pub(crate) use similar::similar;
pub(crate) use sources::Sources;
