//! Shutdown in phases: no new connections, time for transfers to finish, then their cancellation. Where a new version of the
//! program takes over, idle sessions have time as well.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};

/// The phase of the shutdown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    /// The server accepts connections.
    #[default]
    Serving,
    /// A new version of the program accepts them. Sessions go on for as long as they do something.
    Replaced,
    /// Idle sessions are closed; transfers may finish.
    Draining,
    /// Transfers are cancelled.
    Cancelling,
}

/// When a new version has replaced this one, a session ends that does nothing for this time, and logins are accepted for it.
/// Programs send their next command at once.
const LAST_COMMANDS: Duration = Duration::from_secs(10);

/// Controls the shutdown.
#[derive(Debug)]
pub(crate) struct Shutdown {
    phase: watch::Sender<Phase>,
    /// Every session holds a clone; `gone` yields when all are dropped.
    alive: mpsc::Sender<()>,
    gone: mpsc::Receiver<()>,
}

/// Tells a session, or the listener, the phase of the shutdown, which waits until all of these are dropped.
#[derive(Debug, Clone)]
pub(crate) struct PhaseWatch {
    phase: watch::Receiver<Phase>,
    /// For the session of a client that proved an identity.
    refusal: Option<RefusalWatch>,
    _alive: mpsc::Sender<()>,
}

/// The exchanges of clients that are served and that a reload has found to be refused now.
pub(crate) type Refused = Arc<HashSet<u64>>;

/// Tells a session that its client is refused now.
#[derive(Debug, Clone)]
struct RefusalWatch {
    exchange: u64,
    refused: watch::Receiver<Refused>,
}

/// Creates a [`PhaseWatch`] for each new session. The shutdown does not wait for it.
#[derive(Debug, Clone)]
pub(crate) struct WeakShutdown {
    phase: watch::Receiver<Phase>,
    alive: mpsc::WeakSender<()>,
}

impl WeakShutdown {
    /// `None` when no session may begin any more.
    pub(crate) fn watch(&self) -> Option<PhaseWatch> {
        Some(PhaseWatch {
            phase: self.phase.clone(),
            refusal: None,
            _alive: self.alive.upgrade()?,
        })
    }
}

/// Tells the phase of the shutdown, which does not wait for it.
#[derive(Debug, Clone)]
pub(crate) struct PhaseView(watch::Receiver<Phase>);

impl PhaseView {
    /// Whether the server accepts connections.
    pub(crate) fn is_serving(&self) -> bool {
        *self.0.borrow() == Phase::Serving
    }

    /// Waits until a new version of the program accepts connections. Does not complete when the server ends otherwise.
    pub(crate) async fn replaced(&mut self) {
        if self
            .0
            .wait_for(|now| *now == Phase::Replaced)
            .await
            .is_err()
        {
            std::future::pending().await
        }
    }
}

impl Shutdown {
    pub(crate) fn new() -> Self {
        let (alive, gone) = mpsc::channel(1);
        Self {
            phase: watch::Sender::default(),
            alive,
            gone,
        }
    }

    pub(crate) fn watch(&self) -> PhaseWatch {
        PhaseWatch {
            phase: self.phase.subscribe(),
            refusal: None,
            _alive: self.alive.clone(),
        }
    }

    /// For the thread that takes over sessions from the front process.
    pub(crate) fn downgrade(&self) -> WeakShutdown {
        WeakShutdown {
            phase: self.phase.subscribe(),
            alive: self.alive.downgrade(),
        }
    }

    /// For the administration interface, which stays until the process ends.
    pub(crate) fn view(&self) -> PhaseView {
        PhaseView(self.phase.subscribe())
    }

    /// Begins the shutdown: [`Phase::Draining`].
    pub(crate) fn drain(&self) {
        self.phase.send_replace(Phase::Draining);
    }

    /// Begins [`Phase::Replaced`].
    pub(crate) fn replace(&self) {
        self.phase.send_replace(Phase::Replaced);
    }

    /// Begins [`Phase::Replaced`], in which sessions may go on for `grace`, or less if `cut_short` completes; then cancels
    /// them. New ones begin for [`LAST_COMMANDS`]; then it calls `drain`. Returns whether all sessions ended.
    pub(crate) async fn leave(
        self,
        grace: Duration,
        cut_short: impl Future<Output = ()>,
        drain: impl FnOnce(),
    ) -> bool {
        let begun = tokio::time::Instant::now();
        self.replace();
        let mut cut_short = std::pin::pin!(cut_short);
        let is_cut_short = tokio::select! {
            () = tokio::time::sleep(grace.min(LAST_COMMANDS)) => false,
            () = &mut cut_short => true,
        };
        drain();
        if is_cut_short {
            return self.end(Duration::ZERO, std::future::pending()).await;
        }
        let rest = grace.saturating_sub(begun.elapsed());
        self.end(rest, cut_short).await
    }

    /// Gives transfers `grace` to finish, or less if `cut_short` completes; then cancels them. Returns
    /// whether all sessions ended.
    pub(crate) async fn run(self, grace: Duration, cut_short: impl Future<Output = ()>) -> bool {
        self.phase.send_replace(Phase::Draining);
        self.end(grace, cut_short).await
    }

    /// Waits for the end of all sessions, and cancels those that remain.
    async fn end(mut self, grace: Duration, cut_short: impl Future<Output = ()>) -> bool {
        /// Cancelled transfers end within 100 ms; the rest is for the last replies.
        const CANCEL_TIMEOUT: Duration = Duration::from_secs(5);

        drop(self.alive);
        let ended = tokio::select! {
            _ = self.gone.recv() => true,
            () = tokio::time::sleep(grace) => false,
            () = cut_short => false,
        };
        if ended {
            return true;
        }
        self.phase.send_replace(Phase::Cancelling);
        tokio::time::timeout(CANCEL_TIMEOUT, self.gone.recv())
            .await
            .is_ok()
    }
}

impl PhaseWatch {
    /// From now on the session also ends when the client of this exchange is refused.
    pub(crate) fn end_if_refused(&mut self, exchange: u64, refused: watch::Receiver<Refused>) {
        self.refusal = Some(RefusalWatch { exchange, refused });
    }

    /// Waits for `phase` or a later one, or until the session's client is refused.
    pub(crate) async fn reached(&mut self, phase: Phase) {
        // The sender is dropped only after the last phase.
        let shutdown = self.phase.wait_for(|now| *now >= phase);
        let Some(RefusalWatch { exchange, refused }) = &mut self.refusal else {
            let _ = shutdown.await;
            return;
        };
        tokio::select! {
            _ = shutdown => {}
            Ok(_) = refused.wait_for(|refused| refused.contains(exchange)) => {}
        }
    }

    /// Waits until an idle session must end: the shutdown begins, its client is refused, or a new version has replaced the
    /// server, and [`LAST_COMMANDS`] have passed since then and since the call.
    pub(crate) async fn ends_idle(&mut self) {
        let mut phase = self.phase.clone();
        let left_behind = async {
            // The sender is dropped only after the last phase.
            let _ = phase.wait_for(|now| *now >= Phase::Replaced).await;
            tokio::time::sleep(LAST_COMMANDS).await;
        };
        tokio::select! {
            () = self.reached(Phase::Draining) => {}
            () = left_behind => {}
        }
    }

    /// Whether the session's client is refused.
    pub(crate) fn is_refused(&self) -> bool {
        let refusal = self.refusal.as_ref();
        refusal.is_some_and(|refusal| refusal.refused.borrow().contains(&refusal.exchange))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_server_without_sessions_ends_at_once() {
        let ended = Shutdown::new()
            .run(Duration::from_secs(3600), std::future::pending())
            .await;
        assert!(ended);
    }

    #[tokio::test(start_paused = true)]
    async fn sessions_that_finish_in_time_are_not_cancelled() {
        let shutdown = Shutdown::new();
        let mut watch = shutdown.watch();
        let session = tokio::spawn(async move {
            watch.reached(Phase::Draining).await;
            tokio::time::sleep(Duration::from_secs(10)).await;
            *watch.phase.borrow()
        });
        assert!(
            shutdown
                .run(Duration::from_secs(60), std::future::pending())
                .await
        );
        assert_eq!(session.await.expect("no panic"), Phase::Draining);
    }

    #[tokio::test(start_paused = true)]
    async fn the_others_are_cancelled_after_the_grace_time_or_when_it_is_cut_short() {
        for (grace, cut_short) in [(5, 3600), (3600, 5)] {
            let started = tokio::time::Instant::now();
            let shutdown = Shutdown::new();
            let mut watch = shutdown.watch();
            let session = tokio::spawn(async move { watch.reached(Phase::Cancelling).await });
            let cut_short = tokio::time::sleep(Duration::from_secs(cut_short));
            assert!(shutdown.run(Duration::from_secs(grace), cut_short).await);
            session.await.expect("no panic");
            assert_eq!(started.elapsed().as_secs(), 5);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn sessions_go_on_after_the_server_was_replaced_while_they_do_something() {
        let shutdown = Shutdown::new();
        let (mut busy, mut idle) = (shutdown.watch(), shutdown.watch());
        let mut view = shutdown.view();
        let busy_one = tokio::spawn(async move {
            for _ in 0..3 {
                let next = tokio::time::sleep(Duration::from_secs(7));
                tokio::select! {
                    () = next => {}
                    () = busy.ends_idle() => return false,
                }
            }
            true
        });
        let idle = tokio::spawn(async move {
            idle.ends_idle().await;
            *idle.phase.borrow()
        });
        let drained = std::cell::Cell::new(false);
        let begun = tokio::time::Instant::now();
        let drain = || drained.set(true);
        let grace = Duration::from_secs(60);
        assert!(shutdown.leave(grace, std::future::pending(), drain).await);
        assert_eq!(begun.elapsed().as_secs(), 21);
        assert!(drained.get() && busy_one.await.expect("no panic"));
        assert!(idle.await.expect("no panic") >= Phase::Replaced);
        assert!(!view.is_serving());
        view.replaced().await;
    }

    #[tokio::test(start_paused = true)]
    async fn the_time_for_transfers_counts_from_the_replacement() {
        for (grace, cut_short, expected) in [(30, 3600, 30), (3600, 4, 4), (3600, 30, 30)] {
            let begun = tokio::time::Instant::now();
            let shutdown = Shutdown::new();
            let mut watch = shutdown.watch();
            let session = tokio::spawn(async move { watch.reached(Phase::Cancelling).await });
            let cut_short = tokio::time::sleep(Duration::from_secs(cut_short));
            let grace = Duration::from_secs(grace);
            assert!(shutdown.leave(grace, cut_short, || {}).await);
            session.await.expect("no panic");
            assert_eq!(begun.elapsed().as_secs(), expected);
        }
    }

    #[tokio::test]
    async fn a_session_ends_when_its_client_is_refused_and_others_do_not() {
        let shutdown = Shutdown::new();
        let refused = watch::Sender::<Refused>::default();
        let mut watches = [7, 8].map(|exchange| {
            let mut watch = shutdown.watch();
            watch.end_if_refused(exchange, refused.subscribe());
            watch
        });
        refused.send_replace(Arc::new(HashSet::from([8])));
        watches[1].reached(Phase::Cancelling).await;
        assert!(watches[1].is_refused() && !watches[0].is_refused());
        let other = watches[0].reached(Phase::Draining);
        let waited = tokio::time::timeout(Duration::from_millis(1), other).await;
        assert!(waited.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn sessions_that_never_end_do_not_hold_the_server_up() {
        let shutdown = Shutdown::new();
        let _watch = shutdown.watch();
        assert!(
            !shutdown
                .run(Duration::from_secs(1), std::future::pending())
                .await
        );
    }
}
