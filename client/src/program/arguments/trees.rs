//! The arguments of the commands that walk through directories.

use clap::{ArgAction, Args};
use gridhaul_protocol::command::FileMode;

use super::{ChannelArguments, LoginArguments};

#[derive(Debug, Args)]
pub(in crate::program) struct ChmodArguments {
    /// The permissions, three or four octal digits like 0644
    #[arg(value_name = "MODE", value_parser = octal)]
    pub(in crate::program) permissions: FileMode,
    /// The files or directories
    #[arg(required = true, value_name = "URL")]
    pub(in crate::program) urls: Vec<String>,
    /// Also change all that directories have. Links, and what they lead to, stay
    #[arg(long, short)]
    pub(in crate::program) recursive: bool,
    #[command(flatten)]
    pub(in crate::program) login: LoginArguments,
    #[command(flatten)]
    pub(in crate::program) channels: ChannelArguments,
}

#[derive(Debug, Args)]
pub(in crate::program) struct UsageArguments {
    /// The files or directories
    #[arg(required = true, value_name = "URL")]
    pub(in crate::program) urls: Vec<String>,
    /// Sizes like 1.5 GB, in powers of 1000
    #[arg(long, short = 'h')]
    pub(in crate::program) human: bool,
    /// Print one JSON object a line
    #[arg(long)]
    pub(in crate::program) json: bool,
    /// Print help
    #[arg(long, action = ArgAction::Help)]
    help: Option<bool>,
    #[command(flatten)]
    pub(in crate::program) login: LoginArguments,
    #[command(flatten)]
    pub(in crate::program) channels: ChannelArguments,
}

#[derive(Debug, Args)]
pub(in crate::program) struct TreeArguments {
    /// The directory
    #[arg(value_name = "URL")]
    pub(in crate::program) url: String,
    /// Print one JSON object a line
    #[arg(long)]
    pub(in crate::program) json: bool,
    #[command(flatten)]
    pub(in crate::program) login: LoginArguments,
    #[command(flatten)]
    pub(in crate::program) channels: ChannelArguments,
}

fn octal(text: &str) -> Result<FileMode, String> {
    let bits = u16::from_str_radix(text, 8).ok();
    let bits = bits.filter(|_| matches!(text.len(), 3 | 4) && !text.starts_with('+'));
    bits.and_then(FileMode::new)
        .ok_or_else(|| "three or four octal digits".to_owned())
}
