//! The orderly end of a channel that nobody uses any more.
//!
//! A socket that is closed while something is unread in it, or comes afterwards, makes TCP answer with a reset, and a
//! reset destroys what the peer has not read yet: the end of a stream that was whole. So what is left is sent, the
//! queue pairs are ended, and what still comes is thrown away until the peer has ended them as well.
//!
//! A peer that lets nothing happen for half a minute is not waited for, and none for more than an hour; then the channel
//! is closed as it is.

use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::attendant::{self, Charge};
use crate::clock;
use crate::engine::Exchange;
use crate::memory::Memory;
use crate::open::Opened;
use crate::outgoing::Outgoing;
use crate::provider::Endpoint;

/// How long nothing may happen.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long all of it may take: a full ring takes its time on a slow path.
const LONGEST: Duration = Duration::from_secs(3600);

/// Ends a channel, in the background if need be.
pub(crate) fn depart(opened: Opened) {
    let mut departure = Departure {
        endpoint: opened.endpoint,
        exchange: opened.exchange,
        rings: Some((opened.outgoing, opened.incoming)),
        progress: None,
        until: Duration::ZERO,
        end: clock::now() + LONGEST,
    };
    departure.exchange.sender.finish();
    // Most channels have sent everything, and give their rings back here.
    if departure.attend().is_some() {
        // Without a thread for it, it is closed as it is.
        let _ = attendant::leave(&Arc::new(Mutex::new(departure)));
    }
}

#[derive(Debug)]
struct Departure {
    endpoint: Box<dyn Endpoint>,
    exchange: Exchange,
    /// `None` when all has gone: from then on the peer is to end its side.
    rings: Option<(Outgoing, Arc<Memory>)>,
    /// What had happened when it was attended to last.
    progress: Option<u64>,
    /// How long it is waited for, if nothing else happens.
    until: Duration,
    /// How long at most.
    end: Duration,
}

impl Charge for Departure {
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.endpoint.descriptor())
    }

    fn attend(&mut self) -> Option<Duration> {
        let now = clock::now();
        let endpoint = self.endpoint.as_mut();
        let moved = self.exchange.advance(endpoint, now);
        let sender = &self.exchange.sender;
        let has_all_gone = sender.is_posted() && sender.is_idle() && !sender.has_unfetched();
        if self.rings.is_some() && has_all_gone {
            self.endpoint.end();
            self.exchange.give_back();
            self.rings = None;
        }
        let progress = Some(self.exchange.sender.progress());
        if self.progress != progress {
            self.progress = progress;
            self.until = (now + PATIENCE).min(self.end);
        }
        if moved.is_err() || self.exchange.is_over() || now >= self.until {
            return None;
        }
        self.exchange.watch(self.endpoint.as_mut(), now).ok()?;
        let next = self.exchange.next_at(now);
        Some(next.map_or(self.until, |next| next.min(self.until)))
    }
}
