//! Limits: connections, threads, memory and times.

use std::time::Duration;

use gridhaul_transfer::AddressBlock;

use super::error::ConfigError;
use super::max_startups::MaxStartups;
use super::ranges::{MOST_SECONDS, between, count, seconds};
use super::settings::Settings;
use super::values::{Bytes, ExemptBlock};

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
    /// The time for transfers to finish after a new version has taken over.
    pub upgrade_grace: Duration,
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
pub(super) fn resolve(errors: &mut Vec<ConfigError>, settings: &Settings) -> Limits {
    let connections = count(errors, "max-connections", settings.max_connections, 2000);
    let per_address = settings.max_connections_per_address;
    let attempts = settings.max_login_attempts;
    let checksum_threads = settings.checksum_threads;
    let remembered = settings.remembered_checksums;
    let grace = settings.grace.map(u64::from);
    let upgrade_grace = settings.upgrade_grace.map(u64::from);
    Limits {
        connections,
        connections_per_address: count(errors, "max-connections-per-address", per_address, 1000),
        startups: settings.max_startups.unwrap_or_default(),
        penalty_exempt: settings
            .penalty_exempt
            .iter()
            .flatten()
            .map(|ExemptBlock(block)| *block)
            .collect(),
        login_attempts: between(errors, "max-login-attempts", attempts, 3, 1, 1000),
        login_timeout: seconds(errors, "login-timeout", settings.login_timeout, 120),
        idle_timeout: seconds(errors, "idle-timeout", settings.idle_timeout, 600),
        stall_timeout: seconds(errors, "stall-timeout", settings.stall_timeout, 600),
        stall_bytes: settings.stall_bytes.map_or(64 << 10, |bytes| bytes.0),
        data_timeout: seconds(errors, "data-timeout", settings.data_timeout, 30),
        grace: Duration::from_secs(between(errors, "grace", grace, 60, 0, MOST_SECONDS)),
        // Nothing else waits for these transfers, and those that hang end after `stall_timeout`.
        upgrade_grace: Duration::from_secs(between(
            errors,
            "upgrade-grace",
            upgrade_grace,
            86_400,
            0,
            MOST_SECONDS,
        )),
        transfers: count(errors, "max-transfers", settings.max_transfers, 500),
        movers: count(errors, "movers", settings.movers, 1024),
        file_threads: between(errors, "file-threads", settings.file_threads, 64, 2, 4096),
        checksum_threads: between(
            errors,
            "checksum-threads",
            checksum_threads,
            processors(),
            0,
            4096,
        ),
        remembered_checksums: between(
            errors,
            "remembered-checksums",
            remembered,
            100_000,
            0,
            100_000_000,
        ),
        buffer_memory: memory(errors, "buffer-memory", settings.buffer_memory, 8 << 20),
        rdma_memory: memory(errors, "rdma-memory", settings.rdma_memory, 1 << 20),
    }
}

/// A part of the machine's memory, if it is set.
fn memory(
    errors: &mut Vec<ConfigError>,
    name: &'static str,
    value: Option<Bytes>,
    least: u64,
) -> Option<u64> {
    let Bytes(bytes) = value?;
    Some(between(errors, name, Some(bytes), least, least, 1 << 50))
}

fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}
