//! The monitor: the one process that keeps root's rights, and does one thing with them.
//!
//! It is a copy of the server from the time before the server listened, read a secret, or started a
//! thread. On a request it starts a broker and passes the socket to it back. Everything that can take
//! long or go wrong (the account database, the rules, the root) is the broker's work, in a process of its
//! own; the rules are those that the monitor had from the start, so that a server that somebody else
//! has taken over cannot change them. It ends when the server ends.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::{Mutex, PoisonError};

use rustix::io::Errno;
use rustix::thread::{CapabilitySet, CapabilitySets};

use crate::broker::{self, ROOTS_RIGHTS};
use crate::messages::{REQUEST_BYTES, Start, Started};
use crate::policy::AccountPolicy;
use crate::process;
use crate::socket::{self, Received};

/// Why there is no monitor.
#[derive(Debug, thiserror::Error)]
#[error("cannot start the process that opens files for local accounts: {0}")]
pub struct MonitorError(#[from] io::Error);

/// The server's end of the monitor. Dropping it ends the monitor.
#[derive(Debug)]
pub struct Monitor {
    socket: Mutex<OwnedFd>,
}

/// What brokers are started with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MonitorOptions {
    /// Which accounts may be used.
    pub policy: AccountPolicy,
    /// The umask of brokers; `None` is that of this process.
    pub umask: Option<u32>,
}

impl Monitor {
    /// Starts the monitor. Must be called as root, while the process has one thread, and before it
    /// opens what accounts must not see.
    ///
    /// # Errors
    ///
    /// When there is a second thread already, or no process can be started.
    pub fn start(options: MonitorOptions) -> Result<Self, MonitorError> {
        let (ours, theirs) = socket::pair().map_err(io::Error::from)?;
        process::fork(|| {
            // SAFETY: nothing but this socket is used here, and the process ends without going back to
            // what the server had open.
            let closed = unsafe { process::close_all_but(theirs.as_fd()) };
            match closed {
                Ok(()) => run(&theirs, &options),
                Err(error) => eprintln!("gridhaul-server: the monitor cannot start: {error}"),
            }
        })?;
        Ok(Self {
            socket: Mutex::new(ours),
        })
    }

    /// Starts a broker, and returns the socket to it.
    pub(crate) fn broker(&self, start: &Start<'_>) -> Result<OwnedFd, Errno> {
        let message = postcard::to_stdvec(start).map_err(|_| Errno::INVAL)?;
        if message.len() > REQUEST_BYTES {
            return Err(Errno::NAMETOOLONG);
        }
        let mut buffer = [0; 64];
        let mut descriptors = Vec::new();
        // A question and its answer; the socket stays whole if a thread panics between them, or the
        // monitor is gone.
        let socket = self.socket.lock().unwrap_or_else(PoisonError::into_inner);
        socket::send(&*socket, &message, &[])?;
        let Received::Message(bytes) = socket::receive(&*socket, &mut buffer, &mut descriptors)?
        else {
            return Err(Errno::PIPE);
        };
        drop(socket);
        let Started(started) = postcard::from_bytes(&buffer[..bytes]).map_err(|_| Errno::PROTO)?;
        started.map_err(Errno::from_raw_os_error)?;
        descriptors.pop().ok_or(Errno::PROTO)
    }
}

/// The life of the monitor, in a process of its own.
fn run(server: &OwnedFd, options: &MonitorOptions) {
    process::ignore_signals();
    // For whoever looks at the list of processes; it does not matter if there is another name.
    let _ = rustix::thread::set_name(c"gridhaul-mon");
    if let Err(error) = give_up(needed(&options.policy)) {
        // The server sees that its requests fail, and this is why.
        eprintln!("gridhaul-server: the monitor cannot give up what it does not need: {error}");
        return;
    }
    let mut buffer = [0; REQUEST_BYTES];
    let mut unwanted = Vec::new();
    while let Ok(Received::Message(bytes)) = socket::receive(server, &mut buffer, &mut unwanted) {
        unwanted.clear();
        let (started, socket) = match start(&buffer[..bytes], options) {
            Ok(socket) => (Started(Ok(())), Some(socket)),
            Err(errno) => (Started(Err(errno.raw_os_error())), None),
        };
        let Ok(message) = postcard::to_stdvec(&started) else {
            return;
        };
        let socket = socket.as_ref().map(|socket| socket.as_fd());
        if socket::send(server, &message, socket.as_slice()).is_err() {
            return;
        }
    }
}

fn start(message: &[u8], options: &MonitorOptions) -> Result<OwnedFd, Errno> {
    let start: Start<'_> = postcard::from_bytes(message).map_err(|_| Errno::PROTO)?;
    let (theirs, ours) = socket::pair()?;
    process::fork(|| {
        // SAFETY: nothing but this socket is used here, and the process ends without going back to what
        // the monitor had open.
        if unsafe { process::close_all_but(ours.as_fd()) }.is_ok() {
            broker::run(&ours, &start, &options.policy, options.umask);
        }
    })
    .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::AGAIN))?;
    Ok(theirs)
}

/// What the monitor's work takes.
fn needed(policy: &AccountPolicy) -> CapabilitySet {
    // Brokers become their account with the first two. The third is for the shadow database, which not
    // even root may read by its permission bits on some systems. Roots are opened as the account, and
    // brokers end by themselves: that needs nothing.
    let needed = CapabilitySet::SETUID | CapabilitySet::SETGID | CapabilitySet::DAC_READ_SEARCH;
    if policy.allow_root {
        needed | ROOTS_RIGHTS
    } else {
        needed
    }
}

/// Gives up all of root's rights but `kept`, for good.
fn give_up(kept: CapabilitySet) -> Result<(), Errno> {
    for number in 0..u64::BITS {
        let capability = CapabilitySet::from_bits_retain(1 << number);
        if kept.contains(capability) {
            continue;
        }
        match rustix::thread::remove_capability_from_bounding_set(capability) {
            Ok(()) => {}
            // Those above are not known to this kernel.
            Err(Errno::INVAL) => break,
            // In a container that may not: nothing is executed here that could get it back.
            Err(Errno::PERM) => break,
            Err(errno) => return Err(errno),
        }
    }
    let permitted = rustix::thread::capabilities(None)?.permitted & kept;
    let sets = CapabilitySets {
        effective: permitted,
        permitted,
        inheritable: CapabilitySet::empty(),
    };
    rustix::thread::set_capabilities(None, sets)?;
    rustix::thread::set_no_new_privs(true)
}
