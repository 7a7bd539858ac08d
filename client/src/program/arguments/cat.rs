//! The arguments of `gridhaul cat`.

use clap::{Args, Parser as _};
use gridhaul_storage::ChecksumAlgorithm;

use super::{Arguments, ChannelArguments, Command, CopyArguments, DataArguments, LoginArguments};

#[derive(Debug, Args)]
pub(in crate::program) struct CatArguments {
    /// The files
    #[arg(required = true, value_name = "URL")]
    pub(in crate::program) urls: Vec<String>,
    #[command(flatten)]
    pub(in crate::program) login: LoginArguments,
    #[command(flatten)]
    channels: ChannelArguments,
    /// Verify what was written by this checksum: MD5, ADLER32, CRC32C, SHA256, ...
    #[arg(long, value_name = "ALGORITHM")]
    checksum: Option<ChecksumAlgorithm>,
}

impl CatArguments {
    /// The same for `gridhaul copy`.
    pub(in crate::program) fn as_copy(&self) -> CopyArguments {
        let Command::Copy(plain) = Arguments::parse_from(["gridhaul", "copy", "-", "-"]).command
        else {
            unreachable!("the words are those of copy");
        };
        CopyArguments {
            login: self.login.clone(),
            data: DataArguments {
                channels: self.channels.clone(),
                ..plain.data
            },
            checksum: self.checksum,
            ..plain
        }
    }
}
