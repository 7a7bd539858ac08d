//! The end of transfers on this machine: its files and data channels, as a data node of one user.

mod listings;
mod memory;

use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use gridhaul_gsi::Gsi;
use gridhaul_protocol::stack::StackSpec;
use gridhaul_shares::Source;
use gridhaul_stack::{Driver as _, Registry, StackError};
use gridhaul_storage::{PosixOptions, PosixStorage, Rights};
use gridhaul_transfer::{
    AccountFiles, Admission, AttachError, DataNode, LocalNode, NodeAccount, NodeConfig, NodeSession,
};

pub(crate) use self::listings::{ListingRoom, ListingShare};
use self::memory::Memory;

/// Files whose checksums are remembered.
const REMEMBERED_CHECKSUMS: usize = 10_000;

/// The files and data channels of this machine.
#[derive(Debug)]
pub struct LocalMachine {
    node: LocalNode,
    listings: Arc<ListingRoom>,
}

/// The resources of a [`LocalMachine`].
#[derive(Debug, Clone, Copy)]
pub struct LocalConfig {
    /// Data channels that may send, and that may receive, at a time.
    pub channels: usize,
    /// The size of a worker's buffer, and the smallest block of MODE E that is sent, in bytes; not zero.
    pub block_bytes: usize,
    /// The memory of all buffers, in bytes.
    pub buffer_memory_bytes: usize,
    /// The time limit for a data connection.
    pub data_timeout: Duration,
    /// The bytes of all listings of directories that are open at a time. A single one has at most half of what is free.
    pub listing_bytes: u64,
}

impl LocalConfig {
    /// The size of a worker's buffer, unless another one is wanted.
    pub const BLOCK_BYTES: usize = 1 << 20;
}

impl Default for LocalConfig {
    fn default() -> Self {
        Self {
            channels: 256,
            block_bytes: Self::BLOCK_BYTES,
            buffer_memory_bytes: 512 << 20,
            data_timeout: Duration::from_secs(60),
            // A listing of several million entries.
            listing_bytes: 2 << 30,
        }
    }
}

impl LocalMachine {
    /// The machine with all drivers of this program.
    pub fn new(config: LocalConfig) -> Self {
        Self::with(config, open)
    }

    /// The same, but with files that keep nothing of what they receive. A name that is a number is a file of so many zeros.
    pub(crate) fn in_memory(config: LocalConfig) -> Self {
        Self::with(config, |_| {
            Ok(AccountFiles {
                storage: Arc::new(Memory),
                home: PathBuf::from("/"),
            })
        })
    }

    fn with(
        config: LocalConfig,
        open_storage: impl Fn(&NodeAccount) -> Result<AccountFiles, AttachError> + Send + Sync + 'static,
    ) -> Self {
        let threads = std::thread::available_parallelism().map_or(2, usize::from);
        Self {
            node: LocalNode::new(NodeConfig {
                registry: registry(),
                open_storage: Box::new(open_storage),
                workers: config.channels,
                block_bytes: config.block_bytes,
                buffer_memory_bytes: config.buffer_memory_bytes,
                checksum_threads: threads,
                remembered_checksums: REMEMBERED_CHECKSUMS,
                checksum_key: None,
                data_timeout: config.data_timeout,
            }),
            listings: ListingRoom::new(config.listing_bytes),
        }
    }

    /// The room of all open listings.
    pub(crate) fn listing_room(&self) -> &Arc<ListingRoom> {
        &self.listings
    }

    /// Checks that a stack could be built here.
    ///
    /// # Errors
    ///
    /// When a driver or an option is unknown.
    pub fn check_stack(&self, stack: &StackSpec) -> Result<(), StackError> {
        self.node.check_stack(stack)
    }

    /// The files beneath a directory. No name and no symbolic link leads out of it. `hosts` may open data connections where these
    /// files are received in MODE E.
    ///
    /// # Errors
    ///
    /// When the directory cannot be opened.
    pub fn files(
        &self,
        root: &Path,
        hosts: Admission,
    ) -> Result<Arc<dyn NodeSession>, AttachError> {
        self.node.attach(&NodeAccount {
            source: Source::at(IpAddr::V4(Ipv4Addr::LOCALHOST)),
            name: String::new(),
            account: None,
            root: root.to_owned(),
            read_only: false,
            admission: hosts,
        })
    }
}

/// The providers of the driver `rdma` on this machine, and what its devices lack.
pub(crate) fn rdma_findings() -> Vec<String> {
    let findings = gridhaul_rdma::Rdma.check_devices().into_iter();
    let about = findings.filter(|finding| finding.text.starts_with("provider "));
    about.map(|finding| finding.text).collect()
}

fn open(account: &NodeAccount) -> Result<AccountFiles, AttachError> {
    let options = PosixOptions {
        // The umask takes away what the user wants.
        file_mode: 0o666,
        directory_mode: 0o777,
        rights: Rights::Account,
        ..PosixOptions::default()
    };
    Ok(AccountFiles {
        storage: Arc::new(PosixStorage::open(&account.root, options)?),
        home: PathBuf::from("/"),
    })
}

fn registry() -> Registry {
    let mut registry = Registry::new();
    registry.register(gridhaul_tcp::Tcp);
    registry.register(gridhaul_splice::Splice);
    registry.register(gridhaul_splice::Auto);
    registry.register(gridhaul_rdma::Rdma);
    registry.register(Gsi::without_session());
    registry
}
