//! Receives bytes that go to no file, in stream mode.

use std::sync::atomic::Ordering;

use gridhaul_protocol::command::TransferMode;
use gridhaul_stack::Received;

use super::limit::Limit;
use super::stream::{answer_end, receive};
use crate::channels::{DataChannels, receiving_channel};
use crate::context::Context;
use crate::error::TransferError;
use crate::node::{ByteSink, Plan};

/// Passes the bytes of a stream to `sink`, in their order.
pub(crate) fn bytes(
    context: &Context,
    plan: &Plan,
    sink: &ByteSink,
    channels: &mut DataChannels,
) -> Result<(), TransferError> {
    if plan.mode != TransferMode::Stream {
        let words = "only stream mode keeps the order of the bytes";
        return Err(TransferError::Local(words.to_owned()));
    }
    let running = &context.running;
    let (_permit, mut channel) = receiving_channel(context, &mut channels.port)?;
    let used = running.count_channel(0, &*channel);
    let mut buffer = context.buffer()?;
    let limit = Limit::of(&plan.handling);
    loop {
        let received =
            receive(&mut *channel, &mut buffer, context).inspect_err(|_| channel.abort())?;
        let Received::Bytes(count) = received else {
            running.note_use(&used, &*channel);
            answer_end(&mut *channel, context);
            return Ok(());
        };
        let done = used.moved.load(Ordering::Acquire);
        let bytes = limit.within(done, &buffer[..count.get()]);
        if !bytes.is_empty() {
            (sink.take)(bytes).inspect_err(|_| channel.abort())?;
        }
        limit
            .check(done, count.get() as u64)
            .inspect_err(|_| channel.abort())?;
        used.moved.fetch_add(count.get() as u64, Ordering::Release);
        context
            .pay(count.get() as u64)
            .inspect_err(|_| channel.abort())?;
    }
}
