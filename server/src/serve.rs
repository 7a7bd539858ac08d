//! `gridhaul-server serve`: from the command line to the last session.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use gridhaul_accounts::{ListedFiles, Monitor, MonitorError, process, remove_dead_socket};
use gridhaul_sandbox::SandboxError;
use rustix::io::Errno;
use rustix::process::Pid;
use tokio::runtime::{Builder, Runtime};
use tracing::{info, warn};

use crate::admin;
use crate::announce::announce;
use crate::callout::{CalloutProcess, CalloutProcessError};
use crate::check;
use crate::config::{Config, ConfigErrors, ServeArguments};
use crate::front::{FrontProcess, FrontProcessError};
use crate::helpers::{self, Helper};
use crate::log_process::{self, LogProcessError, OpenedLogs};
use crate::login::{ConfigurationFile, LoginBackend, LoginProcess, LoginProcessError, Started};
use crate::machine;
use crate::privileges::{self, PrivilegeError};
use crate::reload::{Confined, Sources, tell};
use crate::running::{Ended, Parts, Signals, run};
use crate::sandbox::{self, LocalFiles};
use crate::server::{
    Clients, Listeners, Mode, PassedPlaces, PreparedServer, StartError, open_transfer_log,
    passed_places,
};
use crate::service::{Environment, EnvironmentError, Launcher, Notifier};
use crate::start_logs::StartRights;
use crate::status::ProcessStatus;
use crate::telemetry::{Logging, LoggingError};
use crate::threads::Threads;
use crate::validate::Validated;

/// An error that ends the program.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The configuration cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigErrors),
    /// What started the program contradicts itself.
    #[error(transparent)]
    Environment(#[from] EnvironmentError),
    /// The launcher does not start, or does not keep a socket.
    #[error("the process that starts new versions: {0}")]
    Launcher(io::Error),
    /// The log cannot be written.
    #[error(transparent)]
    Logging(#[from] LoggingError),
    /// The process that writes the logs does not start.
    #[error(transparent)]
    Logs(#[from] LogProcessError),
    /// The server does not start.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The login process does not start.
    #[error(transparent)]
    Login(#[from] LoginProcessError),
    /// The process that asks the callout does not start.
    #[error(transparent)]
    Callout(#[from] CalloutProcessError),
    /// The front process does not start.
    #[error(transparent)]
    Front(#[from] FrontProcessError),
    /// The monitor does not start.
    #[error(transparent)]
    Monitor(#[from] MonitorError),
    /// The process cannot give up root.
    #[error(transparent)]
    Privileges(#[from] PrivilegeError),
    /// The process cannot be confined.
    #[error("cannot confine the server: {0}")]
    Sandbox(#[from] SandboxError),
    /// A process that the server needs has ended.
    #[error("{0}")]
    Helper(String),
    /// The runtime does not start.
    #[error("cannot start: {0}")]
    Runtime(#[from] io::Error),
}

/// Serves until SIGTERM or SIGINT, or until a new version has taken over. Must be called while the process has one thread.
///
/// # Errors
///
/// When the server cannot start.
pub fn serve(arguments: &ServeArguments) -> Result<(), ServeError> {
    serve_as(Mode::Daemon, arguments)
}

/// As [`serve`], in this mode. In [`Mode::Single`] the server ends after its first connection as well.
///
/// # Errors
///
/// As those of [`serve`].
pub(crate) fn serve_as(mode: Mode, arguments: &ServeArguments) -> Result<(), ServeError> {
    // Before anything is opened, and before there are other processes.
    serve_in(Environment::take()?, mode, arguments)
}

/// As [`serve_as`], with what was taken from the environment before. In [`Mode::Accepted`] its last socket is the connection.
///
/// # Errors
///
/// As those of [`serve`].
pub(crate) fn serve_in(
    mut environment: Environment,
    mode: Mode,
    arguments: &ServeArguments,
) -> Result<(), ServeError> {
    let passed = passed_places(&environment.passed);
    let launcher = Launcher::start(&mut environment).map_err(ServeError::Launcher)?;
    let launcher = Arc::new(launcher);
    let served = start(mode, arguments, &environment, &passed, &launcher);
    if let Err(error) = &served {
        launcher.fail(&error.to_string());
    }
    served
}

/// Starts all processes, and serves. `passed` are the places of sockets that the program was started with.
fn start(
    mode: Mode,
    arguments: &ServeArguments,
    environment: &Environment,
    passed: &PassedPlaces,
    launcher: &Arc<Launcher>,
) -> Result<(), ServeError> {
    /// The program does not wait longer for threads that are stuck in a file system.
    const LAST_THREADS: Duration = Duration::from_secs(1);

    let validated = Validated::for_start(arguments, passed);
    let defects = check::defects(&validated, arguments.config.as_deref());
    let (config, mut warnings) = validated.checked()?;
    warnings.extend(defects);
    // Before anything is opened: the processes that act for accounts inherit the descriptors of this one. Before there is a
    // monitor: only the login process has a connection to it.
    let callout = CalloutProcess::start(&config, launcher)?;
    let callout_pid = callout.as_ref().map(|callout| callout.pid);
    let watched_callout =
        callout_pid.map(|pid| helpers::watched(Helper::Callout, process::watch(pid)));
    let callout = callout.map(|callout| callout.client);
    let monitor = monitor(&config, arguments)?;
    // The monitor removes that of a server that root starts. Without a monitor it stays: the directory of root is closed to the
    // account that serves.
    let removes_socket = monitor.is_none() && !privileges::is_root();
    let own_socket = admin::path_of(&config)
        .filter(|socket| removes_socket && admin::run_directory_of(socket).is_some());
    let process = sandbox::Process {
        config: arguments.config.clone(),
        socket: own_socket.clone(),
        local_files: match &monitor {
            Some(_) => LocalFiles::Brokers,
            None => LocalFiles::OwnAccount,
        },
    };
    let opener = StartRights { user: &config.user };
    let logging = Logging::start(&config.log, &opener)?;
    let transfer_log = open_transfer_log(&config)?;
    let logs = OpenedLogs {
        logging: &logging,
        transfers: transfer_log.as_ref(),
    };
    // No process below has a log file open.
    let (mut log_sockets, logs_pid) = log_process::start(&config.user, logs, launcher)?;
    let watched_logs = logs_pid.map(|pid| helpers::watched(Helper::Logs, process::watch(pid)));
    tell(&warnings);
    // Before this process listens or reads a secret. Only the login process has a connection to the monitor.
    let watched_monitor = monitor.as_ref().map(Monitor::watch);
    let monitor_pid = monitor.as_ref().map(Monitor::pid);
    let login = LoginProcess::start(
        &config,
        arguments,
        logs,
        &mut log_sockets,
        (monitor, callout),
        launcher,
    )?;
    let mut processes = vec![process_status(Helper::Login, login.pid)];
    processes.extend(monitor_pid.map(|monitor| process_status(Helper::Monitor, monitor)));
    processes.extend(callout_pid.map(|callout| process_status(Helper::Callout, callout)));
    processes.extend(logs_pid.map(|logs| process_status(Helper::Logs, logs)));
    processes.push(process_status(Helper::Launcher, launcher.pid()));
    let watched_login = helpers::watched(Helper::Login, process::watch(login.pid));
    let watched_monitor = watched_monitor.map(|monitor| helpers::watched(Helper::Monitor, monitor));
    let watched = watched_login.into_iter().chain(watched_monitor.flatten());
    let watched = watched.chain(watched_callout.flatten());
    let watched = watched.chain(watched_logs.flatten());
    let watched: Vec<_> = watched.collect();
    let Started { serving, front, .. } = login;
    let (addresses, listeners, clients) = listen(&config, mode, launcher)?;
    // Before this process opens files that strangers must not reach.
    let (link, pid, (logins, listeners, mut watched)) = FrontProcess::start(
        &config,
        arguments,
        (&logging, &mut log_sockets),
        (clients, front, launcher),
        (serving, listeners, watched),
    )?;
    processes.push(process_status(Helper::Front, pid));
    watched.extend(helpers::watched(Helper::Front, process::watch(pid)));
    let backend = LoginBackend::Serving(Arc::clone(&logins));
    let places = (addresses, listeners);
    let server = PreparedServer::behind_front(config.clone(), backend, places, link, transfer_log)?
        .beside(processes);
    if let Some((name, socket)) = server.admin_socket() {
        launcher.keep(&name, socket).map_err(kept)?;
    }
    let notifier = Notifier::connect(environment);
    // While the process still has root's rights: the account that serves may not be allowed to search the directories above.
    let prepared = sandbox::Prepared::new(&config, server.grants(), &process);
    let identity = privileges::drop_root(&config.user)?;
    if identity.dropped {
        info!(
            user = identity.account,
            group = identity.group,
            "started as root, running as another account"
        );
    }
    if let Err(error) = machine::raise_descriptor_limit() {
        warn!(%error, "the limit of open descriptors cannot be raised");
    }
    let sources = Sources {
        arguments,
        logging: &logging,
        confined: Confined {
            sandbox: prepared.enforce()?,
            process,
            file: ConfigurationFile::new(logins),
        },
    };
    let runtime = runtime(&config)?;
    let served = runtime.block_on(async {
        let signals = Signals::new()?;
        let server = server.start()?;
        let ended = helpers::watch(watched)?;
        announce(&server);
        let parts = Parts {
            signals,
            ended,
            sources,
            launcher,
            notifier,
            mode,
        };
        match run(server, parts).await {
            Ended::Without(lost) => Err(ServeError::Helper(lost.to_string())),
            ended => Ok(ended),
        }
    });
    runtime.shutdown_timeout(LAST_THREADS);
    if let (Some(path), Ok(Ended::ByOrder)) = (own_socket, &served) {
        launcher.end();
        remove(&path);
    }
    log_sockets.flush();
    served.map(drop)
}

/// Removes the administration socket of a server that has ended. The launcher, which ends as well, has a copy of it.
fn remove(socket: &Path) {
    const LIMIT: Duration = Duration::from_secs(1);
    const PAUSE: Duration = Duration::from_millis(10);

    let begun = Instant::now();
    // The next server replaces a socket that is still there.
    while remove_dead_socket(socket).is_ok_and(|is_removed| !is_removed)
        && begun.elapsed() < LIMIT
        && socket.exists()
    {
        thread::sleep(PAUSE);
    }
}

/// Opens the listeners, or takes those that the program was started with, and has them kept for the next version. Those for
/// control connections are returned apart, with their addresses. A server of one connection has no next version, and does not
/// listen while it serves.
fn listen(
    config: &Config,
    mode: Mode,
    launcher: &Launcher,
) -> Result<(Vec<SocketAddr>, Listeners, Clients), ServeError> {
    let mut passed = launcher.give_back().map_err(kept)?;
    if mode == Mode::Accepted {
        let connection = passed.pop().ok_or_else(|| kept(Errno::NOTSOCK))?;
        let client = Clients::Accepted(TcpStream::from(connection.socket));
        return Ok((Vec::new(), Listeners::default(), client));
    }
    let mut listeners = Listeners::open_with(config, passed)?;
    if mode == Mode::Daemon {
        for (name, socket) in listeners.named() {
            launcher.keep(&name, socket).map_err(kept)?;
        }
    }
    let addresses = listeners.addresses();
    let control = std::mem::take(&mut listeners.control);
    let control = control.into_iter().map(|one| one.listener).collect();
    let clients = match mode {
        Mode::Single => Clients::First(control),
        Mode::Daemon | Mode::Accepted => Clients::All(control),
    };
    Ok((addresses, listeners, clients))
}

fn kept(errno: Errno) -> ServeError {
    ServeError::Launcher(errno.into())
}

/// Starts the monitor, if this process is root's. It opens files with the rights of local accounts, if sessions have any,
/// and the administrator's files after they have changed.
fn monitor(config: &Config, arguments: &ServeArguments) -> Result<Option<Monitor>, MonitorError> {
    let files = files_of_administrator(config, arguments);
    if files.is_empty() || !privileges::is_root() {
        return Ok(None);
    }
    let brokers = config
        .security
        .gsi
        .as_ref()
        .map(|_| config.accounts.monitor.clone());
    Monitor::start(brokers, files).map(Some)
}

/// The files that decide logins, which the account that serves may not be allowed to read, and the logs, which it may not be
/// allowed to create again after a rotation.
fn files_of_administrator(config: &Config, arguments: &ServeArguments) -> ListedFiles {
    let host = config.security.host.iter();
    let host = host.flat_map(|host| {
        [&host.certificates, &host.key]
            .into_iter()
            .chain(&host.passphrase)
    });
    let gsi = config.security.gsi.iter();
    let gridmap = gsi.flat_map(|gsi| {
        let lists = gsi.ban_lists.iter().chain([&gsi.gsi_authz]);
        gsi.gridmap.iter().chain(lists)
    });
    let files = arguments.config.iter().chain(&config.passwords);
    ListedFiles {
        read: files
            .chain(host)
            .chain(gridmap)
            .chain(&config.node_authority)
            .cloned()
            .collect(),
        append: config.logs().cloned().collect(),
        socket: admin::path_of(config),
        log_owner: privileges::uid_of(&config.user),
    }
}

fn process_status(helper: Helper, pid: Pid) -> ProcessStatus {
    ProcessStatus {
        role: helper.role().to_owned(),
        pid: pid.as_raw_nonzero().get().unsigned_abs(),
    }
}

fn runtime(config: &Config) -> io::Result<Runtime> {
    Builder::new_multi_thread()
        .max_blocking_threads(Threads::needed(config.limits.file_threads))
        .thread_name("gridhaul")
        .enable_all()
        .build()
}
