//! The driver `memory`: channels within one process.
//!
//! For tests, and for measuring all parts but the network. It behaves as a network for its callers: bounded buffers,
//! half-close, deadlines, and aborts that differ from ends.

mod pipe;

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroUsize;
use std::sync::{Arc, Condvar, LazyLock, Mutex, MutexGuard, PoisonError};

use self::pipe::Pipe;
use crate::operation::CANCEL_TICK;
use crate::options::{self, Audience, OptionDoc, OptionKind};
use crate::{
    AcceptError, Body, BufferSize, Built, Channel, ChannelError, ChannelInfo, ConnectError, Driver,
    ListenError, Listener, Operation, Received, SocketOptions, StackError, Transport,
};

/// The driver `memory`: a transport whose addresses exist only in this process.
///
/// | option | meaning |
/// | --- | --- |
/// | `buffer=64K` | the bytes that each direction buffers, up to 64M; the connecting side decides |
#[derive(Debug, Clone, Copy, Default)]
pub struct Memory;

const NAME: &str = "memory";
const DEFAULT_CAPACITY: u64 = 64 << 10;
const MAX_CAPACITY: u64 = 64 << 20;

impl Driver for Memory {
    fn name(&self) -> &'static str {
        NAME
    }

    fn options(&self) -> &'static [OptionDoc] {
        &[OptionDoc {
            name: "buffer",
            meaning: "How many bytes each direction holds, up to 64M; the connecting side decides.",
            example: "64K",
            kind: OptionKind::Bytes,
            audience: Audience::Administrator(
                "it is memory of the process that nothing else bounds",
            ),
        }]
    }

    fn build(&self, options: &[(String, String)]) -> Result<Built, StackError> {
        let capacity = self.read_options(options)?.value("buffer", |text| {
            options::bytes(text).and_then(|bytes| match bytes {
                1..=MAX_CAPACITY => Ok(bytes),
                _ => Err("it is not between 1 and 64M".to_owned()),
            })
        })?;
        Ok(Built::Transport(Arc::new(MemoryTransport { capacity })))
    }
}

#[derive(Debug)]
struct MemoryTransport {
    /// The capacity of each direction, in bytes.
    capacity: Option<u64>,
}

impl MemoryTransport {
    fn capacity(&self, options: &SocketOptions) -> usize {
        let wish = match options.send_buffer {
            BufferSize::Bytes(bytes) => u64::from(bytes),
            BufferSize::Automatic => DEFAULT_CAPACITY,
        };
        let capacity = self.capacity.unwrap_or(wish).clamp(1, MAX_CAPACITY);
        usize::try_from(capacity).unwrap_or(usize::MAX)
    }
}

impl Transport for MemoryTransport {
    fn listen(
        &self,
        local: IpAddr,
        _options: &SocketOptions,
    ) -> Result<Box<dyn Listener>, ListenError> {
        let mut table = lock(&TABLE);
        let address = table.free_address(local)?;
        let queue = Arc::new(Queue::default());
        table.listeners.insert(address, Arc::clone(&queue));
        Ok(Box::new(MemoryListener { address, queue }))
    }

    fn connect(
        &self,
        peer: SocketAddr,
        options: &SocketOptions,
        operation: &Operation<'_>,
    ) -> Result<Box<dyn Channel>, ConnectError> {
        let refused = || ConnectError::Peer {
            peer,
            error: std::io::ErrorKind::ConnectionRefused.into(),
        };
        operation.check()?;
        let (queue, local) = {
            let mut table = lock(&TABLE);
            let queue = table.listeners.get(&peer).cloned();
            (queue.ok_or_else(refused)?, table.free_port())
        };
        let local = SocketAddr::new(peer.ip(), local);
        let (ours, theirs) = pair(local, peer, self.capacity(options));
        if queue.push(theirs, operation)? {
            Ok(Box::new(ours))
        } else {
            Err(refused())
        }
    }
}

/// All listeners of the process.
static TABLE: LazyLock<Mutex<Table>> = LazyLock::new(Mutex::default);

#[derive(Default)]
struct Table {
    listeners: HashMap<SocketAddr, Arc<Queue>>,
    last_port: u16,
}

impl Table {
    /// The next port, from 1 to 65535 in rotation.
    fn free_port(&mut self) -> u16 {
        self.last_port = self.last_port.checked_add(1).unwrap_or(1);
        self.last_port
    }

    fn free_address(&mut self, local: IpAddr) -> Result<SocketAddr, ListenError> {
        for _ in 1..=u16::MAX {
            let address = SocketAddr::new(local, self.free_port());
            if !self.listeners.contains_key(&address) {
                return Ok(address);
            }
        }
        Err(ListenError::PortRangeExhausted {
            first: 1,
            last: u16::MAX,
        })
    }
}

/// Connections that a listener has not accepted yet.
#[derive(Debug, Default)]
struct Queue {
    state: Mutex<QueueState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct QueueState {
    waiting: VecDeque<MemoryChannel>,
    is_closed: bool,
}

const BACKLOG: usize = 128;

impl Queue {
    /// Queues the channel; `false` if the listener is closed.
    fn push(
        &self,
        channel: MemoryChannel,
        operation: &Operation<'_>,
    ) -> Result<bool, ChannelError> {
        let mut state = lock(&self.state);
        while state.waiting.len() >= BACKLOG && !state.is_closed {
            state = wait(&self.changed, state, operation)?;
        }
        if state.is_closed {
            return Ok(false);
        }
        state.waiting.push_back(channel);
        self.changed.notify_all();
        Ok(true)
    }
}

#[derive(Debug)]
struct MemoryListener {
    address: SocketAddr,
    queue: Arc<Queue>,
}

impl Listener for MemoryListener {
    fn address(&self) -> SocketAddr {
        self.address
    }

    fn accept(&mut self, operation: &Operation<'_>) -> Result<Box<dyn Channel>, AcceptError> {
        operation.check()?;
        let mut state = lock(&self.queue.state);
        loop {
            if let Some(channel) = state.waiting.pop_front() {
                self.queue.changed.notify_all();
                return Ok(Box::new(channel));
            }
            state = wait(&self.queue.changed, state, operation)?;
        }
    }
}

impl Drop for MemoryListener {
    fn drop(&mut self) {
        lock(&TABLE).listeners.remove(&self.address);
        let mut state = lock(&self.queue.state);
        state.is_closed = true;
        state.waiting.clear();
        self.queue.changed.notify_all();
    }
}

#[derive(Debug)]
struct MemoryChannel {
    peer: SocketAddr,
    outgoing: Arc<Pipe>,
    incoming: Arc<Pipe>,
    capacity: usize,
}

/// Both ends of a connection: that of `connector`, and that of `acceptor`.
fn pair(
    connector: SocketAddr,
    acceptor: SocketAddr,
    capacity: usize,
) -> (MemoryChannel, MemoryChannel) {
    let forth = Arc::new(Pipe::new(capacity));
    let back = Arc::new(Pipe::new(capacity));
    let end = |peer, outgoing: &Arc<Pipe>, incoming: &Arc<Pipe>| MemoryChannel {
        peer,
        outgoing: Arc::clone(outgoing),
        incoming: Arc::clone(incoming),
        capacity,
    };
    (end(acceptor, &forth, &back), end(connector, &back, &forth))
}

impl Channel for MemoryChannel {
    fn send(
        &mut self,
        head: &[u8],
        body: Body<'_>,
        operation: &Operation<'_>,
    ) -> Result<(), ChannelError> {
        operation.check()?;
        self.outgoing.write(head, operation, |_| {})?;
        match body {
            Body::Memory(bytes) => self.outgoing.write(bytes, operation, |_| {}),
            Body::File(mut range) => {
                let moved = range.moved;
                let mut done = 0;
                while done < range.length {
                    let piece = range.read_piece(done)?;
                    done += piece.len() as u64;
                    self.outgoing.write(piece, operation, |count| {
                        moved.fetch_add(count as u64, std::sync::atomic::Ordering::Release);
                    })?;
                }
                Ok(())
            }
        }
    }

    fn receive(
        &mut self,
        buffer: &mut [u8],
        operation: &Operation<'_>,
    ) -> Result<Received, ChannelError> {
        operation.check()?;
        let count = self.incoming.read(buffer, operation)?;
        Ok(NonZeroUsize::new(count).map_or(Received::EndOfStream, Received::Bytes))
    }

    fn finish(&mut self, operation: &Operation<'_>) -> Result<(), ChannelError> {
        operation.check()?;
        self.outgoing.finish()
    }

    fn abort(&mut self) {
        self.outgoing.abort();
        self.incoming.abort();
    }

    fn peer(&self) -> SocketAddr {
        self.peer
    }

    fn info(&self) -> ChannelInfo {
        ChannelInfo {
            buffer_bytes: self.capacity,
            ..ChannelInfo::default()
        }
    }
}

impl Drop for MemoryChannel {
    fn drop(&mut self) {
        // Fails only if the peer has aborted.
        let _ = self.outgoing.finish();
        self.incoming.close_reader();
    }
}

/// Values are consistent at every unlock, so a panic of another thread does not corrupt them.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits for a change, and checks the operation periodically.
fn wait<'a, T>(
    changed: &Condvar,
    guard: MutexGuard<'a, T>,
    operation: &Operation<'_>,
) -> Result<MutexGuard<'a, T>, ChannelError> {
    operation.check()?;
    let longest = operation
        .remaining()
        .map_or(CANCEL_TICK, |left| left.min(CANCEL_TICK));
    let (guard, _) = changed
        .wait_timeout(guard, longest)
        .unwrap_or_else(PoisonError::into_inner);
    Ok(guard)
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;
    use crate::{Cancel, Stack};

    const LOCALHOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    fn stack() -> Stack {
        match Memory.build(&[]).unwrap() {
            Built::Transport(transport) => Stack::new(transport, Vec::new()),
            Built::Transform(_) => panic!("memory is a transport"),
        }
    }

    #[test]
    fn a_closed_listener_refuses() {
        let cancel = Cancel::new();
        let operation = Operation {
            deadline: None,
            cancel: &cancel,
        };
        let stack = stack();
        let sockets = SocketOptions::default();
        let listener = stack.listen(LOCALHOST, &sockets).unwrap();
        let address = listener.address();
        let mut waiting = stack.connect(address, &sockets, &operation).unwrap();
        drop(listener);
        assert!(matches!(
            stack.connect(address, &sockets, &operation),
            Err(ConnectError::Peer { .. })
        ));
        assert_eq!(
            waiting.receive(&mut [0], &operation).unwrap(),
            Received::EndOfStream
        );
    }

    #[test]
    fn listeners_have_addresses_of_their_own() {
        let listeners: Vec<_> = (0..100)
            .map(|_| {
                stack()
                    .listen(LOCALHOST, &SocketOptions::default())
                    .unwrap()
            })
            .collect();
        let mut addresses: Vec<_> = listeners.iter().map(|one| one.address()).collect();
        addresses.sort_unstable();
        addresses.dedup();
        assert_eq!(addresses.len(), 100);
        assert!(addresses.iter().all(|address| address.ip() == LOCALHOST));
    }

    #[test]
    fn the_buffer_is_bounded() {
        for value in ["0", "65M", "x"] {
            let options = [("buffer".to_owned(), value.to_owned())];
            assert!(matches!(
                Memory.build(&options),
                Err(StackError::BadValue {
                    option: "buffer",
                    ..
                })
            ));
        }
    }
}
