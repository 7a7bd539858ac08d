//! Limits: connections, threads, memory and times.

use std::time::Duration;

use gridhaul_transfer::AddressBlock;

use super::error::ConfigError;
use super::max_startups::MaxStartups;
use super::ranges::{MOST_SECONDS, between, count, seconds};
use super::settings::Settings;
use super::values::ExemptBlock;

/// The limits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Control connections in all.
    pub connections: usize,
    /// Control connections from one address, or one IPv6 network of 64 bits.
    pub connections_per_address: usize,
    /// Connections before login.
    pub startups: MaxStartups,
    /// The networks that get no penalties.
    pub penalty_exempt: Vec<AddressBlock>,
    /// Wrong passwords in one connection.
    pub login_attempts: u32,
    /// The time in which a client must log in.
    pub login_timeout: Duration,
    /// The time after which an idle session is closed.
    pub idle_timeout: Duration,
    /// A transfer must move `stall_bytes` in this time.
    pub stall_timeout: Duration,
    /// Bytes that a transfer must move in `stall_timeout`.
    pub stall_bytes: u64,
    /// The time to wait for data connections and announced ends of data.
    pub data_timeout: Duration,
    /// The time for transfers to finish after SIGTERM.
    pub grace: Duration,
    /// Transfers at a time.
    pub transfers: usize,
    /// Threads that move data, in each direction.
    pub movers: usize,
    /// Threads for other work on files.
    pub file_threads: usize,
    /// Threads that compute checksums together, besides one for each request.
    pub checksum_threads: usize,
    /// Files whose checksums are remembered.
    pub remembered_checksums: usize,
    /// Bytes of memory for data in transit; `None` is a part of the machine's.
    pub buffer_memory: Option<u64>,
    /// Bytes of memory for the rings of the driver `rdma`; `None` is a part of the machine's.
    pub rdma_memory: Option<u64>,
}

/// The limits in settings, with defaults.
pub(super) fn resolve(settings: &Settings) -> Result<Limits, ConfigError> {
    Ok(Limits {
        connections: count("max-connections", settings.max_connections, 2000)?,
        connections_per_address: count(
            "max-connections-per-address",
            settings.max_connections_per_address,
            1000,
        )?,
        startups: settings.max_startups.unwrap_or_default(),
        penalty_exempt: settings
            .penalty_exempt
            .iter()
            .flatten()
            .map(|ExemptBlock(block)| *block)
            .collect(),
        login_attempts: between(
            "max-login-attempts",
            settings.max_login_attempts,
            3,
            1,
            1000,
        )?,
        login_timeout: seconds("login-timeout", settings.login_timeout, 120)?,
        idle_timeout: seconds("idle-timeout", settings.idle_timeout, 600)?,
        stall_timeout: seconds("stall-timeout", settings.stall_timeout, 600)?,
        stall_bytes: settings.stall_bytes.map_or(64 << 10, |bytes| bytes.0),
        data_timeout: seconds("data-timeout", settings.data_timeout, 30)?,
        grace: Duration::from_secs(between("grace", settings.grace, 60, 0, MOST_SECONDS)?),
        transfers: count("max-transfers", settings.max_transfers, 500)?,
        movers: count("movers", settings.movers, 1024)?,
        file_threads: between("file-threads", settings.file_threads, 64, 2, 4096)?,
        checksum_threads: between(
            "checksum-threads",
            settings.checksum_threads,
            processors(),
            0,
            4096,
        )?,
        remembered_checksums: between(
            "remembered-checksums",
            settings.remembered_checksums,
            100_000,
            0,
            100_000_000,
        )?,
        buffer_memory: match settings.buffer_memory {
            Some(bytes) => Some(between(
                "buffer-memory",
                Some(bytes.0),
                0,
                8 << 20,
                1 << 50,
            )?),
            None => None,
        },
        rdma_memory: match settings.rdma_memory {
            Some(bytes) => Some(between("rdma-memory", Some(bytes.0), 0, 1 << 20, 1 << 50)?),
            None => None,
        },
    })
}

fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}
