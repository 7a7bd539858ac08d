//! The command line of `nodes`.

use clap::{Args, Subcommand};

use super::invite_command::InviteArguments;
use super::socket_arguments::SocketArguments;

/// The arguments of `nodes`.
#[derive(Debug, Clone, Default, PartialEq, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct NodesArguments {
    /// Without one: the list of the nodes.
    #[command(subcommand)]
    pub action: Option<NodesAction>,
    /// How to reach the server.
    #[command(flatten)]
    pub server: SocketArguments,
    /// The member nodes of the status document
    #[arg(long)]
    pub json: bool,
}

/// What to do with a data node.
#[derive(Debug, Clone, PartialEq, Subcommand)]
pub enum NodesAction {
    /// Give a node no new sessions and transfers of this server; those that it has finish
    ///
    /// It lasts until `nodes resume`, or a restart or upgrade of this server. Other control servers of the node go on using it.
    Drain(NodeArguments),
    /// Give a node that was drained sessions and transfers again
    Resume(NodeArguments),
    /// Give nodes without a certificate one of this machine's own authority, with a token for each
    ///
    /// Prints the tokens, and waits for the nodes, which run `node --enroll`. Needs no running server.
    Invite(InviteArguments),
}

/// A data node of a running server.
#[derive(Debug, Clone, Default, PartialEq, Args)]
pub struct NodeArguments {
    /// The name of the node, as in nodes of the configuration
    #[arg(value_name = "NAME")]
    pub node: String,
    /// How to reach the server.
    #[command(flatten)]
    pub server: SocketArguments,
}
