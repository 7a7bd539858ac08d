//! Accepts data connections, and sets up the one channel of a stream mode transfer.

use std::sync::{Arc, Mutex};
use std::time::Instant;

use gridhaul_stack::{
    AcceptError, Cancel, Channel, ChannelError, ConnectError, Flow, Incoming, Operation,
    SocketOptions, StackListener,
};

use super::data_channels::DataPort;
use super::handshakes::Handshakes;
use crate::context::Context;
use crate::error::{SequenceError, TransferError};
use crate::sync::lock;
use crate::workers::{WorkerLimit, WorkerPermit};

/// Sets up the one channel over which a stream mode transfer sends, with the permit to serve it.
pub(crate) fn sending_channel(
    context: &Context,
    port: &mut DataPort,
) -> Result<(WorkerPermit, Box<dyn Channel>), TransferError> {
    stream_channel(context, port, &context.resources.senders, Flow::Out)
}

/// Sets up the one channel over which a stream mode transfer receives, with the permit to serve it.
pub(crate) fn receiving_channel(
    context: &Context,
    port: &mut DataPort,
) -> Result<(WorkerPermit, Box<dyn Channel>), TransferError> {
    stream_channel(context, port, &context.resources.receivers, Flow::In)
}

fn stream_channel(
    context: &Context,
    port: &mut DataPort,
    limit: &WorkerLimit,
    flow: Flow,
) -> Result<(WorkerPermit, Box<dyn Channel>), TransferError> {
    match port {
        DataPort::Active {
            stack,
            peers,
            sockets,
        } => {
            let permit = context.permit(limit, 1)?;
            let peer = *peers.first().ok_or(SequenceError::NoDataPort)?;
            let sockets = SocketOptions {
                flow,
                channels: 1,
                ..*sockets
            };
            let connection = stack.dial(peer, &sockets, &context.timed_operation())?;
            // FTP clients begin their side of a TLS handshake after the 150 reply (observed
            // from curl 7.88 and Python 3.11's ftplib).
            context.running.report_start(false);
            let channel = connection.establish(&context.timed_operation());
            Ok((permit, channel.map_err(ConnectError::from)?))
        }
        DataPort::Passive(listeners) => {
            let listener = listeners.first_mut().ok_or(SequenceError::NoDataPort)?;
            // RFC 959 4.2: 150 means that the file is ready and the data connection about to be
            // opened; some clients open it only then.
            context.running.report_start(false);
            let channel = first_channel(context, listener)?;
            Ok((context.permit(limit, 1)?, channel))
        }
    }
}

/// Accepts connections until the first one has completed its handshake, if the stack has one.
fn first_channel(
    context: &Context,
    listener: &mut StackListener,
) -> Result<Box<dyn Channel>, TransferError> {
    let timeout = context.resources.data_timeout;
    let deadline = Instant::now() + timeout;
    let accepting = &context.running.accepting;
    let handshakes = Arc::new(Handshakes::new(context));
    let winner = Arc::new(Mutex::new(None));
    let workers = context.workers();
    let accepted = loop {
        let next = handshakes.slot().and_then(|slot| {
            let incoming = accept(context, listener, accepting, deadline)?;
            Ok(incoming.map(|incoming| (slot, incoming)))
        });
        let (slot, incoming) = match next {
            Ok(Some(next)) => next,
            // The deadline has passed, a peer was accepted, or the transfer was cancelled.
            Ok(None) | Err(ChannelError::Cancelled) => break Ok(()),
            Err(error) => break Err(TransferError::from(error)),
        };
        if !incoming.has_handshake() {
            return Ok(incoming.establish(&context.timed_operation())?);
        }
        let (context, handshakes, winner) = (context.clone(), handshakes.clone(), winner.clone());
        let spawned = workers.spawn(move || {
            let _slot = slot;
            if let Some(channel) = handshakes.establish(incoming)? {
                lock(&winner).get_or_insert(channel);
                context.running.accepting.cancel();
            }
            Ok(())
        });
        if spawned.is_err() {
            accepting.cancel();
            break spawned;
        }
    };
    workers.join();
    accepted?;
    match lock(&winner).take() {
        Some(channel) => Ok(channel),
        None if context.running.has_failed() => Err(ChannelError::Cancelled.into()),
        None => Err(handshakes.none_accepted(timeout)),
    }
}

/// Accepts the next connection from an admitted host; `None` when the deadline has passed. Connections
/// from other hosts are closed and counted.
pub(crate) fn accept(
    context: &Context,
    listener: &mut StackListener,
    cancel: &Cancel,
    deadline: Instant,
) -> Result<Option<Incoming>, ChannelError> {
    let operation = Operation {
        deadline: Some(deadline),
        cancel,
    };
    loop {
        match listener.accept(&operation) {
            Ok(incoming) if context.account.admission.admits(incoming.peer().ip()) => {
                return Ok(Some(incoming));
            }
            Ok(_) | Err(AcceptError::Connection { .. }) => context.running.note_refused(),
            Err(AcceptError::Listener(ChannelError::DeadlineExceeded)) => return Ok(None),
            Err(AcceptError::Listener(error)) => return Err(error),
        }
    }
}
