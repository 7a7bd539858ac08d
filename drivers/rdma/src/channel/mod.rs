//! A channel: its states, and the calls of its user.

mod background;
mod closing;
mod driven;
mod streams;
mod timers;

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;

use gridhaul_stack::{
    Body, Channel, ChannelError, ChannelInfo, FileRange, Operation, Received, Side, SocketOptions,
    Watch,
};
use gridhaul_tcp::TcpChannel;

use self::driven::DrivenChannel;
use self::streams::Streams;
use crate::open::open;
use crate::settings::Settings;

/// A channel over a provider of verbs.
#[derive(Debug)]
pub(crate) struct RdmaChannel {
    peer: SocketAddr,
    state: State,
}

#[derive(Debug)]
enum State {
    /// Connected, before the negotiation.
    New {
        connection: Box<TcpChannel>,
        side: Side,
        settings: Arc<Settings>,
        options: SocketOptions,
    },
    Open(Box<Streams>),
    /// Open, and driven by the background thread until the next call.
    Driven(DrivenChannel),
    /// It failed or was aborted.
    Failed,
}

impl RdmaChannel {
    pub(crate) fn new(
        connection: TcpChannel,
        side: Side,
        settings: Arc<Settings>,
        options: SocketOptions,
    ) -> Self {
        Self {
            peer: connection.peer(),
            state: State::New {
                connection: Box::new(connection),
                side,
                settings,
                options,
            },
        }
    }

    /// Takes the open channel out of the state.
    fn take(&mut self) -> Option<Box<Streams>> {
        match std::mem::replace(&mut self.state, State::Failed) {
            State::Open(streams) => Some(streams),
            State::Driven(driven) => driven.take_back(),
            other => {
                self.state = other;
                None
            }
        }
    }

    /// Runs a call. After an error the channel cannot be used.
    fn run<T>(
        &mut self,
        operation: &Operation<'_>,
        call: impl FnOnce(&mut Streams) -> Result<T, ChannelError>,
    ) -> Result<T, ChannelError> {
        operation.check()?;
        let mut streams = self.take().ok_or(ChannelError::Aborted)?;
        streams.enter();
        let outcome = streams.check().and_then(|()| call(&mut streams));
        if outcome.is_err() {
            streams.fail();
        }
        self.state = if streams.needs_driving() {
            State::Driven(DrivenChannel::new(streams).map_err(ChannelError::Network)?)
        } else {
            State::Open(streams)
        };
        outcome
    }
}

impl Channel for RdmaChannel {
    fn has_handshake(&self) -> bool {
        true
    }

    fn establish(&mut self, operation: &Operation<'_>) -> Result<(), ChannelError> {
        match std::mem::replace(&mut self.state, State::Failed) {
            State::New {
                connection,
                side,
                settings,
                options,
            } => {
                let opened = open(*connection, side, &settings, &options, operation)?;
                self.state = State::Open(Box::new(Streams::new(opened)));
                Ok(())
            }
            other => {
                self.state = other;
                Ok(())
            }
        }
    }

    fn send(
        &mut self,
        head: &[u8],
        body: Body<'_>,
        operation: &Operation<'_>,
    ) -> Result<(), ChannelError> {
        self.run(operation, |streams| {
            streams.send_memory(head, operation)?;
            match body {
                Body::Memory(bytes) => streams.send_memory(bytes, operation)?,
                Body::File(range) => {
                    streams.align(&range, operation)?;
                    streams.send_file(&range, operation)?
                }
            }
            streams.flush(operation)
        })
    }

    fn receive(
        &mut self,
        buffer: &mut [u8],
        operation: &Operation<'_>,
    ) -> Result<Received, ChannelError> {
        if buffer.is_empty() {
            return operation.check().map(|()| Received::EndOfStream);
        }
        // A receiver may wait for a small file for a moment on one thread, and go on waiting on another: nothing is lost by that, so
        // the channel does not fail.
        let received = self.run(operation, |streams| {
            match streams.receive(buffer, operation) {
                Err(ChannelError::DeadlineExceeded) => Ok(None),
                received => received.map(Some),
            }
        });
        let count = received?.ok_or(ChannelError::DeadlineExceeded)?;
        Ok(NonZeroUsize::new(count).map_or(Received::EndOfStream, Received::Bytes))
    }

    fn receive_into(
        &mut self,
        range: FileRange<'_>,
        operation: &Operation<'_>,
    ) -> Result<u64, ChannelError> {
        self.run(operation, |streams| {
            if range.goes_through_memory() {
                streams.receive_through_memory(range, operation)
            } else {
                streams.receive_into(&range, operation)
            }
        })
    }

    fn finish(&mut self, operation: &Operation<'_>) -> Result<(), ChannelError> {
        self.run(operation, |streams| streams.finish(operation))
    }

    fn abort(&mut self) {
        if let Some(mut streams) = self.take() {
            streams.fail();
        }
        if let State::New { connection, .. } = &mut self.state {
            connection.abort();
        }
        self.state = State::Failed;
    }

    fn peer(&self) -> SocketAddr {
        self.peer
    }

    fn info(&self) -> ChannelInfo {
        match &self.state {
            State::Open(streams) => streams.info(),
            State::Driven(driven) => driven.read(Streams::info).unwrap_or_default(),
            State::New { .. } | State::Failed => ChannelInfo::default(),
        }
    }

    fn watch(&self) -> Option<Arc<dyn Watch>> {
        match &self.state {
            State::Open(streams) => Some(streams.meter()),
            State::Driven(driven) => driven.read(Streams::meter),
            State::New { .. } | State::Failed => None,
        }
    }
}

/// A dropped channel ends its stream in an orderly manner.
impl Drop for RdmaChannel {
    fn drop(&mut self) {
        if let Some(streams) = self.take() {
            streams.close();
        }
    }
}
