//! The timers of a transfer: markers, the notice that it is queued, and the check for a stall.

use std::time::Duration;

use gridhaul_protocol::command::TransferMode;
use gridhaul_protocol::negotiated::Settings;
use tokio::time::Instant;

/// A client whose transfer is queued for longer gets a notice.
pub(super) const NOTICE_AFTER: Duration = Duration::from_secs(1);

/// A timer that has fired.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Due {
    /// Send the notice that the transfer is queued behind `ahead` others.
    Notice { ahead: usize },
    /// Send `112` markers.
    Performance,
    /// Send a `111` marker.
    Restart,
    /// Check whether enough bytes have moved.
    Stall,
}

/// The timers of one transfer.
#[derive(Debug)]
pub(super) struct Timers {
    notice: Option<(Instant, usize)>,
    performance: Option<Period>,
    restart: Option<Period>,
    /// The transfer has markers at its start and end, whether or not it has any in between.
    pub(super) marks: bool,
    stall: Stall,
    started: bool,
}

/// A periodic timer.
#[derive(Debug, Clone, Copy)]
struct Period {
    interval: Duration,
    next: Instant,
}

/// The check that enough bytes move.
#[derive(Debug)]
struct Stall {
    timeout: Duration,
    least_bytes: u64,
    next: Instant,
    bytes: u64,
    waited: Duration,
}

impl Timers {
    /// The timers of a transfer that receives a file, or sends one. `stall` is a period and the number of bytes that must
    /// move in it.
    pub(super) fn new(settings: &Settings, receives: bool, stall: (Duration, u64)) -> Self {
        let now = Instant::now();
        let blocks = settings.mode == TransferMode::Extended;
        let (performance, restart) = match (receives, blocks) {
            (true, true) => (settings.performance_interval, settings.restart_interval),
            // In stream mode globus-url-copy 10.12 takes a 111 for an address.
            (true, false) => (None, None),
            (false, _) => (settings.retrieve_interval, None),
        };
        let period = |interval: Duration| Period {
            interval,
            next: now,
        };
        Self {
            notice: None,
            performance: performance.map(period),
            restart: restart.map(period),
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
                waited: Duration::ZERO,
            },
            started: false,
        }
    }

    /// The transfer is queued.
    pub(super) fn queue(&mut self, ahead: usize) {
        self.notice = Some((Instant::now() + NOTICE_AFTER, ahead));
    }

    /// The transfer has begun.
    pub(super) fn start(&mut self) {
        let now = Instant::now();
        self.started = true;
        self.notice = None;
        for period in [&mut self.performance, &mut self.restart]
            .into_iter()
            .flatten()
        {
            period.next = now + period.interval;
        }
        self.stall.next = now + self.stall.timeout;
    }

    /// Waits until a timer fires. The future is cancel safe.
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

    /// Whether too few bytes have moved since the last call, or since the start. `waited` is how long the transfer has waited
    /// for bandwidth; this time does not count, and extends the period.
    pub(super) fn is_stalled(&mut self, bytes: u64, waited: Duration) -> bool {
        let stall = &mut self.stall;
        let moved = bytes.saturating_sub(stall.bytes);
        let lately = waited.saturating_sub(stall.waited);
        stall.waited = waited;
        if moved < stall.least_bytes && !lately.is_zero() {
            stall.next = Instant::now() + lately.min(stall.timeout);
            return false;
        }
        stall.bytes = bytes;
        moved < stall.least_bytes
    }

    fn next(&self) -> Option<(Instant, Due)> {
        if !self.started {
            return self.notice.map(|(at, ahead)| (at, Due::Notice { ahead }));
        }
        let performance = self
            .performance
            .map(|period| (period.next, Due::Performance));
        let restart = self.restart.map(|period| (period.next, Due::Restart));
        let stall = Some((self.stall.next, Due::Stall));
        [performance, restart, stall]
            .into_iter()
            .flatten()
            .min_by_key(|(at, _)| *at)
    }
}

fn advance(period: &mut Option<Period>) {
    if let Some(period) = period {
        period.next += period.interval;
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
    async fn a_queued_transfer_has_one_notice_and_no_stall() {
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
        assert!(!timers.is_stalled(1000, Duration::ZERO));
        assert_eq!(seconds_until(&mut timers, Due::Stall).await, 60);
        assert!(timers.is_stalled(1999, Duration::ZERO));
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_for_bandwidth_is_no_stall() {
        let mut timers = Timers::new(&settings(TransferMode::Stream), true, STALL);
        timers.start();
        let mut waited = Duration::from_secs(45);
        assert_eq!(seconds_until(&mut timers, Due::Stall).await, 60);
        assert!(!timers.is_stalled(0, waited));
        assert_eq!(seconds_until(&mut timers, Due::Stall).await, 45);
        waited += Duration::from_secs(45);
        assert!(!timers.is_stalled(500, waited));
        assert_eq!(seconds_until(&mut timers, Due::Stall).await, 45);
        assert!(timers.is_stalled(999, waited), "it does not wait any more");
    }
}
