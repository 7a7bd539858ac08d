//! The arguments of the commands for files and directories of servers.

use clap::Args;
use gridhaul_storage::ChecksumAlgorithm;

use super::{ChannelArguments, LoginArguments};

#[derive(Debug, Clone, Args)]
pub(in crate::program) struct ListArguments {
    /// The files or directories
    #[arg(required = true, value_name = "URL")]
    pub(in crate::program) urls: Vec<String>,
    /// Type, mode, size and time of each file
    #[arg(long, short)]
    pub(in crate::program) long: bool,
    /// Print one JSON object a line
    #[arg(long)]
    pub(in crate::program) json: bool,
    #[command(flatten)]
    pub(in crate::program) login: LoginArguments,
    #[command(flatten)]
    pub(in crate::program) channels: ChannelArguments,
}

#[derive(Debug, Clone, Args)]
pub(in crate::program) struct StatArguments {
    /// The files or directories
    #[arg(required = true, value_name = "URL")]
    pub(in crate::program) urls: Vec<String>,
    /// Print one JSON object a line
    #[arg(long)]
    pub(in crate::program) json: bool,
    #[command(flatten)]
    pub(in crate::program) login: LoginArguments,
}

#[derive(Debug, Clone, Args)]
pub(in crate::program) struct MakeArguments {
    /// The directories
    #[arg(required = true, value_name = "URL")]
    pub(in crate::program) urls: Vec<String>,
    /// Also make those above; an existing one is no error
    #[arg(long, short)]
    pub(in crate::program) parents: bool,
    #[command(flatten)]
    pub(in crate::program) login: LoginArguments,
}

#[derive(Debug, Clone, Args)]
pub(in crate::program) struct RemoveArguments {
    /// The files or directories
    #[arg(required = true, value_name = "URL")]
    pub(in crate::program) urls: Vec<String>,
    /// Remove directories with all that they have
    #[arg(long, short)]
    pub(in crate::program) recursive: bool,
    #[command(flatten)]
    pub(in crate::program) login: LoginArguments,
    #[command(flatten)]
    pub(in crate::program) channels: ChannelArguments,
}

#[derive(Debug, Clone, Args)]
pub(in crate::program) struct MoveArguments {
    /// The file or directory
    #[arg(value_name = "FROM")]
    pub(in crate::program) from: String,
    /// Its new URL, of the same server
    #[arg(value_name = "TO")]
    pub(in crate::program) to: String,
    #[command(flatten)]
    pub(in crate::program) login: LoginArguments,
}

#[derive(Debug, Args)]
pub(in crate::program) struct SumArguments {
    /// The algorithm: MD5, ADLER32, CRC32C, SHA256, ...
    #[arg(value_name = "ALGORITHM")]
    pub(in crate::program) algorithm: ChecksumAlgorithm,
    /// The file
    #[arg(value_name = "URL")]
    pub(in crate::program) url: String,
    #[command(flatten)]
    pub(in crate::program) login: LoginArguments,
}
