//! The monitor: the only process that keeps root's privileges. It starts brokers, opens listed files, and leases accounts of
//! pools in one directory.
//!
//! It is forked from the server before that listens, reads a secret, or starts a thread. Only the login process has a socket
//! to it. On a request the monitor starts a broker, or a process that opens a file or leases an account, and returns a socket to
//! this process.
//! All work that can block or fail (the account database, the rules, the root, a file) is done in this process. The rules
//! and the list of files are fixed when the monitor starts, so that a compromised process cannot change them, and the
//! monitor limits the number of processes itself. It ends when the login process ends, and removes the Unix socket of the server
//! if nothing listens at it.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use gridhaul_sandbox::SandboxError;
use gridhaul_storage::PosixOptions;
use rustix::io::Errno;
use rustix::process::Pid;
use rustix::thread::CapabilitySet;

use crate::broker::{self, ROOTS_RIGHTS};
use crate::children::{Children, Work};
use crate::client::{AccountRequest, BrokerSource, brokers_of_account};
use crate::directory;
use crate::listed::{self, ListedFiles, OpenError};
use crate::log_files;
use crate::messages::{Leased, Opened, Order, REQUEST_BYTES, Start, Started};
use crate::options::MonitorOptions;
use crate::pool_accounts::{self, LeaseBudget, LeaseError};
use crate::process;
use crate::socket::{self, Received};

/// The time limit for opening a file, and for leasing an account.
const OPEN: Duration = Duration::from_secs(10);

/// The time in which the monitor starts a process. It does nothing else, so a monitor that takes longer is broken.
const START: Duration = Duration::from_secs(60);

/// The maximum length of a [`Leased`]: a name of a file, an account, and the rest.
const LEASED_BYTES: usize = 1024;

/// Why the monitor could not be started.
#[derive(Debug, thiserror::Error)]
#[error("cannot start the process that keeps root's rights: {0}")]
pub struct MonitorError(#[from] io::Error);

/// The server's end of the monitor. Dropping it ends the monitor.
#[derive(Debug)]
pub struct Monitor {
    /// `None` when the monitor has not answered in time: a late answer must not be taken for that to another request. The monitor
    /// ends then.
    socket: Mutex<Option<OwnedFd>>,
    files: ListedFiles,
    pid: Pid,
    /// [`START`], except in tests.
    patience: Duration,
}

impl Monitor {
    /// Starts the monitor. Must be called as root, while the process has one thread, and before it opens files or memory that
    /// accounts must not access.
    ///
    /// Without `options` the monitor starts no brokers. [`Monitor::open`] and [`Monitor::append`] open only `files`.
    ///
    /// # Errors
    ///
    /// When there is a second thread already, or no process can be started.
    pub fn start(
        options: Option<MonitorOptions>,
        files: ListedFiles,
    ) -> Result<Self, MonitorError> {
        let (ours, theirs) = socket::pair().map_err(io::Error::from)?;
        let pid = process::fork(|| {
            // SAFETY: only this socket is used here, and the process ends without using other descriptors of the server.
            let closed = unsafe { process::close_all_but(&[theirs.as_fd()]) };
            match closed {
                Ok(()) => run(&theirs, options.as_ref(), &files),
                Err(error) => process::tell(format_args!("the monitor cannot start: {error}")),
            }
        })?;
        Ok(Self {
            socket: Mutex::new(Some(ours)),
            files,
            pid,
            patience: START,
        })
    }

    /// A descriptor that becomes readable when the monitor ends. Only the parent of the monitor can get one.
    ///
    /// # Errors
    ///
    /// As for [`process::watch`].
    pub fn watch(&self) -> io::Result<OwnedFd> {
        process::watch(self.pid)
    }

    /// The process.
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// The position of a file in the list.
    pub fn place(&self, file: &Path) -> Option<usize> {
        self.files.read.iter().position(|listed| listed == file)
    }

    /// The position of a log in the list of logs.
    pub fn place_of_log(&self, file: &Path) -> Option<usize> {
        self.files.append.iter().position(|listed| listed == file)
    }

    /// Opens the file at this position of the list for reading, with root's permissions. May block.
    ///
    /// # Errors
    ///
    /// When there is no such position, or the file cannot be opened, is not a regular file, or could have been replaced by
    /// another account than root.
    pub fn open(&self, place: usize) -> Result<File, OpenError> {
        let place = u64::try_from(place).map_err(|_| OpenError::Unlisted)?;
        self.opened(&Order::Open(place))
    }

    /// Opens the log at this position of the list of logs for appending, or creates it, with root's permissions. May block.
    ///
    /// # Errors
    ///
    /// As those of [`Monitor::open`].
    pub fn append(&self, place: usize) -> Result<File, OpenError> {
        let place = u64::try_from(place).map_err(|_| OpenError::Unlisted)?;
        self.opened(&Order::Append(place))
    }

    fn opened(&self, order: &Order<'_>) -> Result<File, OpenError> {
        let opener = self.order(order)?;
        if !socket::readable(&opener, OPEN)? {
            return Err(Errno::TIMEDOUT.into());
        }
        let mut buffer = [0; 64];
        let mut descriptors = Vec::new();
        let Received::Message(bytes) = socket::receive(&opener, &mut buffer, &mut descriptors)?
        else {
            return Err(Errno::PIPE.into());
        };
        let Opened(opened) = postcard::from_bytes(&buffer[..bytes]).map_err(|_| Errno::PROTO)?;
        opened?;
        // The kernel drops descriptors that exceed this process's limit.
        Ok(descriptors.pop().ok_or(Errno::MFILE)?.into())
    }

    /// The account of an identity (one-line form) from a pool, by the leases in the gridmapdir that the monitor was started
    /// with. May block.
    ///
    /// # Errors
    ///
    /// When the pool has no free account, or the gridmapdir cannot be used.
    pub fn lease(&self, identity: &str, pool: &str) -> Result<String, LeaseError> {
        let lessor = self.order(&Order::Lease { identity, pool })?;
        if !socket::readable(&lessor, OPEN)? {
            return Err(Errno::TIMEDOUT.into());
        }
        let mut buffer = [0; LEASED_BYTES];
        let Received::Message(bytes) = socket::receive(&lessor, &mut buffer, &mut Vec::new())?
        else {
            return Err(Errno::PIPE.into());
        };
        let Leased(leased) = postcard::from_bytes(&buffer[..bytes]).map_err(|_| Errno::PROTO)?;
        leased
    }

    /// Requests a process, and returns the socket to it.
    fn order(&self, order: &Order<'_>) -> Result<OwnedFd, Errno> {
        let message = postcard::to_stdvec(order).map_err(|_| Errno::INVAL)?;
        if message.len() > REQUEST_BYTES {
            return Err(Errno::NAMETOOLONG);
        }
        let mut buffer = [0; 64];
        let mut descriptors = Vec::new();
        // The lock covers a request and its answer. Poisoning is harmless: a panic cannot occur between them.
        let mut socket = self.socket.lock().unwrap_or_else(PoisonError::into_inner);
        let connected = socket.as_ref().ok_or(Errno::PIPE)?;
        socket::send(connected, &message, &[])?;
        if !socket::readable(connected, self.patience)? {
            *socket = None;
            return Err(Errno::TIMEDOUT);
        }
        let Received::Message(bytes) = socket::receive(connected, &mut buffer, &mut descriptors)?
        else {
            return Err(Errno::PIPE);
        };
        drop(socket);
        let Started(started) = postcard::from_bytes(&buffer[..bytes]).map_err(|_| Errno::PROTO)?;
        started.map_err(Errno::from_raw_os_error)?;
        descriptors.pop().ok_or(Errno::PROTO)
    }
}

impl BrokerSource for Monitor {
    fn broker(&self, request: &AccountRequest) -> Result<OwnedFd, Errno> {
        self.order(&Order::Broker(Start {
            account: &request.account,
            root: request.root.as_os_str().as_bytes(),
            read_only: request.read_only,
            file_mode: request.file_mode,
            directory_mode: PosixOptions::default().directory_mode,
        }))
    }
}

/// The main function of the monitor process.
fn run(server: &OwnedFd, options: Option<&MonitorOptions>, files: &ListedFiles) {
    process::ignore_signals();
    process::set_name("gh-monitor", "monitor, which keeps root's rights");
    let executes = options.is_some_and(|options| options.pam_service.is_some());
    let kept = needed(options);
    if let Err(error) = gridhaul_sandbox::narrow_bounding_set(kept)
        .and_then(|()| gridhaul_sandbox::keep_capabilities(kept))
        .map_err(SandboxError::from)
        .and_then(|()| gridhaul_sandbox::monitor::confine(executes))
    {
        // The server only sees that its requests fail. This message has the reason.
        process::tell(format_args!(
            "the monitor cannot give up what it does not need: {error}"
        ));
        return;
    }
    let brokers = options.map_or(0, |options| options.brokers);
    let mut children = Children::new(brokers, brokers_of_account(brokers));
    children.make_room_for_descriptors();
    let mut budget = match LeaseBudget::new() {
        Ok(budget) => Some(budget),
        Err(error) => {
            process::tell(format_args!("the monitor cannot start: {error}"));
            return;
        }
    };
    let mut buffer = [0; REQUEST_BYTES];
    let mut unwanted = Vec::new();
    while children.wait_for(server.as_fd()).is_ok()
        && let Ok(Received::Message(bytes)) = socket::receive(server, &mut buffer, &mut unwanted)
    {
        unwanted.clear();
        let (started, socket) =
            match start(&buffer[..bytes], options, files, &mut budget, &mut children) {
                Ok(socket) => (Started(Ok(())), Some(socket)),
                Err(errno) => (Started(Err(errno.raw_os_error())), None),
            };
        let Ok(message) = postcard::to_stdvec(&started) else {
            break;
        };
        let socket = socket.as_ref().map(|socket| socket.as_fd());
        if socket::send(server, &message, socket.as_slice()).is_err() {
            break;
        }
    }
    if let Some(path) = &files.socket {
        // The next server replaces a socket that is still there.
        let _ = directory::remove_dead_socket(path);
    }
}

fn start(
    message: &[u8],
    options: Option<&MonitorOptions>,
    files: &ListedFiles,
    budget: &mut Option<LeaseBudget>,
    children: &mut Children,
) -> Result<OwnedFd, Errno> {
    let order: Order<'_> = postcard::from_bytes(message).map_err(|_| Errno::PROTO)?;
    let work = match order {
        Order::Broker(_) if options.is_none() => return Err(Errno::PERM),
        Order::Broker(start) => Work::Broker(start.account),
        Order::Open(_) | Order::Append(_) | Order::Lease { .. } => Work::Open,
    };
    children.admit(work)?;
    let (theirs, ours) = socket::pair()?;
    let pid = process::fork(|| {
        process::leave_children_to_the_kernel();
        // A broker acts for an account, which must not change the limit of leases. The monitor keeps its own mapping.
        let budget = budget
            .take()
            .filter(|_| matches!(order, Order::Lease { .. }));
        // SAFETY: only this socket is used here, and the process ends without using other descriptors of the monitor.
        if unsafe { process::close_all_but(&[ours.as_fd()]) }.is_err() {
            return;
        }
        match (order, options) {
            (Order::Broker(start), Some(options)) => {
                broker::run(&ours, &start, options);
            }
            (Order::Broker(_), None) => {}
            (Order::Open(place), _) => {
                let file = listed(&files.read, place);
                tell_opened(&ours, file.and_then(listed::open));
            }
            (Order::Append(place), _) => {
                let log = listed(&files.append, place);
                let log = log.and_then(|log| log_files::open_log(log, files.log_owner));
                tell_opened(&ours, log);
            }
            (Order::Lease { identity, pool }, _) => {
                let directory = options.and_then(|options| options.gridmapdir.as_deref());
                lease(&ours, directory, (identity, pool), budget.as_ref());
            }
        }
    })
    .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::AGAIN))?;
    children.add(pid, work)?;
    Ok(theirs)
}

/// A file of a list.
fn listed(files: &[PathBuf], place: u64) -> Result<&Path, OpenError> {
    let file = usize::try_from(place).ok().and_then(|at| files.get(at));
    file.map(PathBuf::as_path).ok_or(OpenError::Unlisted)
}

/// Sends an opened file. Runs in a process of its own.
fn tell_opened(server: &OwnedFd, opened: Result<OwnedFd, OpenError>) {
    let (opened, file) = match opened {
        Ok(file) => (Opened(Ok(())), Some(file)),
        Err(error) => (Opened(Err(error)), None),
    };
    if let Ok(message) = postcard::to_stdvec(&opened) {
        let file = file.as_ref().map(|file| file.as_fd());
        // An error means that the server has ended.
        let _ = socket::send(server, &message, file.as_slice());
    }
}

/// Leases an account of a pool. Runs in a process of its own.
fn lease(
    server: &OwnedFd,
    directory: Option<&Path>,
    (identity, pool): (&str, &str),
    budget: Option<&LeaseBudget>,
) {
    let leased = directory
        .zip(budget)
        .ok_or(LeaseError::NoDirectory)
        .and_then(|(directory, budget)| pool_accounts::lease(directory, identity, pool, budget));
    if let Ok(message) = postcard::to_stdvec(&Leased(leased)) {
        // An error means that the server has ended.
        let _ = socket::send(server, &message, &[]);
    }
}

/// The capabilities that the monitor and its children need.
fn needed(options: Option<&MonitorOptions>) -> CapabilitySet {
    // For listed files and the shadow database: on some systems their permission bits exclude even root.
    let reads = CapabilitySet::DAC_READ_SEARCH;
    let Some(options) = options else {
        return reads;
    };
    // Brokers change to their account with these. Opening the root as the account needs no capability.
    let needed = reads | CapabilitySet::SETUID | CapabilitySet::SETGID;
    if options.policy.allow_root {
        needed | ROOTS_RIGHTS
    } else {
        needed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_monitor_that_does_not_answer_is_given_up() {
        let (here, there) = socket::pair().expect("sockets");
        let monitor = Monitor {
            socket: Mutex::new(Some(here)),
            files: ListedFiles::default(),
            pid: rustix::process::getpid(),
            patience: Duration::from_millis(1),
        };
        let refused = monitor.open(0).expect_err("no answer");
        assert_eq!(refused, Errno::TIMEDOUT.into());
        // Its end of the socket is closed, on which it ends.
        assert_eq!(monitor.open(0).expect_err("closed"), Errno::PIPE.into());
        let mut buffer = [0; REQUEST_BYTES];
        let mut received = || socket::receive(&there, &mut buffer, &mut Vec::new());
        assert!(matches!(received(), Ok(Received::Message(_))));
        assert!(matches!(received(), Ok(Received::End)));
    }
}
