//! Both directions of a channel as one state machine, without blocking and without a clock.
//!
//! It validates and applies messages of the peer, posts requests and returns credit. The caller
//! passes the time, and asks [`Exchange::next_at`] when to call again if no event comes before.

mod completions;
mod growth;

use std::sync::Arc;
use std::time::Duration;

use self::growth::{Growth, GrowthError};
use super::crawl::{Crawl, Sample};
use super::message::MessageError;
use super::meter::Meter;
use super::reader::Reader;
use super::receiver::{Receiver, ReceiverError};
use super::sender::{Sender, SenderError};
use crate::memory::Memory;
use crate::provider::{Completion, Endpoint, Loss, MAX_RAILS, PostError, Request, Work, rail_of};

/// The most bytes that one call posts. Soft-RoCE carries out a request in the call that posts it, and
/// the caller must be able to check its deadline in between.
const POSTED_BYTES: usize = 8 << 20;

/// Both directions of a channel.
#[derive(Debug)]
pub(crate) struct Exchange {
    pub(crate) sender: Sender,
    pub(crate) receiver: Receiver,
    /// READs announced pieces from the peer's ring (`mode=get`).
    reader: Option<Reader>,
    /// The rings of this end, by region: pieces that travel inside messages are copied to them. None after
    /// they were given back, or in runs that do not look at the content.
    incoming: Vec<(usize, Arc<Memory>)>,
    /// The ring from which this end sends from now on, until the caller takes it.
    outgoing: Option<Arc<Memory>>,
    /// `None` where both rings stay as they are.
    growth: Option<Growth>,
    /// Data and messages about rings are ignored from now on.
    has_given_back: bool,
    queue_pairs: Vec<State>,
    /// One for each rail; none without a stall timeout. `None` where the device does not count retransmissions.
    crawls: Vec<Option<Crawl>>,
    /// Why a queue pair was lost most recently.
    loss: Option<Loss>,
    meter: Arc<Meter>,
    /// The last call stopped at its bound, and more can be posted at once.
    has_more: bool,
    /// Reused between calls; empty outside of one.
    completions: Vec<Completion>,
}

/// The generation cycle of a queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Connected,
    /// Lost. The endpoint may restore it.
    Lost,
    /// Lost for good.
    Gone,
}

/// Why a channel cannot continue.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Fault {
    #[error(transparent)]
    Message(#[from] MessageError),
    #[error(transparent)]
    Sender(#[from] SenderError),
    #[error(transparent)]
    Receiver(#[from] ReceiverError),
    #[error(transparent)]
    Growth(#[from] GrowthError),
    /// [`PostError::Full`]: the engine's own count of requests was wrong.
    #[error(transparent)]
    Post(PostError),
}

impl Exchange {
    /// Starts with all `queue_pairs` connected.
    pub(crate) fn new(sender: Sender, receiver: Receiver, queue_pairs: usize) -> Self {
        Self {
            crawls: sender.crawls(),
            sender,
            receiver,
            reader: None,
            incoming: Vec::new(),
            outgoing: None,
            growth: None,
            has_given_back: false,
            queue_pairs: vec![State::Connected; queue_pairs],
            loss: None,
            meter: Arc::default(),
            has_more: false,
            completions: Vec::new(),
        }
    }

    /// The peer announces pieces, and this end READs them.
    pub(crate) fn fetch(mut self, reader: Reader) -> Self {
        self.receiver.acknowledge_end();
        self.reader = Some(reader);
        self
    }

    /// Small pieces arrive inside messages and are copied to `incoming`, the ring of this end.
    pub(crate) fn carry(mut self, incoming: Arc<Memory>) -> Self {
        self.incoming.push((self.receiver.region(), incoming));
        self
    }

    /// The ring that [`Receiver::ready`] is in. `None` after it was given back.
    pub(crate) fn incoming(&self) -> Option<&Arc<Memory>> {
        self.incoming_of(self.receiver.region())
    }

    fn incoming_of(&self, region: usize) -> Option<&Arc<Memory>> {
        let mut rings = self.incoming.iter();
        let (_, memory) = rings.find(|(other, _)| *other == region)?;
        Some(memory)
    }

    /// Releases the receive ring. Everything was sent, and data that still arrives is discarded.
    pub(crate) fn give_back(&mut self) {
        self.incoming.clear();
        self.growth = None;
        self.has_given_back = true;
    }

    /// Does everything that is possible without waiting. `now` is the time since a fixed moment and
    /// must not decrease.
    ///
    /// # Errors
    ///
    /// When the peer violates the protocol. Lost queue pairs are no error: see
    /// [`Exchange::is_over`].
    pub(crate) fn advance(
        &mut self,
        endpoint: &mut dyn Endpoint,
        now: Duration,
    ) -> Result<(), Fault> {
        self.sender.wake(now, endpoint);
        self.poll(endpoint, now)?;
        self.give_up_stalled(endpoint, now);
        self.change_rings(endpoint, now)?;
        let posted = self.post_some(endpoint, now)?;
        if posted > 0 {
            self.work(endpoint, now)?;
        }
        self.return_credit(endpoint, now)?;
        self.meter.note(&self.sender, &self.receiver);
        self.has_more = posted >= POSTED_BYTES;
        Ok(())
    }

    /// Arms the endpoint's descriptor for the next event. Call it only before sleeping until
    /// [`Exchange::next_at`], because it costs system calls.
    ///
    /// # Errors
    ///
    /// As [`Exchange::advance`].
    pub(crate) fn watch(
        &mut self,
        endpoint: &mut dyn Endpoint,
        now: Duration,
    ) -> Result<(), Fault> {
        if self.has_more {
            return Ok(());
        }
        let mut completions = std::mem::take(&mut self.completions);
        endpoint.watch(self.awaits_completions(), &mut completions);
        self.has_more = !completions.is_empty();
        self.complete_all(endpoint, completions, now)
    }

    /// When to call [`Exchange::advance`] again if no event comes before: `now` or later. `None` if
    /// there is no such time.
    pub(crate) fn next_at(&self, now: Duration) -> Option<Duration> {
        if self.has_more {
            return Some(now);
        }
        let stall_at = self.sender.stall_at(now);
        let reader = self.reader.as_ref();
        let read_at = reader.and_then(|reader| reader.next_at(&self.sender, &self.receiver, now));
        // A queue pair can stall only while it has requests that did not complete.
        let crawls = self.crawls.iter().flatten();
        let crawls = crawls.filter(|_| stall_at.is_some());
        let look_at = crawls.map(|crawl| crawl.due_at().max(now)).min();
        let growth = self.growth.as_ref();
        let ring_at = growth.and_then(|growth| growth.next_at(now));
        let times = [
            self.sender.next_at(now),
            read_at,
            stall_at,
            look_at,
            ring_at,
        ];
        times.into_iter().flatten().min()
    }

    /// How long before [`Exchange::next_at`] the caller must be awake, if it must: a sleep would end too
    /// late for the pacer.
    pub(crate) fn spin_time(&self) -> Option<Duration> {
        let reader = self.reader.as_ref().map(Reader::spin_time);
        let times = [Some(self.sender.spin_time()), reader];
        times
            .into_iter()
            .flatten()
            .max()
            .filter(|time| !time.is_zero())
    }

    /// Whether [`Exchange::advance`] could do more at once.
    #[cfg(any(test, feature = "sim"))]
    pub(crate) fn has_more(&self) -> bool {
        self.has_more
    }

    /// See [`Sender::awaits_completions`]. In `mode=get`, data has arrived when the READ completes.
    pub(crate) fn awaits_completions(&self) -> bool {
        let reader = self.reader.as_ref();
        reader.is_some_and(|reader| reader.pieces() > 0) || self.sender.awaits_completions()
    }

    /// Posts requests up to a bound. Returns their bytes; a request without bytes counts as one.
    fn post_some(&mut self, endpoint: &mut dyn Endpoint, now: Duration) -> Result<usize, Fault> {
        let mut posted = 0;
        while posted < POSTED_BYTES
            && let Some(post) = self.sender.next(now)
        {
            posted += post.request.work.bytes();
            Self::post(endpoint, post.queue_pair, post.request)?;
        }
        while posted < POSTED_BYTES
            && let Some(reader) = &mut self.reader
            && let Some((queue_pair, request)) = reader.next(&mut self.sender, &self.receiver, now)
        {
            posted += request.work.bytes();
            Self::post(endpoint, queue_pair, request)?;
        }
        if posted > 0 {
            endpoint.ring_doorbell();
        }
        Ok(posted)
    }

    /// Returns credit if it is due.
    fn return_credit(&mut self, endpoint: &mut dyn Endpoint, now: Duration) -> Result<(), Fault> {
        if !self.receiver.owes_credit() {
            return Ok(());
        }
        let Some(queue_pair) = self.sender.reserve(now) else {
            return Ok(());
        };
        for (region, place) in self.receiver.freed() {
            endpoint.expect_anew(region, place);
        }
        let work = Work::Send(self.receiver.credit().encode());
        self.meter.credits.add_one();
        Self::post(endpoint, queue_pair, Request { id: 0, work })?;
        endpoint.ring_doorbell();
        self.work(endpoint, now)
    }

    /// Closes a queue pair in both directions. The peer is notified and closes it as well.
    pub(crate) fn close(&mut self, endpoint: &mut dyn Endpoint, queue_pair: usize) {
        if endpoint.close(queue_pair) {
            self.lose(endpoint, queue_pair, Loss::Reset);
        }
    }

    /// The counters, and the state of the rings at the last call of [`Exchange::advance`].
    pub(crate) fn meter(&self) -> &Arc<Meter> {
        &self.meter
    }

    /// Whether every queue pair is lost for good.
    pub(crate) fn is_over(&self) -> bool {
        self.queue_pairs.iter().all(|&state| state == State::Gone)
    }

    /// Why a queue pair was lost most recently.
    pub(crate) fn loss(&self) -> Option<&Loss> {
        self.loss.as_ref()
    }

    /// Gives up queue pairs on which no request completes. A device may retransmit for ever messages
    /// that the path drops.
    fn give_up_stalled(&mut self, endpoint: &mut dyn Endpoint, now: Duration) {
        let mut crawls_since = [None; MAX_RAILS];
        for (rail, since) in (0..self.crawls.len()).zip(&mut crawls_since) {
            *since = self.crawls_since(rail, endpoint, now);
        }
        for queue_pair in 0..self.queue_pairs.len() {
            let busy_since = self.sender.busy_since(queue_pair);
            let rail = rail_of(queue_pair, self.crawls.len());
            let since = crawls_since[rail];
            let crawls = busy_since.is_some_and(|busy| since.is_some_and(|at| busy <= at));
            let stalls = crawls || self.sender.has_stalled(queue_pair, now);
            if stalls && endpoint.close(queue_pair) {
                self.meter.stalls.add_one();
                let what = if crawls {
                    self.crawls[rail].iter_mut().for_each(Crawl::forget);
                    "the device repeated more than arrived"
                } else {
                    "nothing completed for too long"
                };
                let reason = format!(
                    "{what} (option stall): does the path drop messages that are longer than its burst, or come faster \
                     than its rate (options message, rate)?"
                );
                self.lose(endpoint, queue_pair, Loss::Failed(reason));
            }
        }
    }

    /// Samples the counters of a rail's device if that is due and it counts. Returns the time since which the channel
    /// crawls there, if it does.
    fn crawls_since(
        &mut self,
        rail: usize,
        endpoint: &dyn Endpoint,
        now: Duration,
    ) -> Option<Duration> {
        let rails = self.crawls.len() as u64;
        let crawl = self.crawls[rail].as_mut()?;
        if now < crawl.due_at() {
            return None;
        }
        let Some(repeats) = endpoint.repeats(rail) else {
            self.crawls[rail] = None;
            return None;
        };
        let (under_way, arrived) = self.sender.delivery(rail);
        let sample = Sample {
            at: now,
            repeats,
            arrived: arrived + self.receiver.consumed() / rails,
        };
        crawl.look(sample, under_way, self.sender.message_bytes())
    }

    /// Lets a provider without a device carry out posted requests. The loss of a queue pair is reported
    /// by the next poll.
    fn work(&mut self, endpoint: &mut dyn Endpoint, now: Duration) -> Result<(), Fault> {
        if endpoint.limits().needs_polling {
            self.poll(endpoint, now)?;
        }
        Ok(())
    }

    fn poll(&mut self, endpoint: &mut dyn Endpoint, now: Duration) -> Result<(), Fault> {
        if self.queue_pairs.len() == 1 {
            // WRITEs over one queue pair arrive in the order of the stream, so the window holds no
            // data yet. In `mode=get` the peer does not write.
            let (region, parts) = self.receiver.window();
            endpoint.spare(region, parts);
        }
        let mut completions = std::mem::take(&mut self.completions);
        endpoint.poll(&mut completions);
        self.complete_all(endpoint, completions, now)
    }

    fn post(endpoint: &mut dyn Endpoint, queue_pair: usize, request: Request) -> Result<(), Fault> {
        match endpoint.post(queue_pair, request) {
            // The next poll reports its loss.
            Ok(()) | Err(PostError::Lost) => Ok(()),
            Err(error @ PostError::Full) => Err(Fault::Post(error)),
        }
    }
}
