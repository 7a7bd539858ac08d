//! The tables of the benchmark, and the guests that measure them.

use std::io;
use std::time::Duration;

use super::perftest::Device;
use super::{inline, loopback, many_channels, policer, processor, registration, sizes};
use crate::bench::rdma_files::network;
use crate::bench::record::section::Section;
use crate::support::guest_network::{Network, RIGHT};

/// A table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Table {
    /// A policer in the path.
    Policer,
    /// Block size against depth over RoCE.
    Roce,
    /// Block size against depth over iWARP.
    Iwarp,
    /// Processor time over one link.
    Processor,
    /// Small payloads inline, over RoCE and iWARP in user space.
    Inline,
    /// Small payloads inline, over iWARP.
    InlineIwarp,
    /// The cost of memory registration.
    Registration,
    /// Many channels that share a pool of memory.
    Many,
    /// Files that `gridhaul` copies over RoCE.
    FilesRoce,
    /// Files that `gridhaul` copies over iWARP.
    FilesIwarp,
    /// iWARP in user space compared with TCP, on the host itself.
    Loopback,
}

impl Table {
    /// All of them.
    pub const ALL: [Self; 11] = [
        Self::Policer,
        Self::Roce,
        Self::Iwarp,
        Self::Processor,
        Self::Inline,
        Self::InlineIwarp,
        Self::Registration,
        Self::Many,
        Self::FilesRoce,
        Self::FilesIwarp,
        Self::Loopback,
    ];

    /// The network of its guest, unless it is measured on the host.
    pub fn network(self) -> Option<Network> {
        match self {
            Self::Roce
            | Self::Policer
            | Self::Processor
            | Self::Inline
            | Self::Registration
            | Self::Many
            | Self::FilesRoce => Some(Network::Rxe),
            Self::Iwarp | Self::InlineIwarp | Self::FilesIwarp => Some(Network::Siw),
            Self::Loopback => None,
        }
    }

    /// The memory of its guest, in MiB.
    pub fn memory_mib(self) -> u32 {
        match self {
            // Eight channels with the longest rings take 2 GiB.
            Self::Roce | Self::Iwarp => 4096,
            _ => 1024,
        }
    }

    /// Measures it in this process.
    ///
    /// # Errors
    ///
    /// When the path could not be set up.
    pub fn measure(self) -> io::Result<Section> {
        match self {
            Self::Policer => policer::measure(),
            Self::Roce => Ok(sizes::measure(Device::Roce)),
            Self::Iwarp => Ok(sizes::measure(Device::Iwarp)),
            Self::Processor => Ok(processor::measure()),
            Self::Inline => {
                let stacks = ["rdma:provider=verbs", "rdma:provider=soft"];
                Ok(inline::measure("RoCE", "rdma-inline.svg", &stacks))
            }
            Self::InlineIwarp => {
                let stacks = ["rdma:provider=verbs"];
                Ok(inline::measure("iWARP", "rdma-inline-iwarp.svg", &stacks))
            }
            Self::Registration => {
                let bench = registration::Bench {
                    options: "provider=verbs".into(),
                    to: RIGHT.parse().expect("an address of ours"),
                    time: Duration::from_secs(1),
                };
                bench.section().map_err(io::Error::other)
            }
            Self::Many => Ok(many_channels::measure()),
            Self::FilesRoce => network::measure("RoCE"),
            Self::FilesIwarp => network::measure("iWARP"),
            Self::Loopback => Ok(loopback::measure()),
        }
    }
}
