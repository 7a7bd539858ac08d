//! Steps of replacements that are taken after a while, and the timer that wakes their channel.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::event::epoll;

use super::timer::Timer;
use crate::clock;

/// The waiting queue pairs of an endpoint.
#[derive(Debug)]
pub(super) struct Retries {
    /// Its identifier in epoll.
    id: u64,
    /// Created when it is first needed: most channels lose no queue pair.
    timer: Option<Timer>,
    /// Numbers of queue pairs, and when each is due.
    waiting: Vec<(usize, Duration)>,
}

impl Retries {
    pub(super) fn new(id: u64) -> Self {
        Self {
            id,
            timer: None,
            waiting: Vec::new(),
        }
    }

    /// Has `watch` report the timer when the queue pair is due, or an earlier one is.
    ///
    /// # Errors
    ///
    /// When there is no descriptor for the timer.
    pub(super) fn add(&mut self, number: usize, due: Duration, watch: &OwnedFd) -> io::Result<()> {
        self.remove(number);
        self.waiting.push((number, due));
        self.arm(watch).inspect_err(|_| {
            self.remove(number);
        })
    }

    fn arm(&mut self, watch: &OwnedFd) -> io::Result<()> {
        let timer = match self.timer.take() {
            Some(timer) => timer,
            None => {
                let timer = Timer::new()?;
                let id = epoll::EventData::new_u64(self.id);
                epoll::add(watch, &timer, id, epoll::EventFlags::IN)?;
                timer
            }
        };
        let next = self.next(clock::now());
        self.timer.insert(timer).set(next)
    }

    /// The time until the next one is due.
    fn next(&self, now: Duration) -> Option<Duration> {
        let due = self.waiting.iter().map(|&(_, due)| due).min()?;
        Some(due.saturating_sub(now))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(super) fn has(&self, number: usize) -> bool {
        self.waiting.iter().any(|&(waiting, _)| waiting == number)
    }

    /// Nothing is due any more.
    pub(super) fn stop(&mut self) {
        self.timer = None;
    }

    /// Forgets a queue pair; `false` if it is not waiting.
    pub(super) fn remove(&mut self, number: usize) -> bool {
        let before = self.waiting.len();
        self.waiting.retain(|&(waiting, _)| waiting != number);
        self.waiting.len() < before
    }

    /// Takes the queue pairs that are due, and sets the timer for the next one.
    pub(super) fn take_due(&mut self, now: Duration) -> Vec<usize> {
        let is_due = |&mut (_, due): &mut (usize, Duration)| due <= now;
        let due = self.waiting.extract_if(.., is_due);
        let due = due.map(|(number, _)| number).collect();
        if let Some(timer) = &self.timer {
            // It fails for no valid time. Setting it also ends the report of the last expiry.
            let _ = timer.set(self.next(now));
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    use super::*;

    /// Whether the watch reports something within this time.
    fn reports(watch: &OwnedFd, within: Duration) -> bool {
        let mut descriptors = [PollFd::new(watch, PollFlags::IN)];
        let timeout = Timespec::try_from(within).unwrap();
        poll(&mut descriptors, Some(&timeout)).unwrap() > 0
    }

    #[test]
    fn the_timer_wakes_for_the_next_replacement() {
        let watch = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
        let mut retries = Retries::new(7);
        let now = clock::now();
        let later = now + Duration::from_secs(3600);
        retries.add(1, later, &watch).unwrap();
        assert!(!reports(&watch, Duration::ZERO));
        retries.add(0, now, &watch).unwrap();
        assert!(reports(&watch, Duration::from_secs(10)));
        assert_eq!(retries.take_due(now), [0]);
        assert!(!reports(&watch, Duration::ZERO), "the next is due later");
        assert!(retries.has(1) && !retries.has(0));
        assert!(retries.remove(1));
        assert!(!retries.remove(1));
        assert_eq!(retries.take_due(later), [0; 0]);
        retries.add(2, now, &watch).unwrap();
        assert!(reports(&watch, Duration::from_secs(10)));
        retries.stop();
        assert!(!reports(&watch, Duration::ZERO));
        assert!(retries.has(2));
    }
}
