//! MODE E: blocks with their offset, over any number of channels (GFD.20 3.4).

use std::mem;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use gridhaul_protocol::block::{Descriptor, HEADER_BYTES, Header};
use gridhaul_stack::{Body, Flow, Operation, SocketOptions};

use super::dispenser::Dispenser;
use super::file_part::FilePart;
use super::portion::Portion;
use super::text::Text;
use crate::channels::{DataChannel, DataChannels, DataPort};
use crate::context::Context;
use crate::error::{SequenceError, TransferError};
use crate::node::Plan;
use crate::sync::lock;
use crate::workers::{WorkerGroup, WorkerPermit};

pub(super) fn send_file(
    context: &Context,
    plan: &Plan,
    part: FilePart,
    channels: &mut DataChannels,
) -> Result<(), TransferError> {
    let dispenser = Dispenser::of_plan(plan, part.length, channels.stripes());
    send(context, plan, Payload::File { part, dispenser }, channels)
}

pub(super) fn send_text(
    context: &Context,
    plan: &Plan,
    text: Box<dyn Text>,
    channels: &mut DataChannels,
) -> Result<(), TransferError> {
    send(context, plan, Payload::Text(Mutex::new(text)), channels)
}

/// The data that a transfer sends.
enum Payload {
    File {
        part: FilePart,
        dispenser: Dispenser,
    },
    /// Produced in order, and therefore sent by one worker.
    Text(Mutex<Box<dyn Text>>),
}

/// The state that all workers of a sending transfer share.
struct Sending {
    context: Context,
    payload: Payload,
    /// The number of channels of each stripe, which is the number of EODs in its EOF.
    channels: Vec<usize>,
    /// The number of channels of the whole transfer, if all nodes have as many for a stripe.
    all_channels: usize,
    /// An earlier transfer left the channels open.
    reused: bool,
    /// The channels of finished workers, by stripe.
    done: Mutex<Vec<Vec<DataChannel>>>,
}

fn send(
    context: &Context,
    plan: &Plan,
    payload: Payload,
    channels: &mut DataChannels,
) -> Result<(), TransferError> {
    let stripes = channels.stripes();
    let reused = channels.reused();
    let (_permits, per_stripe) = if reused {
        let per_stripe = channels.kept.iter().map(Vec::len).collect::<Vec<_>>();
        let permit = context.permit(&context.resources.senders, per_stripe.iter().sum())?;
        (vec![permit], per_stripe)
    } else {
        permits(context, stripes, usize::from(plan.parallelism))?
    };
    let mut all_channels = per_stripe.iter().sum();
    if let Some(share) = &plan.share {
        all_channels = all_channels * share.total / share.stripes.len().max(1);
    }
    let sending = Arc::new(Sending {
        context: context.clone(),
        payload,
        all_channels,
        channels: per_stripe,
        reused,
        done: Mutex::new((0..stripes).map(|_| Vec::new()).collect()),
    });
    let workers = context.workers();
    let sent = if reused {
        let kept = mem::take(&mut channels.kept);
        serve_kept(&sending, kept, &workers)
    } else {
        connect_all(&sending, &channels.port, &workers)
    };
    if let Err(error) = sent {
        context.running.fail(error);
    }
    workers.join();
    channels.kept = mem::take(&mut *lock(&sending.done));
    Ok(())
}

/// Takes permits for one channel per stripe, waiting if necessary, and for further ones as far as they are free.
fn permits(
    context: &Context,
    stripes: usize,
    parallelism: usize,
) -> Result<(Vec<WorkerPermit>, Vec<usize>), TransferError> {
    let needed = context.permit(&context.resources.senders, stripes)?;
    let more = context
        .resources
        .senders
        .take_free(&context.account.source, stripes * (parallelism.max(1) - 1));
    let per_stripe = 1 + more.count() / stripes;
    Ok((vec![needed, more], vec![per_stripe; stripes]))
}

/// Starts a worker for each channel that an earlier transfer left open; the first one runs on the calling thread.
fn serve_kept(
    sending: &Arc<Sending>,
    kept: Vec<Vec<DataChannel>>,
    workers: &WorkerGroup,
) -> Result<(), TransferError> {
    if !sending.is_small() {
        let running = &sending.context.running;
        running.report_start(true);
    }
    let mut channels = kept.into_iter().enumerate().flat_map(|(stripe, channels)| {
        let indexed = channels.into_iter().enumerate();
        indexed.map(move |(index, channel)| (stripe, index, channel))
    });
    let first = channels.next();
    for (stripe, index, channel) in channels {
        let sending = sending.clone();
        workers.spawn(move || sending.serve(stripe, index, channel))?;
    }
    match first {
        Some((stripe, index, channel)) => sending.serve(stripe, index, channel),
        None => Ok(()),
    }
}

/// Starts a worker for each new channel; the first one runs on the calling thread.
fn connect_all(
    sending: &Arc<Sending>,
    port: &DataPort,
    workers: &WorkerGroup,
) -> Result<(), TransferError> {
    let DataPort::Active {
        stack,
        peers,
        sockets,
    } = port
    else {
        return Err(SequenceError::SenderMustConnect.into());
    };
    let connect = |stripe: usize| {
        let (sending, stack, peer) = (sending.clone(), stack.clone(), peers[stripe]);
        let sockets = SocketOptions {
            flow: Flow::Out,
            channels: sending.channels[stripe],
            ..*sockets
        };
        move || -> Result<DataChannel, TransferError> {
            let channel = stack.connect(peer, &sockets, &sending.context.timed_operation())?;
            Ok(DataChannel::new(channel))
        }
    };
    // The reply is 150 or an error depending on the first connection; the others are opened in parallel.
    let first = connect(0)()?;
    let running = &sending.context.running;
    running.report_start(false);
    for stripe in 0..peers.len() {
        for index in usize::from(stripe == 0)..sending.channels[stripe] {
            let (sending, connect) = (sending.clone(), connect(stripe));
            workers.spawn(move || sending.serve(stripe, index, connect()?))?;
        }
    }
    sending.serve(0, 0, first)
}

impl Sending {
    /// Whether the file is sent with one call on one channel. On a reused channel the start is then
    /// reported together with the end, so that the session sends both replies with one write.
    fn is_small(&self) -> bool {
        let buffer_bytes = self.context.resources.buffers.buffer_bytes();
        match &self.payload {
            Payload::File { part, .. } => self.channels == [1] && part.fits(buffer_bytes),
            Payload::Text(_) => false,
        }
    }

    /// Sends the blocks and the end of data of a channel.
    fn serve(
        &self,
        stripe: usize,
        index: usize,
        mut channel: DataChannel,
    ) -> Result<(), TransferError> {
        let running = &self.context.running;
        let used = running.count_channel(stripe, &*channel.channel);
        // The session detects stalls only after the start.
        let starts_late = self.reused && self.is_small();
        if let Payload::File { part, .. } = &self.payload
            && self.is_small()
        {
            let paid = self.context.pay(part.length);
            paid.inspect_err(|_| channel.channel.abort())?;
        }
        let operation = if starts_late {
            self.context.timed_operation()
        } else {
            running.operation()
        };
        let end = self.end_of_data(stripe, index);
        let sent = self.send_share(stripe, index, &mut channel, &used.moved, end, &operation);
        running.note_use(&used, &*channel.channel);
        if starts_late {
            running.report_start(true);
        }
        sent.inspect_err(|_| channel.channel.abort())?;
        lock(&self.done)[stripe].push(channel);
        Ok(())
    }

    fn send_share(
        &self,
        stripe: usize,
        index: usize,
        channel: &mut DataChannel,
        moved: &AtomicU64,
        end: [u8; HEADER_BYTES],
        operation: &Operation<'_>,
    ) -> Result<(), TransferError> {
        match &self.payload {
            Payload::File { part, dispenser } => {
                let mut buffer = self.context.buffer()?;
                if self.is_small() {
                    let whole = part.read_whole(&mut buffer, &end)?;
                    channel.channel.send(&[], Body::Memory(whole), operation)?;
                    moved.fetch_add(part.length, Ordering::Release);
                    return Ok(());
                }
                let mut portion = self.portion(stripe);
                let mut largest = 0;
                while let Some(piece) = dispenser.next(stripe, &portion) {
                    let missing = part.restart.missing_in(piece.clone());
                    let payload = missing.map(|block| block.end - block.start).sum();
                    self.context.pay(payload)?;
                    let began = Instant::now();
                    for block in part.restart.missing_in(piece) {
                        largest = largest.max(block.end - block.start);
                        part.send_block(
                            block,
                            &mut *channel.channel,
                            &mut buffer,
                            moved,
                            operation,
                        )?;
                    }
                    portion.adapt(began.elapsed());
                }
                self.context.running.note_block(largest);
            }
            Payload::Text(text) if stripe == 0 && index == 0 => {
                self.send_text(&mut **lock(text), channel, moved, operation)?;
            }
            Payload::Text(_) => {}
        }
        channel.channel.send(&end, Body::Memory(&[]), operation)?;
        Ok(())
    }

    /// The block size of a channel of a stripe: at least the size of a buffer.
    fn portion(&self, stripe: usize) -> Portion {
        let least_bytes = self.context.resources.buffers.buffer_bytes() as u64;
        let portion = Portion::new(least_bytes, self.channels[stripe], self.all_channels);
        portion.at_most(self.context.piece_bytes(u64::MAX))
    }

    fn send_text(
        &self,
        text: &mut dyn Text,
        channel: &mut DataChannel,
        moved: &AtomicU64,
        operation: &Operation<'_>,
    ) -> Result<(), TransferError> {
        let mut piece = Vec::new();
        let (mut offset, mut largest) = (0, 0);
        while text.next_piece(&mut piece)? {
            let length = piece.len() as u64;
            let header = Header::data(offset, length).encode();
            self.context.pay(length)?;
            channel
                .channel
                .send(&header, Body::Memory(&piece), operation)?;
            moved.fetch_add(length, Ordering::Release);
            offset += length;
            largest = largest.max(length);
        }
        self.context.running.note_block(largest);
        Ok(())
    }

    /// GFD.20 3.4: one channel of each stripe sends EOF with the number of EODs to expect; each channel
    /// sends EOD.
    fn end_of_data(&self, stripe: usize, index: usize) -> [u8; HEADER_BYTES] {
        let header = if index == 0 {
            Header {
                descriptor: Descriptor::EOF | Descriptor::EOD,
                count: 0,
                offset: self.channels[stripe] as u64,
            }
        } else {
            Header {
                descriptor: Descriptor::EOD,
                count: 0,
                offset: 0,
            }
        };
        header.encode()
    }
}
