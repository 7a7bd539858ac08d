//! MODE E: blocks with their place in the file, over any number of channels (GFD.20 3.4).

use std::ops::Range;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use gridhaul_protocol::block::{Descriptor, HEADER_BYTES, Header};
use gridhaul_protocol::ranges::RangeSet;
use gridhaul_stack::{Body, FileRange, Operation};
use gridhaul_storage::{OpenedFile, StorageError};
use rustix::io::Errno;

use super::extents::Extents;
use super::text::Text;
use crate::buffers::Buffer;
use crate::dispenser::Dispenser;
use crate::error::{SequenceError, TransferError};
use crate::local::{Context, DataChannel, DataChannels, DataPort};
use crate::node::{Event, Plan};
use crate::portion::Portion;
use crate::sync::lock;
use crate::workers::{WorkerGroup, WorkerPermit};

/// The part of a file that is sent, and what the peer has of it.
#[derive(Debug)]
pub(crate) struct FilePart {
    pub(super) file: OpenedFile,
    pub(super) offset: u64,
    pub(super) length: u64,
    pub(super) restart: RangeSet,
    /// If holes are not read.
    pub(super) extents: Option<Extents>,
}

pub(super) fn send_file(
    context: &Context,
    plan: &Plan,
    part: FilePart,
    channels: &mut DataChannels,
) -> Result<(), TransferError> {
    let dispenser = Dispenser::new(part.length, channels.stripes(), plan.layout);
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

/// What the workers of a transfer send.
enum Payload {
    File {
        part: FilePart,
        dispenser: Dispenser,
    },
    /// Made in order, and so sent by one worker.
    Text(Mutex<Box<dyn Text>>),
}

/// What all workers of a transfer share.
struct Sending {
    context: Context,
    payload: Payload,
    /// How many channels each stripe has: the number of EODs that its EOF announces.
    channels: Vec<usize>,
    /// The channels are those of an earlier transfer.
    reused: bool,
    /// The channels of workers that are done, by stripe.
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
        (
            vec![context.permit(&context.shared.senders, per_stripe.iter().sum())?],
            per_stripe,
        )
    } else {
        permits(context, stripes, usize::from(plan.parallelism))?
    };
    let sending = Arc::new(Sending {
        context: context.clone(),
        payload,
        channels: per_stripe,
        reused,
        done: Mutex::new((0..stripes).map(|_| Vec::new()).collect()),
    });
    let workers = WorkerGroup::new(&context.shared, &context.running);
    let sent = start(&sending, channels, &workers);
    if let Err(error) = sent {
        context.running.fail(error);
    }
    workers.join();
    channels.kept = std::mem::take(&mut *lock(&sending.done));
    Ok(())
}

/// One channel for each stripe is a must and waited for; more are taken as far as they are free.
fn permits(
    context: &Context,
    stripes: usize,
    parallelism: usize,
) -> Result<(Vec<WorkerPermit>, Vec<usize>), TransferError> {
    let needed = context.permit(&context.shared.senders, stripes)?;
    let more = context
        .shared
        .senders
        .take_free(&context.account.source, stripes * (parallelism.max(1) - 1));
    let per_stripe = 1 + more.count() / stripes;
    Ok((vec![needed, more], vec![per_stripe; stripes]))
}

/// Starts a worker for each channel; the first one runs here.
fn start(
    sending: &Arc<Sending>,
    channels: &mut DataChannels,
    workers: &WorkerGroup,
) -> Result<(), TransferError> {
    let running = &sending.context.running;
    if sending.reused {
        if !sending.is_small() {
            running.tell(Event::Started { reused: true });
        }
        let mut kept = std::mem::take(&mut channels.kept)
            .into_iter()
            .enumerate()
            .flat_map(|(stripe, channels)| {
                channels
                    .into_iter()
                    .enumerate()
                    .map(move |(index, channel)| (stripe, index, channel))
            });
        let first = kept.next();
        for (stripe, index, channel) in kept {
            let sending = sending.clone();
            workers.spawn(move || sending.serve(stripe, index, channel))?;
        }
        return first.map_or(Ok(()), |(stripe, index, channel)| {
            sending.serve(stripe, index, channel)
        });
    }
    let DataPort::Active {
        stack,
        peers,
        sockets,
    } = &channels.port
    else {
        return Err(SequenceError::SenderMustConnect.into());
    };
    let connect = |stripe: usize| {
        let (sending, stack, peer, sockets) =
            (sending.clone(), stack.clone(), peers[stripe], *sockets);
        move || -> Result<DataChannel, TransferError> {
            let channel = stack.connect(peer, &sockets, &sending.context.connecting())?;
            Ok(DataChannel::new(channel))
        }
    };
    // The first connection decides between 150 and an error; the others are made side by side.
    let first = connect(0)()?;
    running.tell(Event::Started { reused: false });
    for stripe in 0..peers.len() {
        for index in usize::from(stripe == 0)..sending.channels[stripe] {
            let (sending, connect) = (sending.clone(), connect(stripe));
            workers.spawn(move || sending.serve(stripe, index, connect()?))?;
        }
    }
    sending.serve(0, 0, first)
}

impl Sending {
    /// Whether all goes out at once, on one channel. On a channel that is there already the session
    /// then hears of the start together with the end, and answers both with one write.
    fn is_small(&self) -> bool {
        let buffer_bytes = self.context.shared.buffers.buffer_bytes();
        match &self.payload {
            Payload::File { part, .. } => self.channels == [1] && part.fits(buffer_bytes),
            Payload::Text(_) => false,
        }
    }

    /// Sends a channel's share and its end of data.
    fn serve(
        &self,
        stripe: usize,
        index: usize,
        mut channel: DataChannel,
    ) -> Result<(), TransferError> {
        let running = &self.context.running;
        let used = running.count_channel(stripe, &*channel.channel);
        // Before it has heard of the start, the session does not watch for a stall.
        let starts_late = self.reused && self.is_small();
        let operation = if starts_late {
            self.context.connecting()
        } else {
            running.operation()
        };
        let end = self.end_of_data(stripe, index);
        let sent = self.send_share(stripe, index, &mut channel, &used.moved, end, &operation);
        running.note_use(&used, &*channel.channel);
        if starts_late {
            running.tell(Event::Started { reused: true });
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
                let mut buffer = self
                    .context
                    .shared
                    .buffers
                    .take(&self.context.account.source, &self.context.running.cancel)?;
                if self.is_small() {
                    let whole = part.read_whole(&mut buffer, &end)?;
                    channel.channel.send(&[], Body::Memory(whole), operation)?;
                    moved.fetch_add(part.length, Ordering::Release);
                    return Ok(());
                }
                let mut portion = self.portion(stripe);
                let mut largest = 0;
                while let Some(piece) = dispenser.next(stripe, &portion) {
                    let began = Instant::now();
                    for block in part.restart.missing_in(piece) {
                        largest = largest.max(block.end - block.start);
                        part.send_block(block, channel, &mut buffer, moved, operation)?;
                    }
                    portion.learn(began.elapsed());
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

    /// How much a channel of a stripe sends at a time; a buffer's worth at least.
    fn portion(&self, stripe: usize) -> Portion {
        let least_bytes = self.context.shared.buffers.buffer_bytes() as u64;
        let in_all = self.channels.iter().sum();
        Portion::new(least_bytes, self.channels[stripe], in_all)
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

    /// GFD.20 3.4: one channel of each stripe says EOF, with the number of EODs to expect; each channel
    /// says EOD.
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

impl FilePart {
    /// The bytes that go over the wire if all of it goes out at once, on one channel.
    pub(crate) fn small_bytes(&self, buffer_bytes: usize) -> Option<usize> {
        let payload = usize::try_from(self.length).ok()?;
        self.fits(buffer_bytes).then(|| payload + 2 * HEADER_BYTES)
    }

    /// Whether all of it goes into one buffer, with a header before and an end of data behind.
    fn fits(&self, buffer_bytes: usize) -> bool {
        self.restart.is_empty() && self.length + 2 * HEADER_BYTES as u64 <= buffer_bytes as u64
    }

    /// A small file as it goes over the wire: one block and the end of data, in one piece. Thousands of
    /// small files are sent this way, each with one system call.
    fn read_whole<'a>(
        &self,
        buffer: &'a mut Buffer,
        end: &[u8; HEADER_BYTES],
    ) -> Result<&'a [u8], TransferError> {
        // `fits` has compared the length with the size of a buffer.
        let length = usize::try_from(self.length).unwrap_or(0);
        let mut at = 0;
        if length > 0 {
            buffer[..HEADER_BYTES].copy_from_slice(&Header::data(0, self.length).encode());
            self.read_exact(&mut buffer[HEADER_BYTES..HEADER_BYTES + length])?;
            at = HEADER_BYTES + length;
        }
        buffer[at..at + HEADER_BYTES].copy_from_slice(end);
        Ok(&buffer[..at + HEADER_BYTES])
    }

    fn send_block(
        &self,
        block: Range<u64>,
        channel: &mut DataChannel,
        buffer: &mut Buffer,
        moved: &AtomicU64,
        operation: &Operation<'_>,
    ) -> Result<(), TransferError> {
        let length = block.end - block.start;
        let header = Header::data(block.start, length).encode();
        let offset = self.offset + block.start;
        let range = FileRange {
            direct: self.file.direct(),
            ..FileRange::new(self.file.as_fd(), offset, length, buffer, moved)
        };
        let channel = &mut *channel.channel;
        match &self.extents {
            Some(extents) => extents.send(channel, &header, range, operation)?,
            None => channel.send(&header, Body::File(range), operation)?,
        }
        Ok(())
    }

    fn read_exact(&self, mut bytes: &mut [u8]) -> Result<(), TransferError> {
        let mut offset = self.offset;
        while !bytes.is_empty() {
            match rustix::io::pread(self.file.as_fd(), &mut *bytes, offset) {
                Ok(0) => {
                    return Err(gridhaul_stack::ChannelError::FileTooShort { end: offset }.into());
                }
                Ok(count) => {
                    bytes = &mut bytes[count..];
                    offset += count as u64;
                }
                Err(Errno::INTR) => {}
                Err(errno) => return Err(StorageError::new("read", errno).into()),
            }
        }
        Ok(())
    }
}
