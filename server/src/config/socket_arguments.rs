//! How commands reach a running server.

use std::path::PathBuf;

use clap::Args;

/// How to reach a running server. The socket is for root and the account that started the server.
#[derive(Debug, Clone, Default, PartialEq, Args)]
pub struct SocketArguments {
    /// The socket of the server, as in admin-socket. Default: as for a server at port 2811
    #[arg(long, value_name = "PATH", conflicts_with = "config")]
    pub socket: Option<PathBuf>,
    /// The configuration file of the server, which tells where its socket is
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}
