//! A server: how it starts, reloads and ends.

mod accept;
mod activation_error;
mod clients;
mod dial;
mod expiry;
mod listeners;
mod membership;
mod nodes;
mod probe;
mod sockets;
mod start_error;
mod takeover;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::admin::{Doors, Facts, MetricsSite, Order};
use crate::checksum_key;
use crate::config::Config;
use crate::drivers;
use crate::handover::{Front, Kept, Link, Serving};
use crate::login::LoginBackend;
use crate::passwords::Grant;
use crate::privileges;
use crate::session::{LocalUser, Session};
use crate::shared::{Settings, Shared};
use crate::shutdown::Shutdown;
use crate::start_logs::StartRights;
use crate::status::ProcessStatus;
use crate::storages::Storages;
use crate::telemetry::{FrontCounts, Journal, TransferLog, keep_history, watch_lateness};

pub(crate) use accept::{is_shortage, keep_alive};
pub use activation_error::ActivationError;
pub(crate) use clients::{Clients, Mode};
pub(crate) use dial::{Connected, dial_node};

pub(crate) use listeners::{Listeners, PassedPlaces, kept_admin_socket, passed_places};
pub(crate) use sockets::{in_runtime, listen_and_tell};
pub use start_error::StartError;

use listeners::{Listening, Origin};

/// A server that listens, and does not accept connections yet.
#[derive(Debug)]
pub struct PreparedServer {
    shared: Arc<Shared>,
    clients: Clients,
    addresses: Vec<SocketAddr>,
    metrics: Option<(TcpListener, SocketAddr)>,
    admin: Doors,
    /// Who opened the Unix socket of the administration.
    origin_of_socket: Origin,
    processes: Vec<ProcessStatus>,
    /// The clients that the front process hands over, if this process does not listen.
    serving: Option<Serving>,
}

/// A running server.
#[derive(Debug)]
pub struct Server {
    shared: Arc<Shared>,
    shutdown: Shutdown,
    front: Option<Front>,
    addresses: Vec<SocketAddr>,
    metrics_address: Option<SocketAddr>,
    admin_address: Option<SocketAddr>,
    orders: mpsc::Receiver<Order>,
    /// Begins the session of the only client, in the process that talks to it first.
    only_client: Option<JoinHandle<()>>,
}

/// Opens the transfer log, if one is configured, while the process still has root's rights.
///
/// # Errors
///
/// When it cannot be opened.
pub(crate) fn open_transfer_log(config: &Config) -> Result<Option<TransferLog>, StartError> {
    let Some(path) = &config.transfer_log else {
        return Ok(None);
    };
    let opener = StartRights { user: &config.user };
    let log = TransferLog::open(path, &opener).map_err(|error| StartError::TransferLog {
        path: path.clone(),
        error,
    })?;
    Ok(Some(log))
}

impl PreparedServer {
    /// Does everything that may need more rights than serving: listens, and opens the root and the logs.
    ///
    /// # Errors
    ///
    /// When one of these cannot be opened.
    pub fn new(config: Config) -> Result<Self, StartError> {
        let mut listeners = Listeners::open(&config)?;
        let control = std::mem::take(&mut listeners.control);
        let addresses = control.iter().map(|one| one.address).collect();
        let transfer_log = open_transfer_log(&config)?;
        let journal = Journal::new(transfer_log, None);
        let places = (addresses, listeners);
        let mut server = Self::with(config, LoginBackend::InProcess, places, journal)?;
        let listeners = control.into_iter().map(|one| one.listener);
        server.clients = Clients::All(listeners.collect());
        Ok(server)
    }

    /// As [`PreparedServer::new`], for clients that the front process hands over, which has the listeners at `addresses`. The
    /// login process starts brokers for the files of local accounts. Lines of `transfer_log` go to the log process.
    ///
    /// # Errors
    ///
    /// As those of [`PreparedServer::new`].
    pub(crate) fn behind_front(
        config: Config,
        backend: LoginBackend,
        places: (Vec<SocketAddr>, Listeners),
        serving: Serving,
        transfer_log: Option<TransferLog>,
    ) -> Result<Self, StartError> {
        let journal = Journal::new(transfer_log, Some(serving.counts));
        let mut server = Self::with(config, backend, places, journal)?;
        server
            .admin
            .and_default_socket(&server.shared.settings().config);
        server.serving = Some(serving);
        Ok(server)
    }

    /// The server of the front process. It opens no file.
    ///
    /// # Errors
    ///
    /// When the configuration cannot be used.
    pub(crate) fn in_front(
        config: Config,
        backend: LoginBackend,
        clients: Clients,
        counts: FrontCounts,
    ) -> Result<Self, StartError> {
        let registry = drivers::registry();
        // The front process connects to no node.
        let config = Config {
            nodes: Vec::new(),
            ..config
        };
        let storages = Arc::new(Storages::closed(&config));
        let settings = Settings::load(config, &registry, &backend, None)?;
        let journal = Journal::of_front(counts);
        let shared = Shared::new(settings, None, registry, storages, backend, journal);
        shared.connections.tell(counts);
        Ok(Self {
            shared: Arc::new(shared),
            clients,
            addresses: Vec::new(),
            metrics: None,
            admin: Doors::default(),
            origin_of_socket: Origin::Server,
            processes: Vec::new(),
            serving: None,
        })
    }

    /// Tells the administrator of the other processes of the server.
    #[must_use]
    pub(crate) fn beside(self, processes: Vec<ProcessStatus>) -> Self {
        Self { processes, ..self }
    }

    /// The Unix socket of the administration, with the name by which it is kept for the next version.
    pub(crate) fn admin_socket(&self) -> Option<(String, BorrowedFd<'_>)> {
        let socket = self.admin.socket()?;
        Some((kept_admin_socket(self.origin_of_socket), socket))
    }

    /// Hands all clients over by this link.
    #[must_use]
    pub(crate) fn linked_by(self, link: Arc<Link>) -> Self {
        let tell = Arc::clone(self.shared.link.get_or_init(|| link));
        let journal = &self.shared.journal;
        journal.forward_refusals(move |refusal| tell.report(refusal));
        self
    }

    fn with(
        config: Config,
        backend: LoginBackend,
        (addresses, listeners): (Vec<SocketAddr>, Listeners),
        journal: Journal,
    ) -> Result<Self, StartError> {
        let registry = drivers::registry();
        let place = |one: Listening| (one.listener, one.address);
        let metrics = listeners.metrics.map(place);
        let (socket, origin_of_socket) = match listeners.admin_socket {
            Some((socket, origin)) => (Some(socket), origin),
            None => (None, Origin::Server),
        };
        let admin = Doors::prepare(&config.admin, listeners.admin.map(place), socket)?;
        let storages =
            Storages::open(&config, backend.brokers()).map_err(|error| StartError::Root {
                root: config.root.clone(),
                error,
            })?;
        let checksum_key = config
            .checksum_key
            .as_deref()
            .map(checksum_key::read)
            .transpose()?;
        let settings = Settings::load(config, &registry, &backend, None)?;
        let shared = Shared::new(
            settings,
            checksum_key,
            registry,
            Arc::new(storages),
            backend,
            journal,
        );
        Ok(Self {
            shared: Arc::new(shared),
            clients: Clients::All(Vec::new()),
            addresses,
            metrics,
            admin,
            origin_of_socket,
            processes: Vec::new(),
            serving: None,
        })
    }

    /// The listening addresses, in the order of the configuration.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// The configuration.
    pub(crate) fn config(&self) -> Arc<Config> {
        self.shared.settings().config
    }

    /// The grants of the users with passwords.
    pub(crate) fn grants(&self) -> Vec<Grant> {
        self.shared.settings().logins.grants()
    }

    /// Starts to serve. Must be called in a tokio runtime with I/O and time.
    ///
    /// # Errors
    ///
    /// When a listener cannot be handed to the runtime.
    pub fn start(self) -> io::Result<Server> {
        self.shared.settings().start()?;
        let shutdown = Shutdown::new();
        let only_client = self.clients.begin(&self.shared, &shutdown)?;
        let (shared, phase) = (Arc::clone(&self.shared), shutdown.watch());
        tokio::spawn(async move {
            let transfers = &shared.transfers;
            let is_loaded = || transfers.may_be_too_many();
            watch_lateness(is_loaded, |late| transfers.note_lateness(late), phase).await;
        });
        // The front process neither reads the files nor answers scrapers.
        if self.shared.link.get().is_none() {
            let shared = Arc::clone(&self.shared);
            tokio::spawn(expiry::watch_expiry(shared, shutdown.watch()));
            self.shared.processes.get_or_init(|| self.processes.clone());
            keep_history_of(&self.shared);
            probe::probe_devices(&self.shared)?;
            self.shared.backend.watch()?;
            membership::start(&self.shared);
        }
        let metrics_address = self.metrics.as_ref().map(|(_, address)| *address);
        if let Some((listener, _)) = self.metrics {
            MetricsSite::open(listener, &self.shared, shutdown.view())?;
        }
        let admin_address = self.admin.address();
        let facts = Facts {
            started: SystemTime::now(),
            begun: Instant::now(),
            user: privileges::account(),
            listening: self.addresses.clone(),
            processes: self.processes,
        };
        let orders = self.admin.open(&self.shared, facts, shutdown.view())?;
        let front = match self.serving {
            Some(serving) => Some(takeover::start(
                serving,
                &self.shared,
                shutdown.downgrade(),
            )?),
            None => None,
        };
        Ok(Server {
            shared: self.shared,
            shutdown,
            front,
            addresses: self.addresses,
            metrics_address,
            admin_address,
            orders,
            only_client,
        })
    }
}

/// Takes samples for the history, until the server has ended.
fn keep_history_of(shared: &Arc<Shared>) {
    let shared = Arc::downgrade(shared);
    let record = move || {
        let shared = shared.upgrade()?;
        let reading = shared.reading();
        shared.journal.history.record(SystemTime::now(), &reading);
        Some(())
    };
    tokio::spawn(keep_history(record));
}

impl Server {
    /// The listening addresses, in the order of the configuration.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// The address of the page of metrics, if it is configured.
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.metrics_address
    }

    /// The address of the administration page, if it is configured.
    pub fn admin_address(&self) -> Option<SocketAddr> {
        self.admin_address
    }

    /// The next order of an administrator; `None` if there cannot be any.
    pub(crate) async fn next_order(&mut self) -> Option<Order> {
        self.orders.recv().await
    }

    /// Stops accepting, and ends sessions that are idle. The server stays, for the transfers and the administrator.
    pub(crate) fn stop_accepting(&self) {
        if let Some(front) = &self.front {
            front.drain();
        }
        self.shutdown.drain();
    }

    /// What the server does now, in a line for the service manager.
    pub(crate) fn summary(&self) -> impl Fn() -> String + Send + use<> {
        let (shared, phase) = (Arc::clone(&self.shared), self.shutdown.view());
        move || {
            let doing = match phase.is_serving() {
                true => "serving",
                false => "draining",
            };
            let (running, waiting) = shared.transfers.count();
            let (sessions, transfers) = (shared.open_sessions(), running + waiting);
            format!("{doing}: {sessions} sessions, {transfers} transfers")
        }
    }

    /// Notes another level of the log, which a reload replaces.
    pub(crate) fn note_log_level(&self, level: &str) {
        self.shared.note_log_level(level);
    }

    /// The configuration that new sessions get.
    pub fn config(&self) -> Arc<Config> {
        self.shared.settings().config
    }

    /// The grants of the users with passwords.
    pub(crate) fn grants(&self) -> Vec<Grant> {
        self.shared.settings().logins.grants()
    }

    /// The number of open sessions.
    pub fn sessions(&self) -> usize {
        self.shared.open_sessions()
    }

    /// Applies a new configuration to new sessions, reads the password file again, and reopens the transfer log. Settings
    /// that need a restart keep their values ([`Config::reloaded`]). If the configuration is wrong, nothing changes. Returns the
    /// number of sessions that are ended, because their users are refused now.
    ///
    /// # Errors
    ///
    /// When the configuration, a file that it names, or the transfer log cannot be used.
    pub fn reload(&self, config: Config) -> Result<usize, StartError> {
        let settings = self.shared.load(config)?;
        settings.start().map_err(StartError::Threads)?;
        self.shared.replace(settings);
        if let Some(nodes) = &self.shared.data_nodes {
            nodes.reloaded.notify_one();
        }
        let ended = self.shared.end_refused();
        self.shared.take_inventory();
        self.reopen_transfer_log()?;
        Ok(ended)
    }

    /// What the files that decide logins had at the last reload.
    pub(crate) fn files_in_force(&self) -> Vec<String> {
        self.shared.settings().files_in_force.to_vec()
    }

    /// The files with which a server would not start, at the last reload.
    pub(crate) fn unusable_files(&self) -> Vec<String> {
        self.shared.settings().unusable.to_vec()
    }

    /// Opens the transfer log again, after log rotation has renamed it, unless another process writes it.
    ///
    /// # Errors
    ///
    /// When it cannot be opened: then the old one stays in use.
    fn reopen_transfer_log(&self) -> Result<(), StartError> {
        let log = self.shared.journal.transfer_log.as_ref();
        match log.zip(self.shared.backend.logs()) {
            Some((log, opener)) => log.reopen(opener).map_err(|error| StartError::TransferLog {
                path: log.path().to_owned(),
                error,
            }),
            None => Ok(()),
        }
    }

    /// Counts a reload, for the metrics.
    pub(crate) fn count_reload(&self, is_good: bool) {
        self.shared.journal.metrics.count_reload(is_good);
    }

    /// The connection to the front process, if there is one.
    pub(crate) fn front(&self) -> Option<&Front> {
        self.front.as_ref()
    }

    /// In the front process: stops accepting, and ends sessions before login.
    pub(crate) fn drain(&self) {
        self.shutdown.drain();
    }

    /// In the front process: a session for a client that was served and sent `REIN`.
    pub(crate) fn again(
        &self,
        session: u64,
        peer: SocketAddr,
        local: SocketAddr,
        kept: Kept,
    ) -> Session {
        let phase = self.shutdown.watch();
        Session::again(
            Arc::clone(&self.shared),
            phase,
            session,
            (peer, local),
            kept,
        )
    }

    /// A session for a user whom another program has authenticated, between these addresses.
    pub(crate) fn session(&self, user: LocalUser, peer: SocketAddr, local: SocketAddr) -> Session {
        let phase = self.shutdown.watch();
        Session::new(Arc::clone(&self.shared), phase, peer, local).of_local_user(user)
    }

    /// A session of a client that has not logged in, between these addresses.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn stranger(&self, peer: SocketAddr, local: SocketAddr) -> Session {
        let phase = self.shutdown.watch();
        Session::new(Arc::clone(&self.shared), phase, peer, local)
    }

    /// Stops accepting, closes idle sessions, and gives transfers the configured time to finish, or less when `cut_short`
    /// completes; then cancels them. Returns whether all sessions ended.
    pub async fn shut_down(self, cut_short: impl Future<Output = ()>) -> bool {
        if let Some(front) = &self.front {
            front.drain();
        }
        let grace = self.config().limits.grace;
        self.shutdown.run(grace, cut_short).await
    }

    /// As [`Server::shut_down`], after another version of the program has begun to accept the connections: sessions go on for
    /// as long as they do something, and clients may complete their logins.
    pub(crate) async fn leave(self, cut_short: impl Future<Output = ()>) -> bool {
        let front = self.front;
        if let Some(front) = &front {
            front.stop_accepting();
        }
        let grace = self.shared.settings().config.limits.upgrade_grace;
        let drain = || {
            if let Some(front) = &front {
                front.drain();
            }
        };
        self.shutdown.leave(grace, cut_short, drain).await
    }

    /// In the front process: completes when the only client has gone; never if there may be others. A client that was handed over
    /// has not gone.
    pub(crate) fn only_client_gone(&mut self) -> impl Future<Output = ()> + use<> {
        let (only_client, shared) = (self.only_client.take(), Arc::clone(&self.shared));
        async move {
            let Some(begun) = only_client else {
                return std::future::pending().await;
            };
            // If it has failed, there is no client either.
            let _ = begun.await;
            shared.connections.empty().await;
        }
    }

    /// In the front process: stops accepting, and lets sessions go on.
    pub(crate) fn stop_accepting_only(&self) {
        self.shutdown.replace();
    }
}
