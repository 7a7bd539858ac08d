//! The command line of one half of a pump.

use std::net::SocketAddr;

use clap::Args;

use crate::bench::sample::Variant;

/// The options of a half.
#[derive(Debug, Clone, Args)]
pub struct Options {
    /// The system calls that move bytes
    #[arg(long = "way", value_parser = Variant::parse)]
    pub(super) variant: Variant,
    /// Connections that share the file
    #[arg(long)]
    pub(super) connections: usize,
    /// The length of the file
    #[arg(long)]
    pub(super) bytes: u64,
    /// The address to listen on or to connect to
    #[arg(long)]
    pub(super) address: SocketAddr,
    /// The file
    pub(super) file: std::path::PathBuf,
}

impl Variant {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Splice => "splice",
            Self::SmallBuffers => "small-buffers",
            Self::LargeBuffers => "large-buffers",
        }
    }

    pub(super) fn parse(name: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|variant| variant.name() == name);
        found.ok_or_else(|| format!("unknown variant {name}"))
    }

    /// The size of buffers; `None` without buffers.
    pub(super) fn buffer_bytes(self) -> Option<usize> {
        match self {
            Self::Splice => None,
            Self::SmallBuffers => Some(256 << 10),
            Self::LargeBuffers => Some(1 << 20),
        }
    }
}

/// The range of a connection: offset and length.
pub(super) type Range = (u64, u64);

/// The range of each connection.
pub(super) fn ranges(options: &Options) -> Vec<Range> {
    let count = options.connections.max(1) as u64;
    let share = options.bytes.div_ceil(count);
    (0..count)
        .map(|index| {
            let start = (index * share).min(options.bytes);
            (start, share.min(options.bytes - start))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn the_connections_share_the_file_without_a_gap() {
        let options = Options {
            variant: Variant::Splice,
            connections: 16,
            bytes: 1001,
            address: (Ipv4Addr::LOCALHOST, 0).into(),
            file: "file".into(),
        };
        let mut end = 0;
        for (start, length) in ranges(&options) {
            assert_eq!(start, end);
            end += length;
        }
        assert_eq!(end, 1001);
    }
}
