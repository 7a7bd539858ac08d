//! From the command line to the last connection.

use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use gridhaul_accounts::{BrokerSource, ListedFiles, Monitor};
use gridhaul_nodes::blocking_threads;
use gridhaul_transfer::LocalNode;
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot::Receiver;
use tracing::{error, info, warn};

use super::accept::Acceptor;
use super::connection::Served;
use super::error::NodeError;
use super::security::NodeSecurity;
use crate::checksum_key;
use crate::config::{Config, InvitingServer, NodeServeArguments, ServeArguments};
use crate::drivers;
use crate::enrolment;
use crate::helpers::{self, Helper, Lost};
use crate::machine;
use crate::privileges;
use crate::reload::tell;
use crate::sandbox::{self, LocalFiles};
use crate::security::Opener;
use crate::server::{Listeners, StartError, in_runtime, passed_places};
use crate::service::{Environment, Notifier};
use crate::shared::local_node;
use crate::shutdown::Shutdown;
use crate::start_logs::StartRights;
use crate::storages::Storages;
use crate::telemetry::Logging;
use crate::validate::Validated;

/// What runs after the start.
struct Prepared {
    config: Arc<Config>,
    acceptor: Arc<Acceptor>,
    listeners: Listeners,
    logging: Logging,
    opener: Opener,
    notifier: Notifier,
}

/// Enrols the node, if that is wanted, and serves control servers until SIGTERM or SIGINT. Must be called while the process has one thread.
///
/// # Errors
///
/// When the node gets no certificate, cannot start, or its monitor ends.
pub fn serve(arguments: &NodeServeArguments) -> Result<(), NodeError> {
    let NodeServeArguments { enrol, serve } = arguments;
    if let Some(InvitingServer(control)) = &enrol.enrol {
        enrolment::enrol(control, enrol, &Config::node_identity_of(serve)?)?;
        if enrol.enroll_only {
            return Ok(());
        }
    }
    start(serve)
}

fn start(arguments: &ServeArguments) -> Result<(), NodeError> {
    // Before anything is opened, and before there are other processes.
    let mut environment = Environment::take()?;
    let passed = std::mem::take(&mut environment.passed);
    let validated = Validated::for_node(arguments, &passed_places(&passed));
    let (config, warnings) = validated.checked()?;
    let monitor = monitor(&config)?;
    let logging = Logging::start(&config.log, &StartRights { user: &config.user })?;
    tell(&warnings);
    let watched = monitor.as_ref().map(Monitor::watch);
    let watched = watched.and_then(|monitor| helpers::watched(Helper::Monitor, monitor));
    let monitor = monitor.map(Arc::new);
    let opener = Opener::new(monitor.clone());
    // Only a complete configuration of a node is without problems.
    let Some(security) = NodeSecurity::open(&config, opener.clone())? else {
        return Err(io::Error::other("the configuration is not that of a data node").into());
    };
    let listeners = Listeners::open_with(&config, passed)?;
    let security = Arc::new(security);
    let node = local(&config, monitor)?;
    let served = Served::new(node, &config, Arc::clone(&security));
    let config = Arc::new(config);
    let prepared = Prepared {
        config: Arc::clone(&config),
        acceptor: Acceptor::new(security, served),
        listeners,
        logging,
        opener,
        notifier: Notifier::connect(&environment),
    };
    confine(&config)?;
    run(prepared, watched.into_iter().collect())
}

/// Starts the monitor, if this process is root's. It starts brokers for the accounts of users, and opens the certificate, its
/// key and the log again, which the account that serves may not be allowed to open.
fn monitor(config: &Config) -> Result<Option<Monitor>, NodeError> {
    if !privileges::is_root() {
        return Ok(None);
    }
    let host = config.security.host.iter();
    let host = host.flat_map(|host| {
        [&host.certificates, &host.key]
            .into_iter()
            .chain(&host.passphrase)
    });
    let node = config.node.iter();
    let identity = node.flat_map(|node| &node.identity);
    let files = ListedFiles {
        read: host.chain(identity).cloned().collect(),
        append: config.logs().cloned().collect(),
        socket: None,
        log_owner: privileges::uid_of(&config.user),
    };
    Ok(Some(Monitor::start(
        Some(config.accounts.monitor.clone()),
        files,
    )?))
}

/// Opens the root, with the rights of the start.
fn local(config: &Config, monitor: Option<Arc<Monitor>>) -> Result<LocalNode, StartError> {
    let brokers = monitor.map(|monitor| monitor as Arc<dyn BrokerSource>);
    let storages = Storages::open(config, brokers).map_err(|error| StartError::Root {
        root: config.root.clone(),
        error,
    })?;
    let key = config.checksum_key.as_deref();
    let key = key.map(checksum_key::read).transpose()?;
    let registry = drivers::registry();
    Ok(local_node(
        &config.limits,
        &registry,
        &Arc::new(storages),
        key,
    ))
}

/// Gives up root, and confines this process. Its monitor keeps root's rights.
fn confine(config: &Config) -> Result<(), NodeError> {
    let process = sandbox::Process {
        // It is not read again.
        config: None,
        local_files: match privileges::is_root() {
            true => LocalFiles::Brokers,
            false => LocalFiles::OwnAccount,
        },
        socket: None,
    };
    let prepared = sandbox::Prepared::new(config, Vec::new(), &process);
    let identity = privileges::drop_root(&config.user)?;
    if identity.dropped {
        info!(
            user = identity.account,
            group = identity.group,
            "started as root, running as another account"
        );
    } else {
        info!(
            user = identity.account,
            "not started as root: this node opens all files with its own account, and refuses sessions of others"
        );
    }
    if let Err(error) = machine::raise_descriptor_limit() {
        warn!(%error, "the limit of open descriptors cannot be raised");
    }
    prepared.enforce()?;
    Ok(())
}

fn run(prepared: Prepared, watched: Vec<(Helper, OwnedFd)>) -> Result<(), NodeError> {
    /// The program does not wait longer for threads that are stuck in a file system.
    const LAST_THREADS: Duration = Duration::from_secs(1);

    let runtime = runtime(&prepared.config)?;
    let served = runtime.block_on(async {
        let lost = helpers::watch(watched)?;
        run_until_end(prepared, lost).await
    });
    runtime.shutdown_timeout(LAST_THREADS);
    served
}

async fn run_until_end(prepared: Prepared, lost: Receiver<Lost>) -> Result<(), NodeError> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut hang_up = signal(SignalKind::hangup())?;
    let shutdown = Shutdown::new();
    let addresses = prepared.listeners.addresses();
    for one in prepared.listeners.control {
        let listener: TcpListener = in_runtime(one.listener)?;
        tokio::spawn(Arc::clone(&prepared.acceptor).accept(listener, shutdown.watch()));
    }
    tokio::spawn(Arc::clone(&prepared.acceptor).measure());
    tokio::spawn(Arc::clone(&prepared.acceptor).warn_of_end());
    announce(&addresses);
    let notifier = Arc::new(prepared.notifier);
    notifier.ready(&prepared.acceptor.summary());
    let acceptor = Arc::clone(&prepared.acceptor);
    tokio::spawn(Arc::clone(&notifier).beat(move || acceptor.summary()));
    let mut lost = pin!(helpers::gone(lost));
    let ended = loop {
        tokio::select! {
            _ = terminate.recv() => break Ok(()),
            _ = interrupt.recv() => break Ok(()),
            _ = hang_up.recv() => {
                notifier.reloading();
                reopen(&prepared.logging, &prepared.opener);
                notifier.ready(&prepared.acceptor.summary());
            }
            lost = &mut lost => {
                error!("{lost}: no more sessions; restart the node");
                break Err(NodeError::Helper(lost.to_string()));
            }
        }
    };
    let grace = prepared.config.limits.grace;
    notifier.stopping(grace);
    info!("shutting down");
    prepared.acceptor.drain().await;
    let cut_short = async {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    };
    if !shutdown.run(grace, cut_short).await {
        warn!("some connections of control servers did not end in time");
    }
    ended
}

/// Opens the log again, after a rotation. Certificates and trust are read again by themselves.
fn reopen(logging: &Logging, opener: &Opener) {
    match logging.reopen(opener) {
        Ok(()) => info!("the log was reopened; changes of other settings need a restart"),
        Err(error) => error!(%error, "the log was not reopened"),
    }
}

/// Writes to standard output where the node listens. A failure to write is not an error.
fn announce(addresses: &[SocketAddr]) {
    let lines: String = addresses
        .iter()
        .map(|address| format!("Node listening at {address}\n"))
        .collect();
    let mut stdout = io::stdout().lock();
    let _ = stdout
        .write_all(lines.as_bytes())
        .and_then(|()| stdout.flush());
}

fn runtime(config: &Config) -> io::Result<Runtime> {
    Builder::new_multi_thread()
        .max_blocking_threads(blocking_threads(config.limits.file_threads))
        .thread_name("gridhaul")
        .enable_all()
        .build()
}
