//! A broker: the process that opens the files of one account, beneath one root.
//!
//! It begins as a copy of the monitor, looks the account up, becomes it, opens its root, and gives up
//! everything else. Then it answers the calls of `Storage` that come over its sockets, one thread for
//! each, until the server closes them. It writes no log: what there is to say it answers.

mod confine;
mod serve;

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;
use std::sync::{Arc, Barrier};
use std::thread::JoinHandle;

use gridhaul_sandbox::{SandboxError, broker as sandbox};
use gridhaul_storage::{PosixStorage, StorageError};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit};

pub(crate) use self::confine::ROOTS_RIGHTS;
pub(crate) use self::serve::Broker;
use crate::account::LocalAccount;
use crate::messages::{Hello, Ready, Start, path};
use crate::options::MonitorOptions;
use crate::pam;
use crate::refusal::{Refusal, os_error};
use crate::socket::{self, MOST_DESCRIPTORS};

/// How many calls of one account are answered at a time: as many as may hang in a file system before
/// the account's other calls wait for them.
const CALLS: usize = MOST_DESCRIPTORS;

/// Descriptors: standard ones, root and sockets, a file and its directories for each call, listings.
const DESCRIPTORS: u64 = 64 + 24 * CALLS as u64 + serve::LISTINGS as u64;

/// The life of a broker, in a process of its own.
pub(crate) fn run(server: &OwnedFd, start: &Start<'_>, options: &MonitorOptions) {
    // For the list of processes; failing to set the name does no harm.
    let _ = rustix::thread::set_name(c"gridhaul-broker");
    let (hello, prepared) = match prepare(start, options) {
        Ok(prepared) => (Hello(Ok(prepared.ready.clone())), Some(prepared)),
        Err(refusal) => (Hello(Err(refusal)), None),
    };
    let Ok(message) = postcard::to_stdvec(&hello) else {
        return;
    };
    let sockets = prepared.iter().flat_map(|prepared| &prepared.sockets);
    let sockets: Vec<BorrowedFd<'_>> = sockets.map(|socket| socket.as_fd()).collect();
    // If the server is gone, so are the other ends, and the threads end.
    let _ = socket::send(server, &message, &sockets);
    drop(sockets);
    if let Some(Prepared {
        sockets, threads, ..
    }) = prepared
    {
        drop(sockets);
        for thread in threads {
            // One that panicked has said so, and the server sees that its socket is closed.
            let _ = thread.join();
        }
    }
}

/// A broker that can do what it must, and nothing else any more.
struct Prepared {
    ready: Ready,
    /// The server's ends.
    sockets: Vec<OwnedFd>,
    threads: Vec<JoinHandle<()>>,
}

fn prepare(start: &Start<'_>, options: &MonitorOptions) -> Result<Prepared, Refusal> {
    let account = LocalAccount::find(start.account)?;
    options.policy.check(&account)?;
    if let Some(service) = &options.pam_service {
        pam::check(service, &account.name)?;
    }
    let machine = |what: &str, reason: String| Refusal::Machine {
        account: account.name.clone(),
        what: what.to_owned(),
        reason,
    };
    account.assume()?;
    confine::keep_rights_of(account.uid)
        .map_err(|error| machine("giving rights up", error.to_string()))?;
    if let Some(umask) = options.umask {
        rustix::process::umask(Mode::from_raw_mode(umask));
    }
    let limit = Rlimit {
        current: Some(DESCRIPTORS),
        maximum: Some(DESCRIPTORS),
    };
    rustix::process::setrlimit(Resource::Nofile, limit)
        .map_err(|error| machine("setrlimit", os_error(error)))?;

    // From here on the kernel judges as it does for any program of the account.
    let root = account.expand(path(start.root));
    let directory = |error: &StorageError| Refusal::Directory {
        account: account.name.clone(),
        root: root.display().to_string(),
        reason: error.reason(),
    };
    let storage = PosixStorage::open(&root, start.options()).map_err(|error| directory(&error))?;
    let held = hold(&root).map_err(|errno| directory(&StorageError::new("open", errno)))?;
    let home = account.home_beneath(&root, &storage);
    let confined = |error: SandboxError| machine("confinement", error.to_string());
    sandbox::to_directory(held, start.read_only).map_err(confined)?;

    let pid = std::process::id();
    let broker = Arc::new(Broker::new(storage));
    let begun = Arc::new(Barrier::new(CALLS + 1));
    let mut sockets = Vec::with_capacity(CALLS);
    let mut threads = Vec::with_capacity(CALLS);
    for _ in 0..CALLS {
        let (ours, theirs) =
            socket::pair().map_err(|error| machine("socketpair", os_error(error)))?;
        let (broker, begun) = (Arc::clone(&broker), Arc::clone(&begun));
        let thread = std::thread::Builder::new()
            .stack_size(serve::STACK)
            .spawn(move || {
                begun.wait();
                broker.serve(&ours);
            })
            .map_err(|error| machine("thread", error.to_string()))?;
        sockets.push(theirs);
        threads.push(thread);
    }
    // What it takes to start a thread is forbidden after this.
    begun.wait();
    sandbox::filter(start.read_only)
        .and_then(|filter| filter.enforce())
        .map_err(confined)?;
    let ready = Ready {
        pid,
        home: PathBuf::into_os_string(home).into_vec(),
    };
    Ok(Prepared {
        ready,
        sockets,
        threads,
    })
}

/// The directory itself, for the rule that it is the only one.
fn hold(root: &std::path::Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(root, flags, Mode::empty())
}
