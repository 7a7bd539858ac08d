//! The configuration of `gridhaul-server node`: which settings a data node has.
//!
//! Control servers log users in, and tell a node what to do. Settings about that have no effect in a node, and are refused.

use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;

use clap::Arg;
use gridhaul_security::host_name::HostNameError;
use gridhaul_security::tls::Principal;

use super::texts::deserialize_as_text;

/// What only a data node has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AsNode {
    /// The control servers that it obeys; `None` are those with its own certificate.
    pub control_servers: Option<Vec<Principal>>,
    /// The file with its identity, if it is enrolled; its control servers are those of its authority then.
    pub identity: Option<PathBuf>,
    /// The local addresses of passive data connections, of one family; without any, that at which a control server reaches the
    /// node.
    pub data_addresses: Vec<IpAddr>,
}

/// A control server: its host, or the subject of its certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ControlServer(pub Principal);

impl FromStr for ControlServer {
    type Err = HostNameError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse().map(Self)
    }
}

deserialize_as_text!(ControlServer);

/// The settings that take effect in a node.
pub(super) const KEYS: &[&str] = &[
    "root",
    "listen",
    "user",
    "cert",
    "key",
    "key-passphrase",
    "trust",
    "allow-root",
    "allow-disabled-login",
    "least-uid",
    "pam-service",
    "umask",
    "max-brokers",
    "broker-idle-timeout",
    "port-range",
    "data-address",
    "advertise-address",
    "stack",
    "control-servers",
    "node-identity",
    "movers",
    "file-threads",
    "buffer-memory",
    "rdma-memory",
    "data-timeout",
    "grace",
    "perms",
    "checksum-threads",
    "remembered-checksums",
    "checksum-key",
    "log-file",
    "log-format",
    "log-level",
];

/// Whether a setting takes effect in a node.
pub(super) fn has(key: &str) -> bool {
    KEYS.contains(&key)
}

/// An argument of `serve`, as `node` has it: the help leaves out what a node does not have.
pub(super) fn argument(argument: Arg) -> Arg {
    let key = argument.get_long().unwrap_or_default();
    match key {
        "listen" => argument
            .help("The address of control servers' connections; may be given several times. Default: 7512")
            .long_help(
                "The address of control servers' connections; may be given several times. Default: 7512\n\n\
                 A port alone, like 7512, means all addresses, IPv4 and IPv6. localhost:7512 means 127.0.0.1 and ::1. Port 0 \
                 takes a free port",
            ),
        "root" => argument
            .help("The directory with the files of users, as control servers have it. There is no default")
            .long_help("The directory with the files of users, as control servers have it. There is no default"),
        "config" | "help" | "enroll" | "enroll-only" | "token-file" | "again" => argument,
        key if has(key) => argument,
        _ => argument.hide(true),
    }
}
