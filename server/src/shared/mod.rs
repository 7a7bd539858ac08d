//! The state that the sessions of a server share.

mod settings;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};
use std::time::{Duration, SystemTime};

use crate::data_nodes::DataNodes;
use gridhaul_shares::Pool;
use gridhaul_stack::Registry;
use gridhaul_storage::ChecksumKey;
use gridhaul_transfer::{DataNode, LocalNode, NodeConfig};
use tokio::sync::watch;
use tracing::warn;

use crate::admission::{Connections, Room, Workers};
use crate::config::{Config, Limits};
use crate::group_limits::GroupLimits;
use crate::handover::Link;
use crate::helpers::Helper;
use crate::http::Paced;
use crate::in_place::InPlace;
use crate::live::Live;
use crate::login::LoginBackend;
use crate::machine::{self, Usage};
use crate::own_addresses::OwnAddresses;
use crate::passwords::Verifier;
use crate::security::Inventory;
use crate::shutdown::Refused;
use crate::status::{ProcessStatus, RdmaStatus};
use crate::storages::Storages;
use crate::telemetry::{Journal, PROBLEMS, Reading, Snapshot, Totals, log_lines_lost};
use crate::threads::Threads;
use crate::transfer_limit::TransferLimit;

pub(crate) use settings::Settings;
pub use settings::SettingsError;

/// The size of a worker's buffer and of the smallest MODE E block, in bytes: that of globus-gridftp-server.
const BLOCK_BYTES: usize = 256 * 1024;

/// The state that all sessions share.
#[derive(Debug)]
pub(crate) struct Shared {
    settings: RwLock<Settings>,
    pub(crate) registry: Registry,
    pub(crate) node: Arc<dyn DataNode>,
    /// The same, if it consists of nodes on other machines.
    pub(crate) data_nodes: Option<DataNodes>,
    pub(crate) own_addresses: OwnAddresses,
    storages: Arc<Storages>,
    pub(crate) backend: LoginBackend,
    pub(crate) connections: Arc<Connections>,
    pub(crate) transfers: Arc<TransferLimit>,
    pub(crate) group_limits: GroupLimits,
    pub(crate) in_place: InPlace,
    pub(crate) verifier: Verifier,
    /// Steps of security handshakes.
    pub(crate) handshakes: Workers,
    /// Checksums take long, so they have fewer threads than other work on files.
    pub(crate) checksums: Pool,
    pub(crate) threads: Arc<Threads>,
    pub(crate) journal: Journal,
    /// Sessions and transfers, for administrators.
    pub(crate) live: Arc<Live>,
    /// The page for scrapers, at all its addresses.
    pub(crate) metrics_page: Paced,
    /// When certificates and lists end.
    pub(crate) inventory: Arc<Inventory>,
    /// What the drivers found out about their devices; unset while they do.
    pub(crate) devices: OnceLock<Vec<RdmaStatus>>,
    /// In the front process: the connection to the serving process.
    pub(crate) link: OnceLock<Arc<Link>>,
    pub(crate) host: String,
    /// Clients that are served and were found to be refused at the last reload.
    pub(crate) refused: watch::Sender<Refused>,
    sessions: AtomicU64,
    /// The other processes of the server, set when it starts.
    pub(crate) processes: OnceLock<Vec<ProcessStatus>>,
    /// The processor time of brokers that was seen last, in milliseconds.
    brokers_time: AtomicU64,
}

impl Shared {
    pub(crate) fn new(
        settings: Settings,
        checksum_key: Option<ChecksumKey>,
        registry: Registry,
        storages: Arc<Storages>,
        backend: LoginBackend,
        journal: Journal,
    ) -> Self {
        let limits = &settings.config.limits;
        let data_nodes = DataNodes::of(&settings.config);
        let node: Arc<dyn DataNode> = match &data_nodes {
            Some(nodes) => Arc::clone(&nodes.cluster) as _,
            None => Arc::new(local_node(limits, &registry, &storages, checksum_key)),
        };
        Self {
            connections: Connections::new(room(limits)),
            transfers: TransferLimit::new(limits.transfers),
            group_limits: GroupLimits::new(&settings.config),
            in_place: InPlace::default(),
            verifier: Verifier::new(),
            checksums: Pool::new(limits.file_threads.div_ceil(2)),
            threads: Threads::new(limits.file_threads),
            handshakes: Workers::new("handshake", usize::MAX),
            settings: RwLock::new(settings),
            registry,
            node,
            data_nodes,
            own_addresses: OwnAddresses::default(),
            storages,
            backend,
            journal,
            live: Arc::default(),
            metrics_page: Paced::default(),
            inventory: Arc::default(),
            devices: OnceLock::new(),
            link: OnceLock::new(),
            host: machine::host_name(),
            refused: watch::Sender::default(),
            sessions: AtomicU64::new(0),
            processes: OnceLock::new(),
            brokers_time: AtomicU64::new(0),
        }
    }

    /// The settings for a session that begins now.
    pub(crate) fn settings(&self) -> Settings {
        self.settings
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// The number of control connections.
    pub(crate) fn open_sessions(&self) -> usize {
        match self.journal.metrics.front() {
            Some(front) => usize::try_from(front.open.value()).unwrap_or(usize::MAX),
            None => self.connections.total(),
        }
    }

    /// The number of control connections that have not logged in.
    fn sessions_before_login(&self) -> usize {
        match self.journal.metrics.front() {
            Some(front) => usize::try_from(front.before_login.value()).unwrap_or(usize::MAX),
            None => self.connections.startups(),
        }
    }

    /// The number of the next session.
    pub(crate) fn next_session(&self) -> u64 {
        self.sessions.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Loads the settings of a new configuration. Those of the running server stay in use.
    ///
    /// # Errors
    ///
    /// When the configuration, or a file that it names, cannot be used.
    pub(crate) fn load(&self, config: Config) -> Result<Settings, SettingsError> {
        Settings::load(
            config,
            &self.registry,
            &self.backend,
            Some(&self.settings()),
        )
    }

    /// Replaces the settings for new sessions, and applies those that running parts can change.
    pub(crate) fn replace(&self, settings: Settings) {
        let limits = &settings.config.limits;
        self.connections.set(room(limits));
        self.transfers.set(limits.transfers);
        self.group_limits.set(&settings.config);
        self.registry.limit_memory(machine::ring_bytes(limits));
        // The front process has no files.
        if self.link.get().is_none() {
            self.storages.reload(&settings.config);
        }
        *self
            .settings
            .write()
            .unwrap_or_else(PoisonError::into_inner) = settings;
    }

    /// Notes another level of the log.
    pub(crate) fn note_log_level(&self, level: &str) {
        let mut settings = self
            .settings
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        let mut config = Config::clone(&settings.config);
        config.log.level = level.to_owned();
        config.keys.note("log-level", level);
        settings.config = Arc::new(config);
    }

    /// Ends the sessions of clients with certificates whom a ban list or a rule refuses now. Returns their number.
    pub(crate) fn end_refused(&self) -> usize {
        let refused = self.backend.refused();
        let sessions = refused.len();
        if sessions > 0 {
            warn!(sessions, "sessions of users who are refused now are ended");
        }
        self.refused.send_replace(Arc::new(refused));
        sessions
    }

    /// Takes a new inventory of certificates and lists. Blocks on files, and on the login process.
    pub(crate) fn take_inventory(&self) {
        let settings = self.settings();
        if let Some(host) = &settings.config.security.host {
            let chain = settings.logins.host_chain();
            let security = settings.security.as_deref();
            self.inventory
                .refresh(security, (&host.certificates, &chain));
        }
    }

    /// The present values for the page of metrics.
    pub(crate) fn snapshot(&self) -> Snapshot {
        let (transfers_running, transfers_waiting) = self.transfers.count();
        Snapshot {
            sessions: self.open_sessions(),
            sessions_before_login: self.sessions_before_login(),
            transfers_running,
            transfers_waiting,
            node: self.node.load(),
            nodes: self
                .data_nodes
                .as_ref()
                .map_or_else(Vec::new, |nodes| nodes.cluster.members()),
            file_threads: self.threads.files_load(),
            drivers: self.registry.gauges(),
            brokers: self.storages.brokers(),
            broker_counts: self.storages.broker_counts(),
            expiries: self.inventory.summaries(SystemTime::now()),
            log_lines_lost: log_lines_lost(),
            process: machine::process_facts(),
            usage: Vec::new(),
        }
    }

    /// What the processes of the server take, by role; brokers together, with those that have ended.
    pub(crate) fn usage(&self) -> Vec<(String, Usage)> {
        let mut all = vec![("server".to_owned(), machine::usage(std::process::id()))];
        for process in self.processes.get().into_iter().flatten() {
            all.push((process.role.clone(), machine::usage(process.pid)));
            if process.role == Helper::Monitor.role() {
                let mut brokers = machine::usage_of_children(process.pid);
                // A broker that ends between two looks is in neither, and time does not go back.
                let now = u64::try_from(brokers.processor_time.as_millis()).unwrap_or(u64::MAX);
                let before = self.brokers_time.fetch_max(now, Ordering::Relaxed);
                brokers.processor_time = Duration::from_millis(before.max(now));
                all.push(("brokers".to_owned(), brokers));
            }
        }
        all
    }

    /// The values for a sample of the history.
    pub(crate) fn reading(&self) -> Reading {
        let all = self.usage().into_iter();
        let (transfers, _) = self.transfers.count();
        let moved = self.live.moved();
        Reading {
            totals: Totals {
                sent_bytes: moved.sent,
                received_bytes: moved.received,
                processor_time: all.map(|(_, usage)| usage.processor_time).sum(),
                refusals: self.journal.refusals_total(),
                errors: PROBLEMS.total(),
            },
            sessions: self.open_sessions(),
            transfers,
        }
    }
}

/// The data node in this process.
pub(crate) fn local_node(
    limits: &Limits,
    registry: &Registry,
    storages: &Arc<Storages>,
    checksum_key: Option<ChecksumKey>,
) -> LocalNode {
    let buffer_bytes = machine::buffer_bytes(limits);
    registry.limit_memory(machine::ring_bytes(limits));
    let storages = Arc::clone(storages);
    LocalNode::new(NodeConfig {
        registry: registry.clone(),
        open_storage: Box::new(move |account| storages.get(account)),
        workers: limits.movers,
        block_bytes: BLOCK_BYTES,
        buffer_memory_bytes: usize::try_from(buffer_bytes).unwrap_or(usize::MAX),
        checksum_threads: limits.checksum_threads,
        remembered_checksums: limits.remembered_checksums,
        checksum_key,
        data_timeout: limits.data_timeout,
    })
}

fn room(limits: &Limits) -> Room {
    Room {
        connections: limits.connections,
        per_network: limits.connections_per_address,
        startups: limits.startups,
        exempt: limits.penalty_exempt.clone(),
    }
}
