//! Everything that tests and benchmarks need to drive a server: programs, servers, certificates, a raw client.

mod account;
mod client;
mod cluster;
pub mod content;
mod copier;
mod failure;
pub mod guest_network;
mod launch;
mod node;
pub(crate) mod node_site;
mod pki;
pub mod policer;
pub(crate) mod process_group;
mod program;
pub mod prometheus;
pub mod raw;
mod relay;
pub mod scratch;
mod server;
pub mod slow;
mod ssh_host;
pub mod url;
pub mod usage;

pub use account::chown_to_nobody;
pub use client::{Client, ClientError, Finished};
pub use cluster::Cluster;
pub use copier::{Copier, Inexpressible};
pub use failure::{Failure, check};
pub use launch::{Launch, LaunchError};
pub use node::{Node, NodeLaunch};
pub use node_site::NodeSite;
pub use pki::{
    Accounts, BadCredential, BadKind, HOST, PASSWORD, PASSWORD_USER, Pki, PkiError, UserCredential,
    UserKind,
};
pub use program::{Kind, ProgramError, gridhaul_client, gridhaul_program, write_program};
pub use relay::Relay;
pub use server::Server;
pub use ssh_host::SshHost;
