//! One process's end of the socket between the front process and the serving process.
//!
//! One thread sends, so that no session waits for the other process, and another one receives. Who sends looks at the length of
//! the queue first: while the other process does not read, the front process hands no more clients over, and the serving process
//! takes none, because each may cause one more message.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;

use rustix::io::Errno;
use rustix::net::Shutdown;
use serde::Serialize;
use serde::de::DeserializeOwned;
use socket2::SockRef;
use tokio::net::TcpStream;
use tracing::error;
use zeroize::Zeroizing;

use crate::telemetry::tell;
use crate::wire::{receive_message, send_message};

/// Sends messages in order, from a thread.
#[derive(Clone)]
pub(super) struct Outbox {
    messages: mpsc::Sender<Message>,
    /// The number of messages that wait to be sent.
    waiting: Arc<AtomicUsize>,
}

struct Message {
    /// The session that the message hands over, if it does.
    session: Option<u64>,
    bytes: Zeroizing<Vec<u8>>,
    descriptors: Vec<OwnedFd>,
}

impl Outbox {
    /// Starts the thread that sends. It calls `lost` with sessions that could not be handed over.
    pub(super) fn start(
        socket: Arc<OwnedFd>,
        lost: impl Fn(u64) + Send + 'static,
    ) -> io::Result<Self> {
        let (outbox, messages) = mpsc::channel::<Message>();
        let waiting = Arc::new(AtomicUsize::new(0));
        let still_waiting = Arc::clone(&waiting);
        let send = move || {
            for message in messages {
                let descriptors: Vec<_> = message.descriptors.iter().map(|fd| fd.as_fd()).collect();
                if let Err(errno) = send_message(&*socket, &message.bytes, &descriptors) {
                    // Dropping the message closes its connection. The end of the other process is noticed elsewhere.
                    if let Some(untold) = tell("lost messages") {
                        error!(%errno, untold, "a message to the other process is lost");
                    }
                    message.session.into_iter().for_each(&lost);
                }
                still_waiting.fetch_sub(1, Ordering::Relaxed);
            }
        };
        thread::Builder::new()
            .name("gridhaul-link".to_owned())
            .spawn(send)?;
        Ok(Self {
            messages: outbox,
            waiting,
        })
    }

    /// The number of messages that wait to be sent.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// A message without keys.
    pub(super) fn send(&self, message: &impl Serialize, descriptors: Vec<OwnedFd>) {
        self.send_of(None, Vec::new(), message, descriptors);
    }

    /// A message that hands a session over, with its keys.
    pub(super) fn send_session(
        &self,
        session: u64,
        message: &impl Serialize,
        descriptors: Vec<OwnedFd>,
    ) {
        /// Larger than most messages. A vector that grows leaves a copy behind that is not wiped.
        const USUAL: usize = 16 * 1024;

        let room = Vec::with_capacity(USUAL);
        self.send_of(Some(session), room, message, descriptors);
    }

    fn send_of(
        &self,
        session: Option<u64>,
        room: Vec<u8>,
        message: &impl Serialize,
        descriptors: Vec<OwnedFd>,
    ) {
        let Ok(bytes) = postcard::to_extend(message, room).map(Zeroizing::new) else {
            error!("a message to the other process cannot be encoded");
            return;
        };
        self.waiting.fetch_add(1, Ordering::Relaxed);
        // The thread ends with the process only.
        let _ = self.messages.send(Message {
            session,
            bytes,
            descriptors,
        });
    }
}

impl fmt::Debug for Outbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outbox").finish_non_exhaustive()
    }
}

/// Receives the messages of the other process until it ends. A message that cannot be decoded closes the socket: the two
/// processes cannot continue, and the server has to end.
pub(crate) fn follow<T: DeserializeOwned>(socket: &OwnedFd, mut take: impl FnMut(T, Vec<OwnedFd>)) {
    loop {
        match receive(socket) {
            Ok(Some((message, descriptors))) => take(message, descriptors),
            Ok(None) => return,
            Err(errno) => {
                error!(%errno, "the other process cannot be understood");
                // The other end is closed already if this fails.
                let _ = rustix::net::shutdown(socket, Shutdown::Both);
                return;
            }
        }
    }
}

fn receive<T: DeserializeOwned>(socket: &OwnedFd) -> Result<Option<(T, Vec<OwnedFd>)>, Errno> {
    let mut descriptors = Vec::new();
    let Some(message) = receive_message(socket, &mut descriptors)? else {
        return Ok(None);
    };
    let message = postcard::from_bytes(&message).map_err(|_| Errno::PROTO)?;
    Ok(Some((message, descriptors)))
}

/// A connection that came from the other process.
#[derive(Debug)]
pub(crate) struct Arrived {
    pub(crate) stream: TcpStream,
    /// The addresses come from the kernel.
    pub(crate) peer: SocketAddr,
    pub(crate) local: SocketAddr,
}

impl Arrived {
    /// Takes the connection, and resets the options with which the other process could make a call block. Must be
    /// called in a runtime.
    ///
    /// # Errors
    ///
    /// When the client has closed the connection.
    pub(crate) fn new(connection: OwnedFd) -> io::Result<Self> {
        let connection = std::net::TcpStream::from(connection);
        connection.set_nonblocking(true)?;
        SockRef::from(&connection).set_linger(None)?;
        let stream = TcpStream::from_std(connection)?;
        Ok(Self {
            peer: stream.peer_addr()?,
            local: stream.local_addr()?,
            stream,
        })
    }
}
