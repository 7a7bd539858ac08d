//! What happens by the clock while a transfer runs: markers, the news of a queue, and the end of a
//! transfer that does not move.

use std::time::Duration;

use gridhaul_protocol::command::TransferMode;
use gridhaul_protocol::negotiated::Settings;
use tokio::time::Instant;

/// A client that waits longer hears why.
pub(super) const NOTICE_AFTER: Duration = Duration::from_secs(1);

/// What is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Due {
    /// To say that the transfer waits, with so many before it.
    Notice { ahead: usize },
    /// `112` markers.
    Performance,
    /// A `111` marker.
    Restart,
    /// To see whether the transfer moves.
    Stall,
}

/// The clock of one transfer.
#[derive(Debug)]
pub(super) struct Timers {
    notice: Option<(Instant, usize)>,
    performance: Option<Pace>,
    restart: Option<Pace>,
    /// Markers at start and end belong to this transfer, whatever their pace.
    pub(super) marks: bool,
    stall: Stall,
    started: bool,
}

/// Something that comes again and again.
#[derive(Debug, Clone, Copy)]
struct Pace {
    interval: Duration,
    next: Instant,
}

/// Whether enough bytes move.
#[derive(Debug)]
struct Stall {
    timeout: Duration,
    least_bytes: u64,
    next: Instant,
    bytes: u64,
}

impl Timers {
    /// The clock for a transfer that receives a file, or sends one. `stall` is the time in which a
    /// number of bytes must move.
    pub(super) fn new(settings: &Settings, receives: bool, stall: (Duration, u64)) -> Self {
        let now = Instant::now();
        let blocks = settings.mode == TransferMode::Extended;
        let (performance, restart) = match (receives, blocks) {
            (true, true) => (settings.performance_interval, settings.restart_interval),
            // In stream mode a client would take a 111 for an address (observed from
            // globus-url-copy 10.12).
            (true, false) => (None, None),
            (false, _) => (settings.retrieve_interval, None),
        };
        let pace = |interval: Duration| Pace {
            interval,
            next: now,
        };
        Self {
            notice: None,
            performance: performance.map(pace),
            restart: restart.map(pace),
            marks: if receives {
                blocks
            } else {
                settings.retrieve_interval.is_some()
            },
            stall: Stall {
                timeout: stall.0,
                least_bytes: stall.1,
                next: now,
                bytes: 0,
            },
            started: false,
        }
    }

    /// The transfer waits.
    pub(super) fn queue(&mut self, ahead: usize) {
        self.notice = Some((Instant::now() + NOTICE_AFTER, ahead));
    }

    /// The transfer has begun.
    pub(super) fn start(&mut self) {
        let now = Instant::now();
        self.started = true;
        self.notice = None;
        for pace in [&mut self.performance, &mut self.restart]
            .into_iter()
            .flatten()
        {
            pace.next = now + pace.interval;
        }
        self.stall.next = now + self.stall.timeout;
    }

    /// Waits until something is due. Dropping the future loses nothing.
    pub(super) async fn due(&mut self) -> Due {
        let Some((at, due)) = self.next() else {
            return std::future::pending().await;
        };
        tokio::time::sleep_until(at).await;
        match due {
            Due::Notice { .. } => self.notice = None,
            Due::Performance => advance(&mut self.performance),
            Due::Restart => advance(&mut self.restart),
            Due::Stall => self.stall.next += self.stall.timeout,
        }
        due
    }

    /// Whether too few bytes moved since the last time this was asked, or since the start.
    pub(super) fn is_stalled(&mut self, bytes: u64) -> bool {
        let moved = bytes.saturating_sub(self.stall.bytes);
        self.stall.bytes = bytes;
        moved < self.stall.least_bytes
    }

    fn next(&self) -> Option<(Instant, Due)> {
        if !self.started {
            return self.notice.map(|(at, ahead)| (at, Due::Notice { ahead }));
        }
        let performance = self.performance.map(|pace| (pace.next, Due::Performance));
        let restart = self.restart.map(|pace| (pace.next, Due::Restart));
        let stall = Some((self.stall.next, Due::Stall));
        [performance, restart, stall]
            .into_iter()
            .flatten()
            .min_by_key(|(at, _)| *at)
    }
}

fn advance(pace: &mut Option<Pace>) {
    if let Some(pace) = pace {
        pace.next += pace.interval;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STALL: (Duration, u64) = (Duration::from_secs(60), 1000);

    fn settings(mode: TransferMode) -> Settings {
        Settings {
            mode,
            ..Settings::default()
        }
    }

    async fn seconds_until(timers: &mut Timers, wanted: Due) -> u64 {
        let begin = Instant::now();
        while timers.due().await != wanted {}
        begin.elapsed().as_secs()
    }

    #[tokio::test(start_paused = true)]
    async fn markers_come_every_five_seconds_in_mode_e() {
        let mut timers = Timers::new(&settings(TransferMode::Extended), true, STALL);
        assert!(timers.marks);
        timers.start();
        assert_eq!(seconds_until(&mut timers, Due::Performance).await, 5);
        assert_eq!(seconds_until(&mut timers, Due::Performance).await, 5);
        assert_eq!(seconds_until(&mut timers, Due::Restart).await, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn stream_mode_has_no_markers() {
        let mut timers = Timers::new(&settings(TransferMode::Stream), true, STALL);
        assert!(!timers.marks);
        timers.start();
        assert_eq!(timers.due().await, Due::Stall);
    }

    #[tokio::test(start_paused = true)]
    async fn senders_have_performance_markers_when_asked() {
        let mut settings = settings(TransferMode::Stream);
        assert!(!Timers::new(&settings, false, STALL).marks);
        settings.retrieve_interval = Some(Duration::from_secs(1));
        let mut timers = Timers::new(&settings, false, STALL);
        assert!(timers.marks);
        timers.start();
        assert_eq!(seconds_until(&mut timers, Due::Performance).await, 1);
    }

    #[tokio::test(start_paused = true)]
    async fn waiting_is_told_once_and_never_counts_as_a_stall() {
        let mut timers = Timers::new(&settings(TransferMode::Stream), true, STALL);
        timers.queue(3);
        assert_eq!(
            seconds_until(&mut timers, Due::Notice { ahead: 3 }).await,
            1
        );
        let more = tokio::time::timeout(Duration::from_secs(3600), timers.due()).await;
        assert!(more.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_transfer_stalls_when_too_few_bytes_move() {
        let mut timers = Timers::new(&settings(TransferMode::Stream), true, STALL);
        timers.start();
        assert_eq!(seconds_until(&mut timers, Due::Stall).await, 60);
        assert!(!timers.is_stalled(1000));
        assert_eq!(seconds_until(&mut timers, Due::Stall).await, 60);
        assert!(timers.is_stalled(1999));
    }
}
