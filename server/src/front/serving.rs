//! The serving process's side: it takes clients over.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread;

use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tracing::{error, warn};

use super::counts::FrontCounts;
use super::handover::{Handed, ToFront, ToServing};
use super::link::{Outbox, receive};
use crate::server::Shared;
use crate::session::Session;
use crate::shutdown::{Entrance, PhaseWatch};

/// The way to the front process.
#[derive(Debug)]
pub(crate) struct Serving {
    socket: Arc<OwnedFd>,
    pub(crate) counts: FrontCounts,
}

/// The way to the front process, when this one has threads.
#[derive(Debug)]
pub(crate) struct Front {
    outbox: Outbox,
}

/// A client that the front process is told of when it is gone.
#[derive(Debug)]
pub(crate) struct Guest {
    session: u64,
    outbox: Outbox,
    is_returned: bool,
}

impl Serving {
    pub(super) fn new(socket: OwnedFd, counts: FrontCounts) -> Self {
        Self {
            socket: Arc::new(socket),
            counts,
        }
    }

    /// Lets the front process accept connections, and serves the clients that it hands over. Must be called in a runtime.
    ///
    /// # Errors
    ///
    /// When there is no thread.
    pub(crate) fn start(self, shared: Arc<Shared>, entrance: Entrance) -> io::Result<Front> {
        let outbox = Outbox::start(Arc::clone(&self.socket))?;
        outbox.send(&ToFront::Start, Vec::new());
        let (runtime, guests) = (Handle::current(), outbox.clone());
        let take = move || {
            let next = || receive::<ToServing>(&self.socket);
            while let Ok(Some((ToServing::Handed(handed), descriptors))) = next() {
                let guest = Guest {
                    session: handed.session,
                    outbox: guests.clone(),
                    is_returned: false,
                };
                // A server that ends takes nobody.
                let Some(phase) = entrance.watch() else {
                    continue;
                };
                let _inside = runtime.enter();
                take_over(&shared, phase, *handed, descriptors, guest);
            }
        };
        thread::Builder::new()
            .name("gridhaul-link".to_owned())
            .spawn(take)?;
        Ok(Front { outbox })
    }
}

fn take_over(
    shared: &Arc<Shared>,
    phase: PhaseWatch,
    handed: Handed,
    descriptors: Vec<OwnedFd>,
    guest: Guest,
) {
    // A descriptor that this process has no room for is left out by the kernel.
    let Some(connection) = descriptors.into_iter().next() else {
        error!("too many open files: a client cannot be served");
        return;
    };
    // The addresses are the kernel's word.
    let connection = TcpStream::from_std(connection.into())
        .and_then(|stream| Ok((stream.peer_addr()?, stream.local_addr()?, stream)));
    match connection {
        Ok((peer, local, stream)) => {
            let shared = Arc::clone(shared);
            let session = Session::of_guest(shared, phase, handed.session, (peer, local), guest);
            tokio::spawn(session.run_handed(stream, handed));
        }
        // The client is gone already.
        Err(error) => warn!(session = handed.session, %error, "a client cannot be served"),
    }
}

impl Front {
    /// Has the front process read the configuration again, from this file, and write its log to this one.
    pub(crate) fn reload(&self, file: Option<OwnedFd>, log: Option<OwnedFd>) {
        let message = ToFront::Reload {
            has_file: file.is_some(),
        };
        self.outbox
            .send(&message, file.into_iter().chain(log).collect());
    }

    /// No more clients.
    pub(crate) fn drain(&self) {
        self.outbox.send(&ToFront::Drain, Vec::new());
    }
}

impl Guest {
    /// Gives the connection back, with what the client has sent.
    pub(crate) fn give_back(mut self, connection: OwnedFd, input: Vec<u8>) {
        self.is_returned = true;
        let message = ToFront::Returned {
            session: self.session,
            input,
        };
        self.outbox.send(&message, vec![connection]);
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        if !self.is_returned {
            self.outbox.send(&ToFront::Ended(self.session), Vec::new());
        }
    }
}
