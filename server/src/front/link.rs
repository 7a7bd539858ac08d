//! One process's end of the socket between the front process and the serving one.
//!
//! A thread sends, so that no session waits for the other process; another one receives. What waits to be sent is
//! bounded by the number of connections.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;

use rustix::io::Errno;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tracing::error;
use zeroize::Zeroizing;

use super::handover::{Handed, ToServing};
use crate::admission::Place;
use crate::login::wire::{receive_message, send_message};

/// Sends messages in their order.
#[derive(Clone)]
pub(super) struct Outbox(mpsc::Sender<Message>);

struct Message {
    bytes: Zeroizing<Vec<u8>>,
    descriptors: Vec<OwnedFd>,
}

impl Outbox {
    /// Starts the thread that sends.
    pub(super) fn start(socket: Arc<OwnedFd>) -> io::Result<Self> {
        let (outbox, messages) = mpsc::channel::<Message>();
        let send = move || {
            for message in messages {
                let descriptors: Vec<_> = message.descriptors.iter().map(|fd| fd.as_fd()).collect();
                if let Err(errno) = send_message(&*socket, &message.bytes, &descriptors) {
                    // The connections that it takes over are closed. The end of the process is noticed elsewhere.
                    error!(%errno, "the other process cannot be reached");
                }
            }
        };
        thread::Builder::new()
            .name("gridhaul-link".to_owned())
            .spawn(send)?;
        Ok(Self(outbox))
    }

    pub(super) fn send(&self, message: &impl Serialize, descriptors: Vec<OwnedFd>) {
        let Ok(bytes) = postcard::to_stdvec(message) else {
            error!("a message to the other process cannot be encoded");
            return;
        };
        // The thread ends with the process only.
        let _ = self.0.send(Message {
            bytes: Zeroizing::new(bytes),
            descriptors,
        });
    }
}

impl fmt::Debug for Outbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outbox").finish_non_exhaustive()
    }
}

/// Waits for the next message; `None` when the other process is gone.
pub(super) fn receive<T: DeserializeOwned>(
    socket: &OwnedFd,
) -> Result<Option<(T, Vec<OwnedFd>)>, Errno> {
    let mut descriptors = Vec::new();
    let Some(message) = receive_message(socket, &mut descriptors)? else {
        return Ok(None);
    };
    let message = postcard::from_bytes(&message).map_err(|_| Errno::PROTO)?;
    Ok(Some((message, descriptors)))
}

/// The front process's way to the serving one.
#[derive(Debug)]
pub(crate) struct Link {
    outbox: Outbox,
    /// Of clients who are served.
    places: Mutex<HashMap<u64, Place>>,
}

impl Link {
    pub(super) fn new(outbox: Outbox) -> Self {
        Self {
            outbox,
            places: Mutex::default(),
        }
    }

    /// Hands a client over. It keeps its place until it is gone.
    pub(crate) fn hand_over(&self, handed: Handed, connection: OwnedFd, place: Option<Place>) {
        if let Some(place) = place {
            self.places().insert(handed.session, place);
        }
        let message = ToServing::Handed(Box::new(handed));
        self.outbox.send(&message, vec![connection]);
    }

    /// The place of a client who is served no more.
    pub(super) fn take_back(&self, session: u64) -> Option<Place> {
        self.places().remove(&session)
    }

    /// Every change under the lock is whole, so a panic elsewhere does not spoil it.
    fn places(&self) -> MutexGuard<'_, HashMap<u64, Place>> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
