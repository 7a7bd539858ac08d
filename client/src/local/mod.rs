//! The end of transfers on this machine: its files and data channels, as a data node of one user.

mod discard;

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

use self::discard::Discard;

/// The size of a worker's buffer, in bytes.
const BLOCK_BYTES: usize = 1 << 20;

/// Files whose checksums are remembered.
const REMEMBERED_CHECKSUMS: usize = 10_000;

/// The files and data channels of this machine.
#[derive(Debug)]
pub struct LocalMachine {
    node: LocalNode,
}

/// The resources of a [`LocalMachine`].
#[derive(Debug, Clone, Copy)]
pub struct LocalConfig {
    /// Data channels that may send, and that may receive, at a time.
    pub channels: usize,
    /// The memory of all buffers, in bytes.
    pub buffer_memory_bytes: usize,
    /// The time limit for a data connection.
    pub data_timeout: Duration,
}

impl Default for LocalConfig {
    fn default() -> Self {
        Self {
            channels: 256,
            buffer_memory_bytes: 512 << 20,
            data_timeout: Duration::from_secs(60),
        }
    }
}

impl LocalMachine {
    /// The machine with all drivers of this program.
    pub fn new(config: LocalConfig) -> Self {
        Self::with(config, open)
    }

    /// The same, but with files that keep nothing of what they receive, and cannot be read.
    pub(crate) fn discarding(config: LocalConfig) -> Self {
        Self::with(config, |_| {
            Ok(AccountFiles {
                storage: Arc::new(Discard),
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
                block_bytes: BLOCK_BYTES,
                buffer_memory_bytes: config.buffer_memory_bytes,
                checksum_threads: threads,
                remembered_checksums: REMEMBERED_CHECKSUMS,
                checksum_key: None,
                data_timeout: config.data_timeout,
            }),
        }
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
