//! A server: what its sessions share, how it starts, reloads and ends.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use gridhaul_shares::Pool;
use gridhaul_stack::Registry;
use gridhaul_storage::ChecksumKey;
use gridhaul_transfer::{DataNode, LocalNode, NodeConfig};
use socket2::{Domain, Protocol, Socket, Type};

use crate::admission::{Connections, Room, Workers};
use crate::checksum_key;
use crate::config::{Config, Limits};
use crate::events::Journal;
use crate::front::{Front, FrontCounts, Kept, Link, Serving};
use crate::in_place::InPlace;
use crate::lateness;
use crate::listener;
use crate::login::Decides;
use crate::memory;
use crate::metrics;
use crate::own_addresses::OwnAddresses;
use crate::passwords::Verifier;
use crate::session::{LocalUser, Session};
use crate::settings::{Settings, drivers};
use crate::shutdown::Shutdown;
use crate::start_error::StartError;
use crate::storages::Storages;
use crate::threads::Threads;
use crate::transfer_limit::TransferLimit;
use crate::transfer_log::TransferLog;

/// The size of a worker's buffer and of the smallest MODE E block, in bytes: that of globus-gridftp-server.
const BLOCK_BYTES: usize = 256 * 1024;

/// A server that listens, and whose clients wait until it is started.
#[derive(Debug)]
pub struct PreparedServer {
    shared: Arc<Shared>,
    listeners: Vec<TcpListener>,
    addresses: Vec<SocketAddr>,
    metrics: Option<(TcpListener, SocketAddr)>,
    /// Where clients come from, unless this process listens.
    serving: Option<Serving>,
}

/// A server at work.
#[derive(Debug)]
pub struct Server {
    shared: Arc<Shared>,
    shutdown: Shutdown,
    front: Option<Front>,
    addresses: Vec<SocketAddr>,
    metrics_address: Option<SocketAddr>,
}

/// What all sessions share.
#[derive(Debug)]
pub(crate) struct Shared {
    settings: RwLock<Settings>,
    pub(crate) registry: Registry,
    pub(crate) node: Arc<dyn DataNode>,
    pub(crate) own_addresses: OwnAddresses,
    storages: Arc<Storages>,
    decides: Decides,
    pub(crate) connections: Arc<Connections>,
    pub(crate) transfers: Arc<TransferLimit>,
    pub(crate) in_place: InPlace,
    pub(crate) verifier: Verifier,
    /// Steps of security handshakes.
    pub(crate) handshakes: Workers,
    /// Checksums take long, and leave threads for the quick work on files.
    pub(crate) checksums: Pool,
    pub(crate) threads: Arc<Threads>,
    pub(crate) journal: Journal,
    /// In the front process: the process that serves clients after they have logged in.
    pub(crate) link: OnceLock<Arc<Link>>,
    pub(crate) host: String,
    sessions: AtomicU64,
}

impl PreparedServer {
    /// Does what may need more rights than serving: listens, and opens the root and the logs.
    ///
    /// # Errors
    ///
    /// When one of them cannot be had.
    pub fn new(config: Config) -> Result<Self, StartError> {
        let (listeners, addresses) = listen_everywhere(&config)?;
        let mut server = Self::with(config, Decides::Here, addresses, None)?;
        server.listeners = listeners;
        Ok(server)
    }

    /// As [`PreparedServer::new`], for clients whom the front process hands over. The login process also has files opened
    /// with the rights of any account.
    ///
    /// # Errors
    ///
    /// As those of [`PreparedServer::new`].
    pub(crate) fn behind_front(
        config: Config,
        decides: Decides,
        addresses: Vec<SocketAddr>,
        serving: Serving,
    ) -> Result<Self, StartError> {
        let counts = serving.counts;
        let mut server = Self::with(config, decides, addresses, Some(counts))?;
        server.serving = Some(serving);
        Ok(server)
    }

    /// The front process's part of a server. It opens nothing.
    ///
    /// # Errors
    ///
    /// When the configuration cannot be used.
    pub(crate) fn in_front(
        config: Config,
        decides: Decides,
        listeners: Vec<TcpListener>,
        counts: FrontCounts,
    ) -> Result<Self, StartError> {
        let registry = drivers();
        let storages = Arc::new(Storages::closed(&config));
        let settings = Settings::load(config, &registry, &decides, None)?;
        let journal = Journal::of_front(counts);
        let shared = Shared::new(settings, None, registry, storages, decides, journal);
        shared.connections.tell(counts);
        Ok(Self {
            shared: Arc::new(shared),
            listeners,
            addresses: Vec::new(),
            metrics: None,
            serving: None,
        })
    }

    /// Hands clients over by this link, from the first one on.
    #[must_use]
    pub(crate) fn linked_by(self, link: Arc<Link>) -> Self {
        self.shared.link.get_or_init(|| link);
        self
    }

    fn with(
        config: Config,
        decides: Decides,
        addresses: Vec<SocketAddr>,
        counts: Option<FrontCounts>,
    ) -> Result<Self, StartError> {
        let registry = drivers();
        let metrics = config.metrics_listen.map(listen_and_tell).transpose()?;
        let storages =
            Storages::open(&config, decides.brokers()).map_err(|error| StartError::Root {
                root: config.root.clone(),
                error,
            })?;
        let transfer_log = match &config.transfer_log {
            Some(path) => {
                Some(
                    TransferLog::open(path).map_err(|error| StartError::TransferLog {
                        path: path.clone(),
                        error,
                    })?,
                )
            }
            None => None,
        };
        let checksum_key = config
            .checksum_key
            .as_deref()
            .map(checksum_key::read)
            .transpose()?;
        let settings = Settings::load(config, &registry, &decides, None)?;
        let shared = Shared::new(
            settings,
            checksum_key,
            registry,
            Arc::new(storages),
            decides,
            Journal::new(transfer_log, counts),
        );
        Ok(Self {
            shared: Arc::new(shared),
            listeners: Vec::new(),
            addresses,
            metrics,
            serving: None,
        })
    }

    /// Where it listens, in the order of the configuration.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// What the configuration came to.
    pub(crate) fn settings(&self) -> Settings {
        self.shared.settings()
    }

    /// Serves. Must be called in a tokio runtime with I/O and time.
    ///
    /// # Errors
    ///
    /// When a listener cannot be handed to the runtime.
    pub fn start(self) -> io::Result<Server> {
        self.shared.settings().start()?;
        let shutdown = Shutdown::new();
        for listener in self.listeners {
            tokio::spawn(listener::accept(
                in_runtime(listener)?,
                Arc::clone(&self.shared),
                shutdown.watch(),
            ));
        }
        let (shared, phase) = (Arc::clone(&self.shared), shutdown.watch());
        tokio::spawn(async move { lateness::watch(&shared.transfers, phase).await });
        let metrics_address = self.metrics.as_ref().map(|(_, address)| *address);
        if let Some((listener, _)) = self.metrics {
            tokio::spawn(metrics::respond(
                in_runtime(listener)?,
                Arc::clone(&self.shared),
                shutdown.watch(),
            ));
        }
        let front = match self.serving {
            Some(serving) => Some(serving.start(Arc::clone(&self.shared), shutdown.entrance())?),
            None => None,
        };
        Ok(Server {
            shared: self.shared,
            shutdown,
            front,
            addresses: self.addresses,
            metrics_address,
        })
    }
}

impl Server {
    /// Where it listens, in the order of the configuration.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Where metrics can be had, if they can.
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.metrics_address
    }

    /// The configuration that new sessions get.
    pub fn config(&self) -> Arc<Config> {
        self.shared.settings().config
    }

    /// What new sessions get.
    pub(crate) fn settings(&self) -> Settings {
        self.shared.settings()
    }

    /// How many sessions there are.
    pub fn sessions(&self) -> usize {
        self.shared.open_sessions()
    }

    /// Takes over a new configuration and reads the password file again: for new sessions, and as far
    /// as it goes while the server runs ([`Config::reloaded`]). Opens the transfer log anew. If the
    /// configuration is wrong, everything stays as it was.
    ///
    /// # Errors
    ///
    /// When the configuration, a file that it names, or the transfer log cannot be used.
    pub fn reload(&self, config: Config) -> Result<(), StartError> {
        let running = self.shared.settings();
        let settings = Settings::load(
            config,
            &self.shared.registry,
            &self.shared.decides,
            Some(&running),
        )?;
        settings.start().map_err(StartError::Threads)?;
        let limits = &settings.config.limits;
        self.shared.connections.set(room(limits));
        self.shared.transfers.set(limits.transfers);
        #[cfg(feature = "rdma")]
        gridhaul_rdma::limit_memory(memory::ring_bytes(limits));
        // The front process has no files.
        if self.shared.link.get().is_none() {
            self.shared.storages.reload(&settings.config);
        }
        *self
            .shared
            .settings
            .write()
            .unwrap_or_else(PoisonError::into_inner) = settings;
        match &self.shared.journal.transfer_log {
            Some(log) => log.reopen().map_err(|error| StartError::TransferLog {
                path: log.path().to_owned(),
                error,
            }),
            None => Ok(()),
        }
    }

    /// The way to the front process, if there is one.
    pub(crate) fn front(&self) -> Option<&Front> {
        self.front.as_ref()
    }

    /// In the front process: accepts no more connections, and ends those that have not logged in.
    pub(crate) fn drain(&self) {
        self.shutdown.drain();
    }

    /// In the front process: a session of a client that was served and begins anew.
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

    /// A session for a user whom another program has let in, between these addresses.
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

    /// Accepts no more connections, closes idle sessions, gives transfers the configured time to
    /// finish, or less when `hurry` completes, and then cancels them. Returns whether all ended.
    pub async fn shut_down(self, hurry: impl Future<Output = ()>) -> bool {
        if let Some(front) = &self.front {
            front.drain();
        }
        let grace = self.config().limits.grace;
        self.shutdown.run(grace, hurry).await
    }
}

impl Shared {
    fn new(
        settings: Settings,
        checksum_key: Option<ChecksumKey>,
        registry: Registry,
        storages: Arc<Storages>,
        decides: Decides,
        journal: Journal,
    ) -> Self {
        let limits = &settings.config.limits;
        let buffer_bytes = memory::buffer_bytes(limits);
        #[cfg(feature = "rdma")]
        gridhaul_rdma::limit_memory(memory::ring_bytes(limits));
        let node = LocalNode::new(NodeConfig {
            registry: registry.clone(),
            open_storage: {
                let storages = Arc::clone(&storages);
                Box::new(move |account| storages.get(account))
            },
            workers: limits.movers,
            block_bytes: BLOCK_BYTES,
            buffer_memory_bytes: usize::try_from(buffer_bytes).unwrap_or(usize::MAX),
            checksum_threads: limits.checksum_threads,
            remembered_checksums: limits.remembered_checksums,
            checksum_key,
            data_timeout: limits.data_timeout,
        });
        Self {
            connections: Connections::new(room(limits)),
            transfers: TransferLimit::new(limits.transfers),
            in_place: InPlace::default(),
            verifier: Verifier::new(),
            checksums: Pool::new(limits.file_threads.div_ceil(2)),
            threads: Threads::new(limits.file_threads),
            handshakes: Workers::new("handshake", usize::MAX),
            settings: RwLock::new(settings),
            registry,
            node: Arc::new(node),
            own_addresses: OwnAddresses::default(),
            storages,
            decides,
            journal,
            link: OnceLock::new(),
            host: crate::host_name(),
            sessions: AtomicU64::new(0),
        }
    }

    /// What a session that begins now works with.
    pub(crate) fn settings(&self) -> Settings {
        self.settings
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Processes that act for local accounts.
    pub(crate) fn brokers(&self) -> usize {
        self.storages.brokers()
    }

    /// Control connections.
    pub(crate) fn open_sessions(&self) -> usize {
        match self.journal.metrics.front() {
            Some(front) => usize::try_from(front.open.value()).unwrap_or(usize::MAX),
            None => self.connections.total(),
        }
    }

    /// Control connections that have not logged in.
    pub(crate) fn sessions_before_login(&self) -> usize {
        match self.journal.metrics.front() {
            Some(front) => usize::try_from(front.before_login.value()).unwrap_or(usize::MAX),
            None => self.connections.startups(),
        }
    }

    /// A number for a session.
    pub(crate) fn next_session(&self) -> u64 {
        self.sessions.fetch_add(1, Ordering::Relaxed) + 1
    }
}

fn room(limits: &Limits) -> Room {
    Room {
        connections: limits.connections,
        per_network: limits.connections_per_address,
        startups: limits.startups,
        exempt: limits.penalty_exempt.clone(),
    }
}

/// Opens the listeners of a configuration, and says where they are.
pub(crate) fn listen_everywhere(
    config: &Config,
) -> Result<(Vec<TcpListener>, Vec<SocketAddr>), StartError> {
    let all = config.listen.iter().copied().map(listen_and_tell);
    let listeners = all.collect::<Result<Vec<_>, _>>()?;
    Ok(listeners.into_iter().unzip())
}

/// Opens a listener, and says where it is if the port was left to the kernel.
fn listen_and_tell(address: SocketAddr) -> Result<(TcpListener, SocketAddr), StartError> {
    let listener = listen(address)?;
    match listener.local_addr() {
        Ok(found) => Ok((listener, found)),
        Err(error) => Err(StartError::Listen { address, error }),
    }
}

fn in_runtime(listener: TcpListener) -> io::Result<tokio::net::TcpListener> {
    listener.set_nonblocking(true)?;
    tokio::net::TcpListener::from_std(listener)
}

/// Opens a listener. An IPv6 one takes no IPv4 connections, so that both may be given.
pub(crate) fn listen(address: SocketAddr) -> Result<TcpListener, StartError> {
    const BACKLOG: i32 = 1024;
    let open = || {
        let socket = Socket::new(
            Domain::for_address(address),
            Type::STREAM,
            Some(Protocol::TCP),
        )?;
        socket.set_reuse_address(true)?;
        if address.is_ipv6() {
            socket.set_only_v6(true)?;
        }
        socket.bind(&address.into())?;
        socket.listen(BACKLOG)?;
        Ok(socket.into())
    };
    open().map_err(|error| StartError::Listen { address, error })
}
