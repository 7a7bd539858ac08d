//! Establishes data channels, for whichever direction needs them.

use std::sync::Arc;
use std::time::Instant;

use gridhaul_stack::{
    AcceptError, Cancel, Channel, ChannelError, Incoming, Operation, StackListener,
};

use crate::local::{Context, DataPort};
use crate::movers::{Permit, Permits};
use crate::node::Event;
use crate::{SequenceError, TransferError};

impl Context {
    /// The one channel of a stream mode transfer, with the permit to serve it.
    pub(crate) fn stream_channel(
        &self,
        port: &mut DataPort,
        permits: &Arc<Permits>,
    ) -> Result<(Permit, Box<dyn Channel>), TransferError> {
        match port {
            DataPort::Active {
                stack,
                peers,
                sockets,
            } => {
                let permit = self.permit(permits, 1)?;
                let peer = *peers.first().ok_or(SequenceError::NoDataPort)?;
                let channel = stack.connect(peer, sockets, &self.connecting())?;
                self.running.tell(Event::Started { reused: false });
                Ok((permit, channel))
            }
            DataPort::Passive(listeners) => {
                let listener = listeners.first_mut().ok_or(SequenceError::NoDataPort)?;
                // RFC 959 4.2: 150 says that the file is ready and the data connection about to be
                // opened; there are clients that open it only then.
                self.running.tell(Event::Started { reused: false });
                let deadline = Instant::now() + self.shared.config.data_timeout;
                let incoming = self
                    .accept(listener, &self.running.cancel, deadline)?
                    .ok_or(TransferError::NoConnection(self.shared.config.data_timeout))?;
                let permit = self.permit(permits, 1)?;
                let channel = incoming.establish(&self.connecting())?;
                Ok((permit, channel))
            }
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

    /// The permit to run `count` movers; the session is told when that takes time.
    pub(crate) fn permit(
        &self,
        permits: &Arc<Permits>,
        count: usize,
    ) -> Result<Permit, ChannelError> {
        permits.take(count, &self.running.cancel, &|ahead| {
            self.running.tell(Event::Queued { ahead });
        })
    }

    /// The time that a connection and its handshake may take, or a small file that goes out at once.
    pub(crate) fn connecting(&self) -> Operation<'_> {
        Operation {
            deadline: Some(Instant::now() + self.shared.config.data_timeout),
            cancel: &self.running.cancel,
        }
    }
}
