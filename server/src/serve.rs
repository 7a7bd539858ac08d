//! `gridhaul-server serve`: from the command line to the last session.

use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use gridhaul_accounts::{ListedFiles, Monitor, MonitorError, process, remove_dead_socket};
use gridhaul_sandbox::SandboxError;
use gridhaul_security::files::OpenFiles as _;
use rustix::process::Pid;
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot::Receiver;
use tracing::{error, info, warn};

use crate::admin::{self, Done, DrainReport, Order, ReloadReport, ServerAction};
use crate::callout::{CalloutProcess, CalloutProcessError};
use crate::check;
use crate::config::{Config, ConfigErrors, LogLevel, Problem, ServeArguments};
use crate::front::{FrontProcess, FrontProcessError};
use crate::helpers::{self, Helper};
use crate::log_process::{self, LogProcessError, OpenedLogs};
use crate::login::{ConfigurationFile, LoginBackend, LoginProcess, LoginProcessError, Started};
use crate::machine;
use crate::privileges::{self, PrivilegeError};
use crate::sandbox::{self, LocalFiles, Sandbox};
use crate::server::{PreparedServer, Server, StartError, listen_everywhere, open_transfer_log};
use crate::start_logs::StartRights;
use crate::status::{ProcessStatus, utc};
use crate::telemetry::{Logging, LoggingError};
use crate::threads::Threads;
use crate::validate::Validated;

/// An error that ends the program.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The configuration cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigErrors),
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
    #[error("{0} has ended")]
    Helper(String),
    /// The runtime does not start.
    #[error("cannot start: {0}")]
    Runtime(#[from] io::Error),
}

/// Serves until SIGTERM or SIGINT. Must be called while the process has one thread.
///
/// # Errors
///
/// When the server cannot start.
pub fn serve(arguments: &ServeArguments) -> Result<(), ServeError> {
    /// The program does not wait longer for threads that are stuck in a file system.
    const LAST_THREADS: Duration = Duration::from_secs(1);

    let validated = Validated::for_start(arguments);
    let defects = check::defects(&validated, arguments.config.as_deref());
    let (config, mut warnings) = validated.checked()?;
    warnings.extend(defects);
    // Before anything is opened: the processes that act for accounts inherit the descriptors of this one. Before there is a
    // monitor: only the login process has a connection to it.
    let callout = CalloutProcess::start(&config)?;
    let callout_pid = callout.as_ref().map(|callout| callout.pid);
    let watched_callout =
        callout_pid.map(|pid| helpers::watched(Helper::Callout, process::watch(pid)));
    let callout = callout.map(|callout| callout.client);
    let monitor = monitor(&config, arguments)?;
    // The monitor removes that of a server that root starts.
    let own_socket = admin::path_of(&config).filter(|_| monitor.is_none());
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
    let (mut log_sockets, logs_pid) = log_process::start(&config.user, logs)?;
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
    )?;
    let mut processes = vec![process_status(Helper::Login, login.pid)];
    processes.extend(monitor_pid.map(|monitor| process_status(Helper::Monitor, monitor)));
    processes.extend(callout_pid.map(|callout| process_status(Helper::Callout, callout)));
    processes.extend(logs_pid.map(|logs| process_status(Helper::Logs, logs)));
    let watched_login = helpers::watched(Helper::Login, process::watch(login.pid));
    let watched_monitor = watched_monitor.map(|monitor| helpers::watched(Helper::Monitor, monitor));
    let watched = watched_login.into_iter().chain(watched_monitor.flatten());
    let watched = watched.chain(watched_callout.flatten());
    let watched = watched.chain(watched_logs.flatten());
    let watched: Vec<_> = watched.collect();
    let Started { serving, front, .. } = login;
    let (listeners, addresses) = listen_everywhere(&config)?;
    // Before this process opens files that strangers must not reach.
    let (link, pid, (logins, mut watched)) = FrontProcess::start(
        &config,
        arguments,
        (&logging, &mut log_sockets),
        (listeners, front),
        (serving, watched),
    )?;
    processes.push(process_status(Helper::Front, pid));
    watched.extend(helpers::watched(Helper::Front, process::watch(pid)));
    let backend = LoginBackend::Serving(Arc::clone(&logins));
    let server =
        PreparedServer::behind_front(config.clone(), backend, addresses, link, transfer_log)?
            .beside(processes);
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
    let confined = Confined {
        sandbox: prepared.enforce()?,
        process,
        file: ConfigurationFile::new(logins),
    };
    let runtime = runtime(&config)?;
    let served = runtime.block_on(async {
        let signals = Signals::new()?;
        let server = server.start()?;
        let ended = helpers::watch(watched)?;
        announce(&server);
        run(server, signals, ended, arguments, &logging, &confined).await
    });
    runtime.shutdown_timeout(LAST_THREADS);
    if let Some(path) = own_socket {
        // The next server replaces a socket that is still there.
        let _ = remove_dead_socket(&path);
    }
    log_sockets.flush();
    served
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
        read: files.chain(host).chain(gridmap).cloned().collect(),
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

/// The confinement of the process. A reload cannot widen it.
struct Confined {
    sandbox: Sandbox,
    process: sandbox::Process,
    file: ConfigurationFile,
}

struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
}

impl Signals {
    fn new() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }

    /// Waits for SIGTERM or SIGINT.
    async fn end(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

async fn run(
    mut server: Server,
    mut signals: Signals,
    ended: Receiver<Helper>,
    arguments: &ServeArguments,
    logging: &Logging,
    confined: &Confined,
) -> Result<(), ServeError> {
    /// The time in which the administrator who ends the server gets the answer.
    const LAST_ANSWER: Duration = Duration::from_millis(200);

    let mut gone = pin!(helpers::gone(ended));
    let mut draining = None;
    let ends = loop {
        tokio::select! {
            _ = signals.hang_up.recv() => {
                reload(&server, arguments, logging, confined);
            }
            _ = signals.terminate.recv() => break Ok(()),
            _ = signals.interrupt.recv() => break Ok(()),
            Some(Order { by, action, done }) = server.next_order() => {
                warn!(by, ?action, "an administrator gives an order");
                let is_ending = action == ServerAction::Drain && draining.is_some();
                let result = match action {
                    ServerAction::Reload => {
                        Done::Reloaded(reload(&server, arguments, logging, confined))
                    }
                    ServerAction::LogLevel(level) => set_level(&server, logging, &level),
                    ServerAction::Drain => {
                        server.stop_accepting();
                        let since = *draining.get_or_insert_with(SystemTime::now);
                        Done::Draining(DrainReport {
                            draining_since: utc(since),
                            sessions: server.sessions(),
                            is_ending,
                        })
                    }
                };
                // An administrator who does not wait gets no result.
                let _ = done.send(result);
                if is_ending {
                    tokio::time::sleep(LAST_ANSWER).await;
                    break Ok(());
                }
            }
            helper = &mut gone => {
                // The transfers finish first. Then the exit status tells the service manager to start the server again.
                error!("{helper} has ended: no more logins; restart the server");
                break Err(ServeError::Helper(helper.to_string()));
            }
        }
    };
    info!(sessions = server.sessions(), "shutting down");
    if !server.shut_down(signals.end()).await {
        warn!("some sessions did not end in time");
    }
    ends
}

/// Changes the level of the log of this process, until the next reload.
fn set_level(server: &Server, logging: &Logging, level: &str) -> Done {
    if let Err(error) = level.parse::<LogLevel>() {
        return Done::Failed(format!("log-level: {error}"));
    }
    match logging.set_level(level) {
        Ok(()) => {
            server.note_log_level(level);
            Done::Success
        }
        Err(error) => Done::Failed(error.to_string()),
    }
}

/// Reads the configuration again, for SIGHUP and for administrators.
fn reload(
    server: &Server,
    arguments: &ServeArguments,
    logging: &Logging,
    confined: &Confined,
) -> ReloadReport {
    let report = reload_all(server, arguments, logging, confined);
    server.count_reload(report.errors.is_empty());
    report
}

fn reload_all(
    server: &Server,
    arguments: &ServeArguments,
    logging: &Logging,
    confined: &Confined,
) -> ReloadReport {
    let mut report = ReloadReport::default();
    let running = server.config();
    let validated = Validated::for_reload(arguments, &confined.file).checked();
    let (config, warnings) = match validated {
        Ok(checked) => checked,
        Err(errors) => {
            report.errors = reopen_logs(confined);
            for error in errors.problems() {
                error!(%error, "the configuration is wrong; everything stays as it was");
                report.errors.push(error.to_string());
            }
            return report;
        }
    };
    let (config, kept) = config.reloaded(&running);
    report.errors = reopen_logs(confined);
    tell(&warnings);
    if let Err(error) = logging.set_level(&config.log.level) {
        error!(%error, "the log was not reloaded");
        report.errors.push(error.to_string());
    }
    confined.sandbox.warn_of_new(&config, &confined.process);
    let changed = config.keys.changed_since(&running.keys);
    match server.reload(config) {
        Ok(sessions_ended) => {
            info!(applied = changed.join(" "), "reloaded");
            report.applied = changed;
            report.files = server.files_in_force();
            report.sessions_ended = sessions_ended;
        }
        Err(error) => {
            error!(%error, "not everything was reloaded");
            report.errors.push(error.to_string());
        }
    }
    confined.sandbox.warn_of_new_users(server.grants());
    if let Some(front) = server.front() {
        let file = arguments.config.as_deref();
        let file = file.and_then(|path| confined.file.open(path).ok());
        front.reload(file.map(OwnedFd::from));
    }
    for name in &kept {
        warn!(
            setting = name.as_str(),
            "a change of this setting needs a restart"
        );
    }
    report.needs_restart = kept;
    report
}

/// Logs settings without effect.
fn tell(warnings: &[Problem]) {
    for problem in warnings {
        warn!(%problem, "a setting may not do what it is meant to");
    }
}

/// Opens the logs again, after a rotation: also when the new configuration is wrong, because rotated logs must not stay in
/// use. Returns the errors.
fn reopen_logs(confined: &Confined) -> Vec<String> {
    match confined.file.reopen_logs() {
        Ok(()) => Vec::new(),
        Err(error) => {
            error!(%error, "the logs were not reopened");
            vec![format!("the logs were not reopened: {error}")]
        }
    }
}

/// Writes to standard output that the server listens, and how to try it. A failure to write is not an error.
fn announce(server: &Server) {
    let mut text = String::new();
    for address in server.addresses() {
        text.push_str(&format!("Server listening at {address}\n"));
    }
    if let Some(address) = server.metrics_address() {
        text.push_str(&format!("Metrics at http://{address}/metrics\n"));
    }
    if let Some(address) = server.admin_address() {
        let scheme = match server.config().admin.certificate {
            Some(_) => "https",
            None => "http",
        };
        text.push_str(&format!("Administration at {scheme}://{address}\n"));
    }
    let config = server.config();
    if let (Some(_), Some(address)) = (&config.anonymous, server.addresses().first()) {
        text.push_str("Try it:\n    ");
        text.push_str(&hint(*address, &config.root));
        text.push('\n');
    }
    let mut stdout = io::stdout().lock();
    let _ = stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush());
}

/// A command line that fetches a file from this server.
fn hint(listening: SocketAddr, root: &Path) -> String {
    let host = match listening.ip() {
        IpAddr::V4(Ipv4Addr::UNSPECIFIED) => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(Ipv6Addr::UNSPECIFIED) => IpAddr::V6(Ipv6Addr::LOCALHOST),
        host => host,
    };
    let flag = if host.is_ipv6() { "-ipv6 " } else { "" };
    let server = SocketAddr::new(host, listening.port());
    match sample(root) {
        Some(name) => {
            let name = encode(&name);
            format!("globus-url-copy {flag}ftp://{server}/{name} file:///tmp/{name}")
        }
        None => format!("globus-url-copy {flag}-list ftp://{server}/"),
    }
}

/// A file in the root that is readable for all users: a README if there is one, else the first by name.
fn sample(root: &Path) -> Option<String> {
    /// The search ends here in larger directories.
    const LOOKED_AT: usize = 1000;

    let readable = |path: &PathBuf| path.is_file() && std::fs::File::open(path).is_ok();
    let mut names: Vec<String> = std::fs::read_dir(root)
        .ok()?
        .take(LOOKED_AT)
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| !name.starts_with('.'))
        .collect();
    names.sort_by_key(|name| (!name.starts_with("README"), name.clone()));
    names.into_iter().find(|name| readable(&root.join(name)))
}

/// Percent-encodes all characters that URLs or shells interpret.
fn encode(name: &str) -> String {
    let mut encoded = String::new();
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hint_names_a_file_that_is_there() {
        let root = tempfile::tempdir().expect("a directory");
        let address = "0.0.0.0:2811".parse().expect("an address");
        assert_eq!(
            hint(address, root.path()),
            "globus-url-copy -list ftp://127.0.0.1:2811/"
        );
        std::fs::write(root.path().join("a b;c"), "x").expect("written");
        std::fs::create_dir(root.path().join("README.d")).expect("made");
        assert_eq!(
            hint(address, root.path()),
            "globus-url-copy ftp://127.0.0.1:2811/a%20b%3Bc file:///tmp/a%20b%3Bc"
        );
        std::fs::write(root.path().join("README.md"), "x").expect("written");
        let address = "[::1]:5000".parse().expect("an address");
        assert_eq!(
            hint(address, root.path()),
            "globus-url-copy -ipv6 ftp://[::1]:5000/README.md file:///tmp/README.md"
        );
    }
}
