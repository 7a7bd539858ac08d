//! The command line of `nodes invite` and of the enrolment of a node.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

use clap::Args;
use gridhaul_security::host_name::HostName;

use super::listen::{ListenAddress, has_ipv6};
use super::nodes::{NodeAddress, host_and_port};
use super::seconds::Seconds;
use super::values::ValueError;

/// The port at which nodes are invited.
pub const INVITE_PORT: u16 = 7513;

/// Where the authority of data nodes is, unless it is said.
pub const NODE_AUTHORITY: &str = "/etc/gridhaul/node-authority";

/// The file of the control server in the directory of its authority: key, certificate, and that of the authority.
pub(crate) const CONTROL_FILE: &str = "control.pem";

/// The arguments of `nodes invite`.
#[derive(Debug, Clone, PartialEq, Args)]
pub struct InviteArguments {
    /// The nodes, as in nodes of the configuration, without ports
    #[arg(value_name = "NAME", required = true)]
    pub nodes: Vec<HostName>,
    /// The directory of the authority, which is made if it does not exist
    #[arg(long, value_name = "DIR", default_value = NODE_AUTHORITY)]
    pub node_authority: PathBuf,
    /// Where nodes connect to; may be given several times. Default: port 7513 of all addresses
    #[arg(long, value_name = "ADDRESS")]
    pub listen: Vec<ListenAddress>,
    /// How long the tokens are valid, at most a day
    #[arg(long, value_name = "TIME", default_value = "15m")]
    pub valid: Seconds,
}

impl InviteArguments {
    /// Where to listen.
    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        let everywhere = [ListenAddress::Port(INVITE_PORT)];
        let named = match &self.listen[..] {
            [] => &everywhere[..],
            named => named,
        };
        let has_ipv6 = has_ipv6();
        let all = named.iter();
        all.flat_map(|address| address.everywhere(has_ipv6))
            .collect()
    }
}

/// A control server that invites nodes: `HOST` or `HOST:PORT`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvitingServer(pub NodeAddress);

impl FromStr for InvitingServer {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parsed = host_and_port(text, INVITE_PORT);
        let parsed = parsed.map(|(host, port)| Self(NodeAddress { host, port }));
        parsed.ok_or_else(|| {
            ValueError::new(
                text,
                "a control server, like ctl.example.org or ctl.example.org:7513",
            )
        })
    }
}

/// The arguments of `node` for its enrolment.
#[derive(Debug, Clone, Default, PartialEq, Args)]
pub struct EnrolArguments {
    /// Get a certificate from a control server that invites this node, and serve. The token comes from standard input
    #[arg(
        long = "enroll",
        value_name = "CONTROL[:PORT]",
        help_heading = "Enrolment"
    )]
    pub enrol: Option<InvitingServer>,
    /// The file with the token, which only its owner may read
    #[arg(
        long,
        value_name = "FILE",
        requires = "enrol",
        help_heading = "Enrolment"
    )]
    pub token_file: Option<PathBuf>,
    /// Replace the certificate that the node has
    #[arg(long, requires = "enrol", help_heading = "Enrolment")]
    pub again: bool,
    /// Do not serve: a service will
    #[arg(long, requires = "enrol", help_heading = "Enrolment")]
    pub enroll_only: bool,
}
