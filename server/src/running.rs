//! The loop of a running server: signals, orders of administrators, and the end.

use std::cell::Cell;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, SystemTime};

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot::{self, Receiver};
use tokio::time::{Instant, timeout_at};
use tracing::{error, info, warn};

use crate::admin::{Done, DrainReport, Order, ReloadReport, ServerAction};
use crate::handover::Front;
use crate::helpers::{self, Lost};
use crate::reload::{Sources, reload, set_level};
use crate::server::{Mode, Server};
use crate::service::{Launcher, Notifier, Upgraded};
use crate::status::utc;

/// The time in which the administrator who ends the server gets the answer.
const LAST_ANSWER: Duration = Duration::from_millis(200);

/// The signals of administrators and service managers.
#[derive(Debug)]
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
    upgrade: Signal,
}

impl Signals {
    /// Must be called in a runtime.
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hang_up: signal(SignalKind::hangup())?,
            upgrade: signal(SignalKind::user_defined2())?,
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

/// What the loop needs beside the server.
pub(crate) struct Parts<'a> {
    pub(crate) signals: Signals,
    /// The end of other processes of the server.
    pub(crate) ended: Receiver<Lost>,
    pub(crate) sources: Sources<'a>,
    pub(crate) launcher: &'a Arc<Launcher>,
    pub(crate) notifier: Notifier,
    pub(crate) mode: Mode,
}

/// Why a server has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Ended {
    /// An administrator or the service manager wanted it, or its only client has gone.
    ByOrder,
    /// A process that the server needs had ended.
    Without(Lost),
    /// A new version serves.
    Replaced,
}

/// Why the loop ends.
enum Ending {
    /// An administrator or the service manager wants it, or the only client has gone.
    Ordered,
    /// A process that the server needs has ended.
    Without(Lost),
    /// A new version serves.
    Replaced(Upgraded),
}

/// An upgrade that is under way.
struct Upgrading {
    result: Receiver<Result<Upgraded, String>>,
    /// The administrator who waits for it.
    done: Option<oneshot::Sender<Done>>,
}

/// Runs the server until its last session.
pub(crate) async fn run(mut server: Server, mut parts: Parts<'_>) -> Ended {
    // The service manager must hear from this process that it serves only when it is the main process.
    let _ = in_thread(parts.launcher, Launcher::ready).await;
    let notifier = Arc::new(parts.notifier);
    notifier.ready(&server.summary()());
    let beat = tokio::spawn(Arc::clone(&notifier).beat(server.summary()));
    let mut gone = pin!(helpers::gone(parts.ended));
    let mut client_gone = pin!(client_gone(&server, parts.mode));
    let (launcher, sources) = (parts.launcher, &parts.sources);
    let mut upgrading = None;
    let mut draining = None;
    let ending = loop {
        tokio::select! {
            _ = parts.signals.hang_up.recv() => {
                reload_and_tell(&server, sources, &notifier);
            }
            _ = parts.signals.terminate.recv() => break Ending::Ordered,
            _ = parts.signals.interrupt.recv() => break Ending::Ordered,
            () = &mut client_gone => break Ending::Ordered,
            _ = parts.signals.upgrade.recv() => upgrade(&mut upgrading, launcher, None),
            Some(Order { by, action, done }) = server.next_order() => {
                warn!(by, ?action, "an administrator gives an order");
                let is_ending = action == ServerAction::Drain && draining.is_some();
                let result = match action {
                    ServerAction::Upgrade => {
                        upgrade(&mut upgrading, launcher, Some(done));
                        continue;
                    }
                    ServerAction::Drain => {
                        close(launcher);
                        server.stop_accepting();
                        let since = *draining.get_or_insert_with(SystemTime::now);
                        Done::Draining(DrainReport {
                            draining_since: utc(since),
                            sessions: server.sessions(),
                            is_ending,
                        })
                    }
                    ServerAction::Reload => Done::Reloaded(reload_and_tell(&server, sources, &notifier)),
                    ServerAction::LogLevel(level) => set_level(&server, sources.logging, &level),
                };
                // An administrator who does not wait gets no result.
                let _ = done.send(result);
                if is_ending {
                    tokio::time::sleep(LAST_ANSWER).await;
                    break Ending::Ordered;
                }
            }
            (result, done) = finished(&mut upgrading) => {
                upgrading = None;
                if result.is_ok() {
                    // The service manager will listen to the new version.
                    beat.abort();
                }
                if let Some(upgraded) = conclude(result, done, launcher, &notifier).await {
                    break Ending::Replaced(upgraded);
                }
            }
            lost = &mut gone => {
                // The transfers finish first. Then the exit status tells the service manager to start the server again.
                error!("{lost}: no more logins; restart the server");
                break Ending::Without(lost);
            }
        }
    };
    if let Ending::Replaced(Upgraded { process }) = ending {
        info!(
            process,
            sessions = server.sessions(),
            "a new version serves; this one finishes its sessions"
        );
        end(server, true, &mut parts.signals, parts.launcher).await;
        return Ended::Replaced;
    }
    if upgrading.is_some() {
        // A new version must not stay when this one was told to end.
        parts.launcher.end();
    }
    close(launcher);
    notifier.stopping(server.config().limits.grace);
    info!(sessions = server.sessions(), "shutting down");
    end(server, false, &mut parts.signals, parts.launcher).await;
    match ending {
        Ending::Without(lost) => Ended::Without(lost),
        Ending::Replaced(_) => Ended::Replaced,
        Ending::Ordered => Ended::ByOrder,
    }
}

/// Completes when the only client has gone. A daemon does not end because its front process says so.
fn client_gone(server: &Server, mode: Mode) -> impl Future<Output = ()> + use<> {
    let told = server.front().map(Front::client_gone);
    async move {
        match told.filter(|_| mode != Mode::Daemon) {
            Some(told) => told.await,
            None => std::future::pending().await,
        }
    }
}

/// Has the launcher close its copies of the listening sockets, when it has time.
fn close(launcher: &Arc<Launcher>) {
    let launcher = Arc::clone(launcher);
    if let Err(error) = start(move || launcher.close()) {
        error!(%error, "there is no thread for the launcher");
    }
}

/// Reads the configuration again, and tells the service manager.
fn reload_and_tell(server: &Server, sources: &Sources<'_>, notifier: &Notifier) -> ReloadReport {
    notifier.reloading();
    let report = reload(server, sources);
    notifier.ready(&server.summary()());
    report
}

/// Makes a new version that serves the main process, and answers the administrator. Returns the new version, if there is one.
async fn conclude(
    result: Result<Upgraded, String>,
    done: Option<oneshot::Sender<Done>>,
    launcher: &Arc<Launcher>,
    notifier: &Notifier,
) -> Option<Upgraded> {
    let (upgraded, told) = match result {
        Ok(upgraded) => {
            notifier.main_process(upgraded.process);
            let _ = in_thread(launcher, Launcher::go).await;
            (Some(upgraded), Done::Upgraded(upgraded.process))
        }
        Err(reason) => {
            error!(%reason, "no upgrade: this version goes on");
            (None, Done::Failed(reason))
        }
    };
    if let Some(done) = done {
        // An administrator who does not wait gets no result.
        let _ = done.send(told);
    }
    upgraded
}

/// Shuts the server down, or lets it finish its sessions if it was replaced. If it has replaced another version itself, waits
/// until that one has finished its sessions as well, because a service manager kills what is left when the main process, which
/// waits for this one, has ended.
async fn end(server: Server, is_replaced: bool, signals: &mut Signals, launcher: &Arc<Launcher>) {
    let limits = &server.config().limits;
    let grace = match is_replaced {
        true => limits.upgrade_grace,
        false => limits.grace,
    };
    let deadline = Instant::now() + grace;
    let is_cut_short = Cell::new(false);
    let cut_short = async {
        signals.end().await;
        is_cut_short.set(true);
    };
    let all_ended = match is_replaced {
        true => server.leave(cut_short).await,
        false => server.shut_down(cut_short).await,
    };
    if !all_ended {
        warn!("some sessions did not end in time");
    }
    if is_cut_short.get() {
        return;
    }
    let others = in_thread(launcher, Launcher::await_predecessor);
    tokio::select! {
        waited = timeout_at(deadline, others) => {
            if waited.is_err() {
                warn!("some sessions of the version before did not end in time");
            }
        }
        () = signals.end() => {}
    }
}

/// Begins an upgrade, unless one is under way.
fn upgrade(
    upgrading: &mut Option<Upgrading>,
    launcher: &Arc<Launcher>,
    done: Option<oneshot::Sender<Done>>,
) {
    if upgrading.is_some() {
        let reason = "an upgrade is under way already";
        match done {
            // An administrator who does not wait gets no result.
            Some(done) => drop(done.send(Done::Failed(reason.to_owned()))),
            None => warn!("{reason}"),
        }
        return;
    }
    info!("an upgrade begins: the new version checks the configuration");
    let (tell, result) = oneshot::channel();
    let launcher = Arc::clone(launcher);
    // The server that has ended meanwhile does not need the result.
    let ask = move || drop(tell.send(launcher.upgrade()));
    // Without a thread the receiver has no sender, and the upgrade has failed.
    if let Err(error) = start(ask) {
        error!(%error, "there is no thread for the upgrade");
    }
    *upgrading = Some(Upgrading { result, done });
}

/// Waits for the result of an upgrade; never completes while there is none.
async fn finished(
    upgrading: &mut Option<Upgrading>,
) -> (Result<Upgraded, String>, Option<oneshot::Sender<Done>>) {
    let Some(Upgrading { result, done }) = upgrading else {
        return std::future::pending().await;
    };
    let result = match result.await {
        Ok(result) => result,
        Err(_) => Err("the launcher could not be asked".to_owned()),
    };
    (result, done.take())
}

/// Asks the launcher in a thread, because the answer may take long. `None` if there is no thread.
async fn in_thread(launcher: &Arc<Launcher>, question: fn(&Launcher)) -> Option<()> {
    let (tell, told) = oneshot::channel();
    let launcher = Arc::clone(launcher);
    let ask = move || {
        question(&launcher);
        let _ = tell.send(());
    };
    if let Err(error) = start(ask) {
        error!(%error, "there is no thread for the launcher");
    }
    told.await.ok()
}

fn start(ask: impl FnOnce() + Send + 'static) -> io::Result<()> {
    thread::Builder::new()
        .name("gridhaul-launch".to_owned())
        .spawn(ask)
        .map(drop)
}
