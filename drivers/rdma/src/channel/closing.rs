//! The orderly end of a channel that its user has dropped.
//!
//! If a socket is closed with unread data, or data arrives later, TCP sends a reset. A reset discards
//! data that the peer has not read yet, perhaps the end of a complete stream. So the remaining data
//! is sent, the queue pairs are ended, and arriving data is discarded until the peer has ended them
//! as well.
//!
//! If the peer makes no progress for half a minute, or after an hour, the channel is closed at once.

use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::background::{self, Task};
use crate::clock;
use crate::engine::Exchange;
use crate::open::Opened;
use crate::outgoing::Outgoing;
use crate::provider::Endpoint;

/// The longest time without progress.
const PROGRESS_TIMEOUT: Duration = Duration::from_secs(30);

/// The longest time in all: a full ring takes time on a slow path.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(3600);

/// Ends a channel, in the background if necessary.
pub(crate) fn close(opened: Opened) {
    let mut closing = Closing {
        endpoint: opened.endpoint,
        exchange: opened.exchange,
        outgoing: Some(opened.outgoing),
        progress: None,
        until: Duration::ZERO,
        end: clock::now() + CLOSE_TIMEOUT,
    };
    closing.exchange.sender.finish();
    // Most channels have sent everything and are done here.
    if closing.drive().is_some() {
        // If there is no thread for it, the channel is closed at once.
        let _ = background::submit(&Arc::new(Mutex::new(closing)));
    }
}

#[derive(Debug)]
struct Closing {
    endpoint: Box<dyn Endpoint>,
    exchange: Exchange,
    /// `None` when everything was sent; then the peer has to end its side.
    outgoing: Option<Outgoing>,
    /// The progress at the last call.
    progress: Option<u64>,
    /// When to give up if there is no further progress.
    until: Duration,
    /// When to give up in any case.
    end: Duration,
}

impl Task for Closing {
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.endpoint.descriptor())
    }

    fn drive(&mut self) -> Option<Duration> {
        let now = clock::now();
        let endpoint = self.endpoint.as_mut();
        let moved = self.exchange.advance(endpoint, now);
        let sender = &self.exchange.sender;
        let has_sent_all = sender.is_posted() && sender.is_idle() && !sender.has_unfetched();
        if self.outgoing.is_some() && has_sent_all {
            self.endpoint.end();
            self.exchange.give_back();
            self.outgoing = None;
        }
        let progress = Some(self.exchange.sender.progress());
        if self.progress != progress {
            self.progress = progress;
            self.until = (now + PROGRESS_TIMEOUT).min(self.end);
        }
        if moved.is_err() || self.exchange.is_over() || now >= self.until {
            return None;
        }
        self.exchange.watch(self.endpoint.as_mut(), now).ok()?;
        let next = self.exchange.next_at(now);
        Some(next.map_or(self.until, |next| next.min(self.until)))
    }
}
