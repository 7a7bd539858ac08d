//! The options of data channels and transfers.

use std::str::FromStr;
use std::time::Duration;

use clap::{Args, ValueEnum};
use gridhaul_protocol::command::TransferMode;
use gridhaul_protocol::stack::StackSpec;
use gridhaul_stack::options;

use super::{StripeArgument, seconds};
use crate::listing::ListingSettings;
use crate::local::LocalConfig;
use crate::program::environment::data_place;
use crate::session::{DataCommands, DataProtection, Session, Striping, TransferSettings};

/// The data channels of files.
#[derive(Debug, Clone, Args)]
pub(in crate::program) struct DataArguments {
    /// Connections of each file, 1 to 64, or auto: as many as the measured rates of the files before are
    /// worth. More than one, and auto, select MODE E
    #[arg(
        long,
        short,
        visible_alias = "streams",
        value_name = "COUNT",
        default_value = "1"
    )]
    pub(in crate::program) parallel: Parallel,
    /// The transfer mode. In MODE E connections serve several files, and the receiver must be reachable
    #[arg(long, value_name = "MODE", default_value = "auto")]
    pub(in crate::program) mode: ModeArgument,
    /// Whether all data nodes of servers are used; without WHEN it is always
    #[arg(
        long,
        value_name = "WHEN",
        num_args = 0..=1,
        require_equals = true,
        default_value = "auto",
        default_missing_value = "always"
    )]
    pub(in crate::program) stripe: StripeArgument,
    /// The smallest block of MODE E that this machine sends, and its buffer for each connection: 64K to 8M,
    /// in powers of 1024. Default: 1M
    #[arg(long, value_name = "BYTES", value_parser = block_bytes)]
    pub(in crate::program) block_size: Option<usize>,
    #[command(flatten)]
    pub(in crate::program) channels: ChannelArguments,
}

/// What every data channel has, also that of a listing.
#[derive(Debug, Clone, Args)]
pub(in crate::program) struct ChannelArguments {
    /// The driver stack of data channels at both ends, like tcp:cc=bbr or rdma:rate=5g. Default: that of
    /// the server, and auto on this machine
    #[arg(long, value_name = "STACK", value_parser = StackSpec::parse)]
    pub(in crate::program) stack: Option<StackSpec>,
    /// Whether data channels are authenticated. Default: yes after a login with a certificate, and encrypted
    /// with ftps; none sends ftps data in the clear, too
    #[arg(long, value_name = "WHICH")]
    pub(in crate::program) dcau: Option<Authentication>,
    /// Encrypt data channels
    #[arg(long, conflicts_with = "dcau")]
    pub(in crate::program) protect: bool,
    /// Without a byte for so long, a transfer fails
    #[arg(long, value_name = "SECONDS", default_value = "300", value_parser = seconds)]
    pub(in crate::program) stall_timeout: Duration,
}

/// The connections of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::program) enum Parallel {
    /// So many.
    Fixed(u8),
    /// By measured rates.
    Auto,
}

impl FromStr for Parallel {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match (text, text.parse::<u8>()) {
            ("auto", _) => Ok(Self::Auto),
            (_, Ok(count @ 1..=64)) => Ok(Self::Fixed(count)),
            _ => Err("a number from 1 to 64, or auto".to_owned()),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(in crate::program) enum ModeArgument {
    /// MODE E, except for a single file from a server, and from servers that do not reach this machine
    Auto,
    /// Stream mode: one connection for each file
    Stream,
    /// MODE E, extended block mode
    Extended,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(in crate::program) enum Authentication {
    /// Both ends prove that they act for the user
    #[value(name = "self")]
    User,
    /// Data channels are not authenticated
    None,
}

impl DataArguments {
    /// The resources of this machine.
    pub(in crate::program) fn local(&self) -> LocalConfig {
        LocalConfig {
            block_bytes: self.block_size.unwrap_or(LocalConfig::BLOCK_BYTES),
            ..LocalConfig::default()
        }
    }
}

/// With the largest ones, all connections of a file have a buffer within the memory of all buffers.
fn block_bytes(text: &str) -> Result<usize, String> {
    let bytes = options::bytes(text)
        .ok()
        .and_then(|bytes| usize::try_from(bytes).ok());
    bytes
        .filter(|bytes| ((64 << 10)..=(8 << 20)).contains(bytes))
        .ok_or_else(|| "a size from 64K to 8M".to_owned())
}

impl ChannelArguments {
    /// The stack of this machine.
    pub(in crate::program) fn stack_here(&self) -> StackSpec {
        let stack = self.stack.clone();
        data_place().placed(stack.unwrap_or_else(|| StackSpec::only("auto")))
    }

    /// How directories of a server are listed.
    pub(in crate::program) fn listings(&self, server: &Session) -> ListingSettings {
        ListingSettings {
            settings: TransferSettings {
                mode: TransferMode::Stream,
                parallelism: 1,
                protection: self.protection(DataProtection::default_of(&[server])),
                stack: self.stack.clone(),
                commands: DataCommands::Usual,
                striping: Striping::Never,
            },
            stack: self.stack_here(),
            stall: self.stall_timeout,
        }
    }

    /// Without options.
    pub(in crate::program) fn plain() -> Self {
        Self {
            stack: None,
            dcau: None,
            protect: false,
            stall_timeout: Duration::from_secs(300),
        }
    }

    /// The protection of a transfer.
    pub(in crate::program) fn protection(&self, default: DataProtection) -> DataProtection {
        match (self.protect, self.dcau) {
            (true, _) => DataProtection::Private,
            (_, Some(Authentication::None)) => DataProtection::None,
            (_, Some(Authentication::User)) => DataProtection::Authenticated,
            (_, None) => default,
        }
    }
}
