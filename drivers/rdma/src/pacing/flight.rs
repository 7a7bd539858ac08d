//! The bytes in flight on a path whose rate and burst are configured.
//!
//! A token bucket counts messages when they are handed to a device, a policer when the device sends
//! them. A busy host may send several of them late and at once. So on a path whose burst covers a
//! round trip, at most the burst is in flight: a policer with that rate and burst passes it however
//! late it is sent ([`Window`]). On a longer path more must be in flight.

use std::time::Duration;

use super::RETRY_INTERVAL;
use super::bucket::time_of;
use super::shortest::Shortest;
use super::window::Window;

/// Counts sent and arrived bytes. Times are counted from one moment, as everywhere in pacing.
#[derive(Debug)]
pub(super) struct Flight {
    /// In bytes per second.
    rate: u64,
    /// Bytes that may be sent together.
    burst: u64,
    window: Window,
    /// Bytes that were sent and have neither arrived nor been lost.
    under_way: u64,
    /// The time that the quickest message took.
    quickest: Shortest,
    /// The round trip time without load, if it was measured.
    measured: Option<Duration>,
    /// Bytes that have arrived.
    arrived: u64,
}

impl Flight {
    /// `rate` is in bytes per second, `burst` in bytes.
    pub(super) fn new(rate: u64, burst: u64) -> Self {
        let mut window = Window::new();
        window.set(rate, burst);
        Self {
            rate,
            burst,
            window,
            under_way: 0,
            quickest: Shortest::default(),
            measured: None,
            arrived: 0,
        }
    }

    /// Sets the measured round trip time without load.
    pub(super) fn expect(&mut self, round_trip: Duration) {
        self.measured = Some(round_trip);
    }

    /// This many bytes were sent.
    pub(super) fn posted(&mut self, bytes: u64) {
        self.under_way += bytes;
    }

    /// This many bytes, sent at `posted_at`, have arrived.
    pub(super) fn arrived(&mut self, bytes: u64, posted_at: Duration, now: Duration) {
        self.gone(bytes);
        let took = now.saturating_sub(posted_at);
        // What is bounded by the burst waits for no more than the burst.
        let margin = time_of(self.burst, self.rate);
        self.quickest.took(took, margin, now);
        self.arrived = self.arrived.saturating_add(bytes);
        // The first messages of a program reach the device long after the clock was read, because
        // its code is not in the caches yet; their times are too long.
        let measured = self.measured.filter(|_| self.arrived <= self.burst);
        let least = [self.quickest.get(), measured].into_iter().flatten().min();
        let left_at = now.saturating_sub(least.unwrap_or(took));
        self.window.arrived(bytes, left_at);
    }

    /// This many bytes left the flight: they arrived or were lost.
    pub(super) fn gone(&mut self, bytes: u64) {
        self.under_way = self.under_way.saturating_sub(bytes);
    }

    /// The time before which the bytes in flight forbid sending `bytes`, or when to check again; `None`
    /// if they may be sent.
    pub(super) fn hold(&self, bytes: u64, now: Duration) -> Option<Duration> {
        self.bounding_burst()?;
        let under_way = match self.under_way {
            // A message longer than the burst is sent alone.
            0 => bytes.min(self.burst),
            others => others + bytes,
        };
        let ready_at = self.window.ready_at(under_way, now);
        Some(ready_at.unwrap_or(now + RETRY_INTERVAL)).filter(|&at| at > now)
    }

    /// The burst, if it bounds the bytes in flight.
    pub(super) fn bounding_burst(&self) -> Option<u64> {
        let round_trip = self.quickest.get().or(self.measured)?;
        self.covers(round_trip).then_some(self.burst)
    }

    /// Whether the times of arrivals matter: the path is short, or no message has arrived yet.
    pub(super) fn is_bounded(&self) -> bool {
        self.quickest.get().is_none() || self.bounding_burst().is_some()
    }

    /// Whether the burst covers two round trips, one of them for acknowledgements that a busy host
    /// sends late.
    fn covers(&self, round_trip: Duration) -> bool {
        2 * round_trip <= time_of(self.burst, self.rate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pacing::shortest::WINDOW;

    const MILLISECOND: Duration = Duration::from_millis(1);
    const NOW: Duration = Duration::from_secs(1);

    /// A path with a burst of 3000 bytes, which take three milliseconds, after a message that took
    /// `round_trip`.
    fn after(round_trip: Duration) -> Flight {
        let mut flight = Flight::new(1_000_000, 3000);
        flight.posted(1);
        flight.arrived(1, Duration::ZERO, round_trip);
        flight
    }

    #[test]
    fn a_short_path_has_no_more_than_the_burst_under_way() {
        let mut flight = after(MILLISECOND);
        assert!(flight.is_bounded());
        flight.posted(2000);
        assert_eq!(flight.hold(1000, NOW), None);
        assert_eq!(flight.hold(1001, NOW), Some(NOW + RETRY_INTERVAL));
        // It was sent at most one millisecond before it arrived.
        flight.arrived(2000, NOW - 5 * MILLISECOND, NOW);
        assert_eq!(flight.hold(2000, NOW), None);
        assert_eq!(flight.hold(3000, NOW), Some(NOW + MILLISECOND));
    }

    #[test]
    fn a_long_path_has_as_much_as_comes() {
        let mut flight = after(2 * MILLISECOND);
        assert!(!flight.is_bounded());
        flight.posted(1 << 30);
        assert_eq!(flight.hold(1000, NOW), None);
    }

    /// The route changed after earlier messages.
    #[test]
    fn a_path_that_has_become_longer_is_not_bounded_any_more() {
        let mut flight = after(MILLISECOND);
        let mut now = NOW;
        while flight.is_bounded() {
            flight.posted(1000);
            now += 50 * MILLISECOND;
            flight.arrived(1000, now - 50 * MILLISECOND, now);
        }
        assert!((WINDOW..2 * WINDOW).contains(&now), "{now:?}");
    }

    #[test]
    fn before_the_first_arrival_the_expected_round_trip_counts() {
        let mut flight = Flight::new(1_000_000, 3000);
        flight.posted(2000);
        assert_eq!(flight.hold(1001, NOW), None, "no round trip time is known");
        flight.expect(MILLISECOND);
        assert_eq!(flight.hold(1001, NOW), Some(NOW + RETRY_INTERVAL));
        flight.expect(2 * MILLISECOND);
        assert_eq!(flight.hold(1001, NOW), None);
        assert!(flight.is_bounded(), "the first message will be measured");
        flight.arrived(2000, Duration::ZERO, 2 * MILLISECOND);
        assert!(!flight.is_bounded());
    }

    #[test]
    fn a_message_left_no_earlier_than_a_round_trip_before_it_arrived() {
        let mut flight = Flight::new(1_000_000, 3000);
        flight.expect(MILLISECOND / 10);
        flight.posted(2000);
        // It was posted a millisecond after the clock was read.
        flight.arrived(2000, NOW - MILLISECOND, NOW);
        let left_at = NOW - MILLISECOND / 10;
        assert_eq!(flight.hold(2000, NOW), Some(left_at + MILLISECOND));
    }

    #[test]
    fn a_message_that_is_longer_than_the_burst_goes_alone() {
        let mut flight = after(MILLISECOND);
        assert_eq!(flight.hold(5000, NOW), None);
        flight.posted(5000);
        assert_eq!(flight.hold(1, NOW), Some(NOW + RETRY_INTERVAL));
        flight.gone(5000);
        assert_eq!(flight.hold(5000, NOW), None);
    }
}
