//! Options of copies with a fixed set of values.

use clap::ValueEnum;

use crate::session::Striping;

/// What makes a copy that exists the same as its source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(in crate::program) enum SyncArgument {
    /// Any file
    Exists,
    /// Equal sizes
    Size,
    /// Equal sizes, and the source is not newer; times are not kept
    Newer,
    /// Equal sizes and modification times, in whole seconds
    Time,
    /// Equal sizes and checksums
    Checksum,
}

/// What progress is told of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(in crate::program) enum ProgressArgument {
    /// Files
    Files,
    /// Files, and their data channels, or their stripes if they go from server to server
    Channels,
}

/// Whether all data nodes of servers are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(in crate::program) enum StripeArgument {
    /// In MODE E, if each server of the copy has SPAS and SPOR
    Auto,
    /// MODE E; a server without SPAS and SPOR is an error
    Always,
    /// One address of each server
    Never,
}

impl From<StripeArgument> for Striping {
    fn from(argument: StripeArgument) -> Self {
        match argument {
            StripeArgument::Auto => Self::Auto,
            StripeArgument::Always => Self::Always,
            StripeArgument::Never => Self::Never,
        }
    }
}
