//! The tables of the benchmark, and the guests that measure them.

use std::io;
use std::time::Duration;

use super::baselines::Over;
use super::perftest::Device;
use super::{
    distance, engine, inline, loopback, many_channels, policer, processor, registration, sizes,
};
use crate::bench::rdma_files::{blocks, network};
use crate::bench::record::section::Section;
use crate::support::guest_network::{Network, RIGHT};

/// A table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Table {
    /// A policer in the path.
    Policer,
    /// RDMA and TCP over long paths.
    Distance,
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
    /// Files on a disk over RoCE, by the size of messages.
    BlocksRoce,
    /// Files on a disk over iWARP, by the size of messages.
    BlocksIwarp,
    /// iWARP in user space compared with TCP, on the host itself.
    Loopback,
    /// The engine without a device, on the host itself.
    Engine,
}

/// A page of the record. Each is written by one run, so that it has no rows of two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Page {
    /// Driver stacks, without servers.
    Stacks,
    /// Files.
    Files,
}

impl Page {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Stacks, Self::Files];

    /// The name of its file.
    pub fn name(self) -> &'static str {
        match self {
            Self::Stacks => "rdma-devices.md",
            Self::Files => "rdma-devices-files.md",
        }
    }

    /// Its beginning.
    pub fn introduction(self) -> &'static str {
        match self {
            Self::Stacks => STACKS,
            Self::Files => FILES,
        }
    }
}

const STACKS: &str = "# The driver rdma over devices in software

This page and its plots are written by `make bench-rdma`. Zeros are sent from one end of a cable to the other through a
driver stack, without a server or a file system, in a guest with one processor, which both ends, the devices and the cable
share. The guest is pinned to the last processor of the host, which a busy program of the lowest priority keeps out of idle
states, because leaving these is slow on some hosts.

";

const FILES: &str = "# From file to file over devices in software

This page is written by `make bench-rdma`. The program `gridhaul` copies a file from and to a server at the other end of a cable, and
between two servers, in a guest with one processor: first in memory, then on a RAM disk. Programs, servers, devices and the cable share it, so that the numbers compare stacks in that
machine, and do not predict adapters. The guest is set up as for the [driver alone](rdma-devices.md).

";

impl Table {
    /// All of them.
    pub const ALL: [Self; 15] = [
        Self::Policer,
        Self::Distance,
        Self::Roce,
        Self::Iwarp,
        Self::Processor,
        Self::Inline,
        Self::InlineIwarp,
        Self::Registration,
        Self::Many,
        Self::FilesRoce,
        Self::FilesIwarp,
        Self::BlocksRoce,
        Self::BlocksIwarp,
        Self::Loopback,
        Self::Engine,
    ];

    /// The network of its guest, unless it is measured on the host.
    pub fn network(self) -> Option<Network> {
        match self {
            Self::Roce
            | Self::Policer
            | Self::Distance
            | Self::Processor
            | Self::Inline
            | Self::Registration
            | Self::Many
            | Self::FilesRoce
            | Self::BlocksRoce => Some(Network::Rxe),
            Self::Iwarp | Self::InlineIwarp | Self::FilesIwarp | Self::BlocksIwarp => {
                Some(Network::Siw)
            }
            Self::Loopback | Self::Engine => None,
        }
    }

    /// The page that has it.
    pub fn page(self) -> Page {
        match self {
            Self::FilesRoce | Self::FilesIwarp | Self::BlocksRoce | Self::BlocksIwarp => {
                Page::Files
            }
            _ => Page::Stacks,
        }
    }

    /// The memory of its guest, in MiB.
    pub fn memory_mib(self) -> u32 {
        match self {
            // Eight channels with the longest rings take 2 GiB.
            Self::Roce | Self::Iwarp | Self::Distance => 4096,
            // A file and its copy are in memory, and again in the page cache where they are on a disk.
            Self::FilesRoce | Self::FilesIwarp => 3072,
            Self::BlocksRoce | Self::BlocksIwarp => 4096,
            _ => 1024,
        }
    }

    /// The disk of its guest, in MiB; 0 for none.
    pub fn disk_mib(self) -> u32 {
        match self {
            Self::BlocksRoce | Self::BlocksIwarp => blocks::DISK_MIB,
            _ => 0,
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
            Self::Distance => distance::measure(),
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
            Self::FilesRoce => network::measure("RoCE", &mut Over(Device::Roce)),
            Self::FilesIwarp => network::measure("iWARP", &mut Over(Device::Iwarp)),
            Self::BlocksRoce => blocks::measure("RoCE", &mut Over(Device::Roce)),
            Self::BlocksIwarp => blocks::measure("iWARP", &mut Over(Device::Iwarp)),
            Self::Loopback => Ok(loopback::measure()),
            Self::Engine => engine::measure(),
        }
    }
}
