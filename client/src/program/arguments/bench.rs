//! The arguments of `gridhaul bench`.

use std::time::Duration;

use clap::Args;
use gridhaul_protocol::stack::StackSpec;

use super::{ChannelArguments, LoginArguments, seconds};

#[derive(Debug, Args)]
pub(in crate::program) struct BenchArguments {
    /// A file that is read; with --put, a new file that is written and removed. With two, the first one is
    /// copied to the second one, a new file of another server, which is removed
    #[arg(required = true, num_args = 1..=2, value_name = "URL")]
    pub(in crate::program) urls: Vec<String>,
    /// Send to the server: zeros, to a file that must not exist
    #[arg(long)]
    pub(in crate::program) put: bool,
    /// The numbers of connections that are tried, each from 1 to 64
    #[arg(long, short, value_name = "COUNTS", value_delimiter = ',', default_value = "1,2,4,8,16",
        value_parser = clap::value_parser!(u8).range(1..=64))]
    pub(in crate::program) parallel: Vec<u8>,
    /// A further driver stack that is tried, like rdma or tcp:cc=bbr; may be given several times
    #[arg(long, value_name = "STACK", value_parser = StackSpec::parse)]
    pub(in crate::program) also: Vec<StackSpec>,
    /// The time of each trial
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = seconds)]
    pub(in crate::program) duration: Duration,
    /// Print a JSON object
    #[arg(long)]
    pub(in crate::program) json: bool,
    #[command(flatten)]
    pub(in crate::program) login: LoginArguments,
    #[command(flatten)]
    pub(in crate::program) channels: ChannelArguments,
}
