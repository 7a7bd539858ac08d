//! The front process: it listens, and talks to clients until they have logged in.
//!
//! What strangers send is parsed in a process that has no files, no accounts, no data of other sessions, and no way to
//! make a connection. It asks the login process ([`crate::login`]), and hands each client that may log in over to the
//! serving process ([`crate::handover`]). A stranger who takes the front process over can act for clients who log in from
//! then on, and for none that is served already.
//!
//! The process is forked before the server opens a file or reads a secret. It accepts connections when the serving process
//! asks it to, and ends when that one does. A server inside another program, and one that sshd started,
//! have no front process.

use std::fs::{File, Metadata};
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use gridhaul_accounts::process::{fork, ignore_signals, set_name};
use gridhaul_accounts::socket::pair;
use gridhaul_security::files::OpenFiles;
use rustix::io::Errno;
use rustix::process::Pid;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tracing::{error, info, warn};

use crate::config::{Config, ServeArguments};
use crate::handover::{self, Arrived, Link, Serving, ToFront};
use crate::log_process::LogSockets;
use crate::login::{LoginBackend, LoginClient};
use crate::machine;
use crate::privileges;
use crate::sandbox;
use crate::server::{Clients, PreparedServer, Server};
use crate::service::Launcher;
use crate::session::Session;
use crate::telemetry::{FrontCounts, Logging, tell};
use crate::wire::{NotReady, tell_ready, wait_until_ready};

/// Starts the front process.
#[derive(Debug)]
pub(crate) struct FrontProcess;

/// An error that keeps the front process from starting.
#[derive(Debug, thiserror::Error)]
pub enum FrontProcessError {
    /// The OS refuses a socket or a process.
    #[error("cannot start the process that listens: {0}")]
    Start(#[from] io::Error),
    /// The front process cannot use the configuration.
    #[error("{0}")]
    Configuration(String),
}

/// The time in which clients can take their last reply.
const LAST_REPLIES: Duration = Duration::from_secs(2);

/// The descriptors and memory of the front process.
struct Parts {
    clients: Clients,
    logins: Vec<OwnedFd>,
    link: OwnedFd,
    counts: FrontCounts,
    tell: OwnedFd,
}

impl FrontProcess {
    /// Starts the process, which gets the listeners, or the only client, and the sockets to the login process. Must be called while this process
    /// has one thread, and before it opens anything that the front process must not have. `ours` stays in this process.
    ///
    /// # Errors
    ///
    /// When there is a second thread already, no process can be started, or what is configured cannot be used.
    pub(crate) fn start<T>(
        config: &Config,
        arguments: &ServeArguments,
        (logging, log_sockets): (&Logging, &mut LogSockets),
        (clients, logins, launcher): (Clients, Vec<OwnedFd>, &Launcher),
        ours: T,
    ) -> Result<(Serving, Pid, T), FrontProcessError> {
        let counts = FrontCounts::new()?;
        let (here, there) = pair().map_err(io::Error::from)?;
        let (tell, told) = pair().map_err(io::Error::from)?;
        let parts = Parts {
            clients,
            logins,
            link: there,
            counts,
            tell,
        };
        let mut parts = Some(parts);
        let mut kept = Some((here, told, ours));
        let pid = fork(|| {
            drop(kept.take());
            launcher.disconnect();
            let log_sockets = log_sockets.become_front();
            if let Some(parts) = parts.take() {
                match log_sockets {
                    Ok(()) => run(config, arguments, logging, parts),
                    Err(error) => tell_ready(&parts.tell, Some(&error.to_string())),
                }
            }
        })?;
        log_sockets.has_front();
        // The closure ran in the child only, so here all values are still there.
        drop(parts);
        let Some((here, told, ours)) = kept else {
            return Err(io::Error::from(Errno::PIPE).into());
        };
        wait_until_ready(&told)?;
        Ok((Serving::new(here, counts), pid, ours))
    }
}

impl From<NotReady> for FrontProcessError {
    fn from(error: NotReady) -> Self {
        match error {
            NotReady::Ended(error) => Self::Start(error),
            NotReady::Reason(reason) => Self::Configuration(reason),
        }
    }
}

/// The main function of the process. It sends an empty message when it is ready, or the reason why it is not.
fn run(config: &Config, arguments: &ServeArguments, logging: &Logging, parts: Parts) {
    ignore_signals();
    set_name("gh-front", "front process, which listens");
    let socket = Arc::new(parts.link);
    let backend = LoginBackend::Front(Arc::new(LoginClient::new(parts.logins, false)));
    let prepared = PreparedServer::in_front(config.clone(), backend, parts.clients, parts.counts)
        .map_err(|error| error.to_string())
        .and_then(|server| {
            privileges::drop_root(&config.user).map_err(|error| error.to_string())?;
            if let Err(error) = machine::raise_descriptor_limit() {
                warn!(%error, "the limit of open descriptors cannot be raised");
            }
            sandbox::confine_front().map_err(|error| error.to_string())?;
            Ok(server)
        });
    let server = match prepared {
        Ok(server) => server,
        Err(reason) => {
            tell_ready(&parts.tell, Some(&reason));
            return;
        }
    };
    tell_ready(&parts.tell, None);
    drop(parts.tell);
    let served = work(server, socket, arguments, logging);
    if let Err(error) = served {
        error!(%error, "the process that listens cannot go on");
    }
}

fn work(
    server: PreparedServer,
    socket: Arc<OwnedFd>,
    arguments: &ServeArguments,
    logging: &Logging,
) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .thread_name("gh-front")
        .enable_all()
        .build()?;
    let link = Arc::new(Link::start(Arc::clone(&socket))?);
    let messages = messages(socket)?;
    runtime.block_on(follow(server, link, messages, arguments, logging))?;
    runtime.shutdown_background();
    Ok(())
}

type Message = (ToFront, Vec<OwnedFd>);

/// The messages of the serving process, received by a thread.
fn messages(socket: Arc<OwnedFd>) -> io::Result<UnboundedReceiver<Message>> {
    let (tell, told) = unbounded_channel();
    let listen = move || {
        handover::follow(&socket, |message, descriptors| {
            // The runtime ends with the process only.
            let _ = tell.send((message, descriptors));
        });
    };
    thread::Builder::new()
        .name("gridhaul-link".to_owned())
        .spawn(listen)?;
    Ok(told)
}

async fn follow(
    server: PreparedServer,
    link: Arc<Link>,
    mut messages: UnboundedReceiver<Message>,
    arguments: &ServeArguments,
    logging: &Logging,
) -> io::Result<()> {
    match messages.recv().await {
        Some((ToFront::Start, _)) => {}
        // The serving process did not start.
        _ => return Ok(()),
    }
    let mut server = server.linked_by(Arc::clone(&link)).start()?;
    let mut gone = pin!(server.only_client_gone());
    let mut is_gone = false;
    loop {
        let message = tokio::select! {
            message = messages.recv() => message,
            () = &mut gone, if !is_gone => {
                is_gone = true;
                link.end();
                continue;
            }
        };
        let Some((message, descriptors)) = message else {
            break;
        };
        match message {
            ToFront::Start => {}
            ToFront::Ended(session) => drop(link.take_back(session)),
            ToFront::Returned { session, input } => {
                begin_anew(&server, &link, session, input, descriptors);
            }
            ToFront::Reload => {
                let file = descriptors.into_iter().next().map(File::from);
                reload(&server, arguments, logging, file);
            }
            ToFront::StopAccepting => server.stop_accepting_only(),
            ToFront::Drain => server.drain(),
        }
    }
    // The serving process has ended, so sessions here cannot be handed over any more.
    let ended = server.shut_down(std::future::pending());
    if tokio::time::timeout(LAST_REPLIES, ended).await.is_err() {
        warn!("some clients that had not logged in do not take their last reply");
    }
    Ok(())
}

/// Begins a new session for a client that was served. It keeps its place.
fn begin_anew(
    server: &Server,
    link: &Link,
    session: u64,
    input: Vec<u8>,
    descriptors: Vec<OwnedFd>,
) {
    // The serving process returns only sessions that this process handed over.
    let Some(kept) = link.take_back(session) else {
        return;
    };
    let Some(connection) = descriptors.into_iter().next() else {
        if let Some(untold) = tell("descriptors for clients") {
            error!(
                untold,
                "too many open files: a client cannot begin anew: raise LimitNOFILE of the service"
            );
        }
        return;
    };
    match Arrived::new(connection) {
        Ok(Arrived {
            stream,
            peer,
            local,
        }) => {
            let again = server.again(session, peer, local, kept);
            tokio::spawn(Session::run_again(again, stream, input));
        }
        // The client has closed the connection.
        Err(error) => {
            if let Some(untold) = tell("clients that are gone") {
                warn!(session, %error, untold, "a client cannot begin anew");
            }
        }
    }
}

/// The configuration file, opened by the serving process.
#[derive(Debug)]
struct Opened(Mutex<Option<File>>);

impl OpenFiles for Opened {
    fn open(&self, _path: &Path) -> io::Result<File> {
        let mut file = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        file.take().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn metadata(&self, _path: &Path) -> io::Result<Metadata> {
        Err(io::ErrorKind::NotFound.into())
    }
}

fn reload(server: &Server, arguments: &ServeArguments, logging: &Logging, file: Option<File>) {
    let file = Opened(Mutex::new(file));
    let config = match Config::load_with(arguments, &file) {
        Ok(config) => config.reloaded(&server.config()).0,
        Err(error) => {
            error!(%error, "the process that listens goes on with the configuration from before");
            return;
        }
    };
    if let Err(error) = logging.set_level(&config.log.level) {
        error!(%error, "the log of the process that listens was not reloaded");
    }
    match server.reload(config) {
        Ok(_) => info!("the process that listens has read the configuration again"),
        Err(error) => error!(%error, "the process that listens has not reloaded everything"),
    }
}
