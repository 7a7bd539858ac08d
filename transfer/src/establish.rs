//! Establishes data channels, for whichever direction needs them.

use std::sync::{Arc, Mutex};
use std::time::Instant;

use gridhaul_stack::{
    AcceptError, Cancel, Channel, ChannelError, ConnectError, Incoming, Operation, StackListener,
};

use crate::error::{SequenceError, TransferError};
use crate::handshakes::Handshakes;
use crate::local::{Context, DataPort};
use crate::node::Event;
use crate::sync::lock;
use crate::workers::{WorkerGroup, WorkerLimit, WorkerPermit};

impl Context {
    /// The one channel of a stream mode transfer, with the permit to serve it.
    pub(crate) fn stream_channel(
        &self,
        port: &mut DataPort,
        permits: &WorkerLimit,
    ) -> Result<(WorkerPermit, Box<dyn Channel>), TransferError> {
        match port {
            DataPort::Active {
                stack,
                peers,
                sockets,
            } => {
                let permit = self.permit(permits, 1)?;
                let peer = *peers.first().ok_or(SequenceError::NoDataPort)?;
                let connection = stack.dial(peer, sockets, &self.connecting())?;
                // FTP clients begin their side of a TLS handshake when they have heard 150 (observed
                // from curl 7.88 and Python 3.11's ftplib).
                self.running.tell(Event::Started { reused: false });
                let channel = connection.establish(&self.connecting());
                Ok((permit, channel.map_err(ConnectError::from)?))
            }
            DataPort::Passive(listeners) => {
                let listener = listeners.first_mut().ok_or(SequenceError::NoDataPort)?;
                // RFC 959 4.2: 150 says that the file is ready and the data connection about to be
                // opened; there are clients that open it only then.
                self.running.tell(Event::Started { reused: false });
                let channel = self.first_channel(listener)?;
                Ok((self.permit(permits, 1)?, channel))
            }
        }
    }

    /// The first connection that proves itself, if its stack asks for a proof.
    fn first_channel(
        &self,
        listener: &mut StackListener,
    ) -> Result<Box<dyn Channel>, TransferError> {
        let timeout = self.shared.config.data_timeout;
        let deadline = Instant::now() + timeout;
        let accepting = &self.running.accepting;
        let handshakes = Arc::new(Handshakes::new(self));
        let winner = Arc::new(Mutex::new(None));
        let workers = WorkerGroup::new(&self.shared, &self.running);
        let accepted = loop {
            let next = handshakes.slot().and_then(|slot| {
                let incoming = self.accept(listener, accepting, deadline)?;
                Ok(incoming.map(|incoming| (slot, incoming)))
            });
            let (slot, incoming) = match next {
                Ok(Some(next)) => next,
                // Too late, or a peer was accepted, or the transfer was cancelled.
                Ok(None) | Err(ChannelError::Cancelled) => break Ok(()),
                Err(error) => break Err(TransferError::from(error)),
            };
            if !incoming.has_handshake() {
                return Ok(incoming.establish(&self.connecting())?);
            }
            let (context, handshakes, winner) = (self.clone(), handshakes.clone(), winner.clone());
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
            None if self.running.failed() => Err(ChannelError::Cancelled.into()),
            None => Err(handshakes.none_accepted(timeout)),
        }
    }

    /// The next connection from a host that may open one; `None` when the deadline has passed. Others
    /// are closed and counted, and disturb nothing.
    pub(crate) fn accept(
        &self,
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
                Ok(incoming) if self.account.admission.admits(incoming.peer().ip()) => {
                    return Ok(Some(incoming));
                }
                Ok(_) | Err(AcceptError::Connection { .. }) => self.running.note_refused(),
                Err(AcceptError::Listener(ChannelError::DeadlineExceeded)) => return Ok(None),
                Err(AcceptError::Listener(error)) => return Err(error),
            }
        }
    }

    /// The permit to run `count` workers; the session is told when that takes time.
    pub(crate) fn permit(
        &self,
        permits: &WorkerLimit,
        count: usize,
    ) -> Result<WorkerPermit, ChannelError> {
        permits.take(
            &self.account.source,
            count,
            &self.running.cancel,
            &|ahead| {
                self.running.tell(Event::Queued { ahead });
            },
        )
    }

    /// The time that a connection and its handshake may take, or a small file that goes out at once.
    pub(crate) fn connecting(&self) -> Operation<'_> {
        Operation {
            deadline: Some(Instant::now() + self.shared.config.data_timeout),
            cancel: &self.running.cancel,
        }
    }
}
