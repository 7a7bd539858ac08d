//! The arguments of `gridhaul bench`.

use std::time::Duration;

use clap::{Args, ValueEnum};
use gridhaul_protocol::stack::StackSpec;

use super::{ChannelArguments, LoginArguments, rate, seconds};

#[derive(Debug, Args)]
pub(in crate::program) struct BenchArguments {
    /// A file that is read; with --put, a new file that is written and removed. With two, the first one is
    /// copied to the second one. Memory is /dev/zero as the first and /dev/null as the second one, of this
    /// machine, or of a server that has them
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
    /// What is tried after the number of connections, as far as both ends support it
    #[arg(
        long,
        value_name = "WHAT",
        value_delimiter = ',',
        default_value = "blocks,rate,ring"
    )]
    pub(in crate::program) vary: Vec<Varied>,
    /// The time of a trial in each round
    #[arg(long, value_name = "SECONDS", default_value = "3", value_parser = seconds)]
    pub(in crate::program) duration: Duration,
    /// How often the trials are repeated, one after the other, 1 to 20; medians count
    #[arg(long, value_name = "COUNT", default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=20))]
    pub(in crate::program) rounds: u8,
    /// The most bytes that all trials move together: 500M, 20G, in powers of 1000
    #[arg(long, value_name = "BYTES", default_value = "1T", value_parser = amount)]
    pub(in crate::program) most: u64,
    /// Print a JSON object
    #[arg(long)]
    pub(in crate::program) json: bool,
    #[command(flatten)]
    pub(in crate::program) login: LoginArguments,
    #[command(flatten)]
    pub(in crate::program) channels: ChannelArguments,
}

/// What is tried with the best number of connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(in crate::program) enum Varied {
    /// The size of blocks, or of the messages of rdma
    Blocks,
    /// Lower rates of TCP where segments are sent again, and rate=auto of rdma
    Rate,
    /// Socket buffers, or the ring of rdma
    Ring,
    /// Only the number of connections
    None,
}

fn amount(text: &str) -> Result<u64, String> {
    rate::parse(text).map_err(|_| "a number of bytes, like 500M or 20G".to_owned())
}
