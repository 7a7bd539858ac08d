//! Threads that wait until the pacer allows the next message.

use std::num::NonZeroU64;
use std::os::fd::OwnedFd;
use std::sync::atomic::AtomicUsize;

use rustix::event::epoll;
use rustix::thread::{current_timer_slack, set_current_timer_slack};

use super::*;
use crate::provider::{Access, Completion, Endpoint, Limits, Region};

const LOCAL: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// The usual slack of a thread in nanoseconds.
const USUAL_SLACK: u64 = 50_000;

#[test]
fn a_sender_that_waits_for_its_pace_has_exact_timers() {
    let cancel = Cancel::new();
    let operation = &within_a_minute(&cancel);
    // At 8 Mb/s the bytes take 20 ms.
    let options = [("provider", "soft"), ("rate", "8m")];
    let [mut sender, mut receiver] = pair(LOCAL, [options; 2], operation);
    let bytes = [7; 20_000];
    thread::scope(|scope| {
        // The slack and its change belong to the thread.
        let slack = scope.spawn(|| {
            set_current_timer_slack(NonZeroU64::new(USUAL_SLACK)).unwrap();
            sender.send_memory(&bytes, operation).unwrap();
            sender.finish(operation).unwrap();
            current_timer_slack().unwrap()
        });
        assert_eq!(receive_all(&mut receiver, operation), bytes);
        assert_eq!(slack.join().unwrap(), 1);
    });
}

/// A device on which nothing happens. It counts what is asked of it.
#[derive(Debug)]
struct Silent {
    limits: Limits,
    calls: Arc<Calls>,
    never: OwnedFd,
}

#[derive(Debug, Default)]
struct Calls {
    polls: AtomicUsize,
    /// Before each sleep the descriptor is armed.
    arms: AtomicUsize,
}

impl Endpoint for Silent {
    fn limits(&self) -> Limits {
        self.limits
    }

    fn register(&mut self, _: &Arc<Memory>, _: Access) -> std::io::Result<Region> {
        unreachable!("the rings are there")
    }

    fn deregister(&mut self, _: usize) {}

    fn post(&mut self, _: usize, _: Request) -> Result<(), PostError> {
        Ok(())
    }

    fn poll(&mut self, _: &mut Vec<Completion>) {
        self.calls.polls.fetch_add(1, Ordering::Relaxed);
    }

    fn watch(&mut self, _: bool, _: &mut Vec<Completion>) {
        self.calls.arms.fetch_add(1, Ordering::Relaxed);
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        std::os::fd::AsFd::as_fd(&self.never)
    }

    fn close(&mut self, _: usize) -> bool {
        true
    }

    fn end(&mut self) {}

    fn abort(&mut self) {}
}

/// What one wait for the next message takes.
#[derive(Debug)]
struct Wait {
    /// The time from the last message to the next one.
    pause: Duration,
    /// How long before the next message the thread was awake; `None` if it was not before.
    early: Option<Duration>,
    polls: usize,
    arms: usize,
}

/// A sender over a device has sent a message of 1 KiB at this rate with this burst, and waits for its time to send another one.
fn wait_for_the_next_message(rate: &str, burst: &str) -> Wait {
    let cancel = Cancel::new();
    let operation = within_a_minute(&cancel);
    let rings = [("slab", "4K"), ("slabs", "4"), ("message", "1K")];
    let pace = [("provider", "soft"), ("rate", rate), ("burst", burst)];
    let paced = || settings(rings.into_iter().chain(pace));
    let [mut sender, _receiver] = connected(LOCAL, &[paced(), paced()], Flow::Both, &operation);
    let calls = Arc::new(Calls::default());
    let limits = Limits {
        needs_polling: false,
        ..sender.opened.endpoint.limits()
    };
    sender.opened.endpoint = Box::new(Silent {
        limits,
        calls: Arc::clone(&calls),
        never: epoll::create(epoll::CreateFlags::CLOEXEC).unwrap(),
    });
    let room = room(&mut sender.opened).first(8 << 10);
    sender.fill(room.length);
    sender.opened.exchange.sender.flush();
    sender.advance().unwrap();
    // What may leave at this moment was posted.
    let last = sender.now;
    let at = sender.opened.exchange.next_at(last).unwrap();
    for count in [&calls.polls, &calls.arms] {
        count.store(0, Ordering::Relaxed);
    }
    sender.wait(&operation).unwrap();
    Wait {
        pause: at - last,
        early: at.checked_sub(clock::now()),
        polls: calls.polls.load(Ordering::Relaxed),
        arms: calls.arms.load(Ordering::Relaxed),
    }
}

/// The burst has no room for what the rate allows while a thread wakes up late.
#[test]
fn a_sender_with_a_short_burst_polls_before_its_next_message() {
    // A message takes 82 µs.
    let wait = wait_for_the_next_message("100m", "1K");
    assert!(wait.pause <= Duration::from_micros(100), "{wait:?}");
    assert!(wait.polls > 0 && wait.arms == 0, "{wait:?}");
    assert_eq!(wait.early, None, "{wait:?}");
}

/// The last 100 µs are left for polling.
#[test]
fn a_sender_sleeps_before_it_polls() {
    // A message takes 82 ms.
    let wait = wait_for_the_next_message("100k", "1K");
    assert!(wait.pause > Duration::from_millis(1), "{wait:?}");
    assert_eq!((wait.polls, wait.arms), (0, 1), "{wait:?}");
    let early = wait.early.unwrap_or_default();
    assert!(early <= Duration::from_micros(100), "{wait:?}");
}

/// It makes up for a late wake-up.
#[test]
fn a_sender_with_a_long_burst_sleeps_until_its_next_message() {
    let wait = wait_for_the_next_message("100m", "4K");
    assert!(wait.polls == 0 && wait.arms == 1, "{wait:?}");
    assert_eq!(wait.early, None, "{wait:?}");
}
