//! MODE E: any number of channels, on any number of stripes (GFD.20 3.4).

use std::sync::{Arc, Mutex};
use std::time::Instant;

use gridhaul_protocol::ranges::RangeSet;
use gridhaul_stack::{ChannelError, Incoming, StackListener};

use super::blocks::{Blocks, ChannelEnd};
use super::gatherer::Gatherer;
use super::part::Part;
use crate::channels::{DataChannel, DataChannels, DataPort, Handshakes, Permit, accept};
use crate::context::Context;
use crate::error::{SequenceError, TransferError};
use crate::sync::lock;
use crate::workers::WorkerGroup;

/// Receives until every stripe has its EOF and all EODs; returns the received ranges. If a
/// worker fails, the transfer fails, but this call returns no error.
pub(super) fn receive(
    context: &Context,
    part: &Arc<Part>,
    gatherer: Option<Gatherer>,
    channels: &mut DataChannels,
) -> Result<RangeSet, TransferError> {
    let reused = channels.reused();
    let kept = std::mem::take(&mut channels.kept);
    let DataPort::Passive(listeners) = &mut channels.port else {
        return Err(SequenceError::ReceiverMustListen.into());
    };
    let receiving = Arc::new(Receiving {
        context: context.clone(),
        part: part.clone(),
        gatherer,
        workers: context.workers(),
        handshakes: listeners.iter().map(|_| Handshakes::new(context)).collect(),
        queue: Mutex::default(),
        served: listeners
            .iter()
            .map(|_| Mutex::new(Served::new()))
            .collect(),
    });
    let result = if reused {
        receiving.serve_kept(kept)
    } else {
        Ok(())
    };
    let result = result.and_then(|()| receiving.accept_all(listeners));
    if let Err(error) = result {
        context.running.fail(error);
    }
    receiving.workers.join();
    if let Some(gatherer) = &receiving.gatherer
        && let Err(error) = gatherer.finish()
    {
        context.running.fail(error);
    }
    channels.kept = receiving
        .served
        .iter()
        .map(|served| std::mem::take(&mut lock(served).done))
        .collect();
    Ok(context.running.ledger.arrived())
}

/// The state that all workers of a receiving transfer share.
struct Receiving {
    context: Context,
    part: Arc<Part>,
    gatherer: Option<Gatherer>,
    workers: WorkerGroup,
    /// The handshakes of each stripe's listener.
    handshakes: Vec<Handshakes>,
    /// Held by the channel that waits for its worker permit.
    queue: Mutex<()>,
    served: Vec<Mutex<Served>>,
}

/// The channels of one stripe.
struct Served {
    /// Channels that are being received from.
    active: usize,
    /// When the last active channel ended.
    idle_since: Instant,
    /// Channels that have sent EOD and are open for the next transfer.
    done: Vec<DataChannel>,
}

impl Served {
    fn new() -> Self {
        Self {
            active: 0,
            idle_since: Instant::now(),
            done: Vec::new(),
        }
    }
}

impl Receiving {
    /// Receives from the channels that an earlier transfer left open, from the first one on the calling thread.
    fn serve_kept(self: &Arc<Self>, kept: Vec<Vec<DataChannel>>) -> Result<(), TransferError> {
        self.context.running.report_start(true);
        let count = kept.iter().map(Vec::len).sum();
        let _permit = self
            .context
            .permit(&self.context.resources.receivers, count)?;
        let mut channels = kept
            .into_iter()
            .enumerate()
            .flat_map(|(stripe, kept)| kept.into_iter().map(move |channel| (stripe, channel)));
        let first = channels.next();
        for (stripe, channel) in channels {
            let receiving = self.clone();
            self.workers
                .spawn(move || receiving.serve(stripe, channel))?;
        }
        match first {
            Some((stripe, channel)) => self.serve(stripe, channel),
            None => Ok(()),
        }
    }

    /// Accepts the channels of all stripes, those of the first one on the calling thread.
    fn accept_all(
        self: &Arc<Self>,
        listeners: &mut Vec<StackListener>,
    ) -> Result<(), TransferError> {
        if self.context.running.ledger.complete() {
            return Ok(());
        }
        let returned = Arc::new(Mutex::new(Vec::new()));
        let mut taken = std::mem::take(listeners).into_iter().enumerate();
        let first = taken.next();
        let mut result = Ok(());
        for (stripe, mut listener) in taken {
            let (receiving, returned) = (self.clone(), returned.clone());
            let acceptor = move || {
                let result = receiving.accept(stripe, &mut listener);
                lock(&returned).push((stripe, listener));
                result
            };
            result = result.and_then(|()| self.workers.spawn(acceptor));
        }
        if let Some((stripe, mut listener)) = first {
            result = result.and_then(|()| self.accept(stripe, &mut listener));
            if let Err(error) = result {
                self.context.running.fail(error);
            }
            lock(&returned).push((stripe, listener));
        }
        self.workers.join();
        let mut returned = std::mem::take(&mut *lock(&returned));
        returned.sort_by_key(|(stripe, _)| *stripe);
        listeners.extend(returned.into_iter().map(|(_, listener)| listener));
        Ok(())
    }

    /// Accepts a stripe's channels until the transfer is complete.
    fn accept(
        self: &Arc<Self>,
        stripe: usize,
        listener: &mut StackListener,
    ) -> Result<(), TransferError> {
        let running = &self.context.running;
        let timeout = self.context.resources.data_timeout;
        let mut deadline = Instant::now() + timeout;
        let handshakes = &self.handshakes[stripe];
        loop {
            let accepted = handshakes.slot().and_then(|slot| {
                let incoming = accept(&self.context, listener, &running.accepting, deadline)?;
                Ok(incoming.map(|incoming| (slot, incoming)))
            });
            match accepted {
                Ok(Some((slot, incoming))) => {
                    let receiving = self.clone();
                    self.workers
                        .spawn(move || receiving.establish(stripe, incoming, slot))?;
                }
                Ok(None) => {
                    // Connections whose handshakes are in progress came in time.
                    match handshakes.settle() {
                        Err(ChannelError::Cancelled) => continue,
                        settled => settled?,
                    }
                    let served = lock(&self.served[stripe]);
                    let idle_deadline = served.idle_since + timeout;
                    if served.active > 0 {
                        deadline = Instant::now() + timeout;
                    } else if idle_deadline > Instant::now() {
                        deadline = idle_deadline;
                    } else if running.has_started() {
                        return Err(running.missing_ends(stripe, timeout).into());
                    } else {
                        return Err(handshakes.none_accepted(timeout));
                    }
                }
                Err(ChannelError::Cancelled) => return self.accept_late(stripe, listener),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Serves connections that are still in the accept queue. There are more of them than EOF announced, and
    /// counting their EODs detects that; otherwise their data would be lost without an error.
    fn accept_late(
        self: &Arc<Self>,
        stripe: usize,
        listener: &mut StackListener,
    ) -> Result<(), TransferError> {
        let running = &self.context.running;
        while !running.has_failed()
            && let Some(incoming) =
                accept(&self.context, listener, &running.cancel, Instant::now())?
        {
            let receiving = self.clone();
            self.workers.spawn(move || {
                let channel = receiving.handshakes[stripe].establish(incoming)?;
                channel.map_or(Ok(()), |channel| {
                    receiving.serve(stripe, DataChannel::new(channel))
                })
            })?;
        }
        Ok(())
    }

    /// Receives from a connection after its handshake. It keeps its slot until it has a worker permit,
    /// which limits the number of waiting threads.
    fn establish(
        &self,
        stripe: usize,
        incoming: Incoming,
        slot: Permit,
    ) -> Result<(), TransferError> {
        let Some(channel) = self.handshakes[stripe].establish(incoming)? else {
            return Ok(());
        };
        let permit = {
            // Only one channel of a transfer waits in the queue for permits at a time.
            let _queue = lock(&self.queue);
            self.context.permit(&self.context.resources.receivers, 1)
        };
        let _permit = permit?;
        // GFD.20 3.4, and observed: 150 comes with the first data connection.
        self.context.running.report_start(false);
        lock(&self.served[stripe]).active += 1;
        drop(slot);
        self.receive_and_count(stripe, DataChannel::new(channel))
    }

    fn serve(&self, stripe: usize, channel: DataChannel) -> Result<(), TransferError> {
        lock(&self.served[stripe]).active += 1;
        self.receive_and_count(stripe, channel)
    }

    fn receive_and_count(&self, stripe: usize, channel: DataChannel) -> Result<(), TransferError> {
        let result = self.receive_channel(stripe, channel);
        let mut served = lock(&self.served[stripe]);
        served.active -= 1;
        served.idle_since = Instant::now();
        drop(served);
        result
    }

    /// Receives a channel's blocks up to its EOD, and keeps the channel if it stays open.
    fn receive_channel(
        &self,
        stripe: usize,
        mut channel: DataChannel,
    ) -> Result<(), TransferError> {
        let running = &self.context.running;
        let used = running.count_channel(stripe, &*channel.channel);
        let blocks = Blocks::new(
            &self.context,
            &self.part,
            stripe,
            &mut channel,
            &used.moved,
            self.gatherer.as_ref(),
        );
        let received = blocks.receive();
        running.note_use(&used, &*channel.channel);
        match received {
            Ok(ChannelEnd::Open) => lock(&self.served[stripe]).done.push(channel),
            Ok(ChannelEnd::Closed) => {}
            Err(error) => {
                channel.channel.abort();
                return Err(error);
            }
        }
        Ok(())
    }
}
