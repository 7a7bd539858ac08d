//! A broker: the process that opens the files of one account beneath one root.
//!
//! It is forked from the monitor, looks the account up, changes to it, opens its root, and confines itself. Then it answers
//! the calls of `Storage` from its sockets, with one thread for each, until the server closes them. It writes no log: all
//! errors are in its answers.

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
pub(crate) use self::serve::Handler;
use crate::account::LocalAccount;
use crate::messages::{Hello, Ready, Start, path};
use crate::options::MonitorOptions;
use crate::pam;
use crate::process;
use crate::refusal::{Refusal, os_error};
use crate::socket::{self, MOST_DESCRIPTORS};

/// The number of calls that are answered concurrently: if this many hang in a file system, the account's other calls wait.
const CALLS: usize = MOST_DESCRIPTORS;

/// The limit of descriptors: standard ones, root and sockets, a file and its directories for each call, listings.
const DESCRIPTORS: u64 = 64 + 24 * CALLS as u64 + serve::LISTINGS as u64;

/// The main function of a broker process.
pub(crate) fn run(server: &OwnedFd, start: &Start<'_>, options: &MonitorOptions) {
    // The name of the account comes from a request.
    let account = start.account.escape_debug().to_string();
    process::set_name(
        &format!("gh-broker:{account}"),
        &format!("broker of {account}"),
    );
    let (hello, prepared) = match prepare(start, options) {
        Ok(prepared) => (Hello(Ok(prepared.ready.clone())), Some(prepared)),
        Err(refusal) => (Hello(Err(refusal)), None),
    };
    let Ok(message) = postcard::to_stdvec(&hello) else {
        return;
    };
    let sockets = prepared.iter().flat_map(|prepared| &prepared.sockets);
    let sockets: Vec<BorrowedFd<'_>> = sockets.map(|socket| socket.as_fd()).collect();
    // If the server has ended, the threads end because their sockets are closed.
    let _ = socket::send(server, &message, &sockets);
    drop(sockets);
    if let Some(Prepared {
        sockets, threads, ..
    }) = prepared
    {
        drop(sockets);
        for thread in threads {
            // After a panic the server finds the thread's socket closed.
            let _ = thread.join();
        }
    }
}

/// A broker that is confined and ready.
struct Prepared {
    ready: Ready,
    /// The server's ends of the sockets.
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

    // From here on the kernel checks the permissions of the account.
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
    let handler = Arc::new(Handler::new(storage));
    let begun = Arc::new(Barrier::new(CALLS + 1));
    let mut sockets = Vec::with_capacity(CALLS);
    let mut threads = Vec::with_capacity(CALLS);
    for _ in 0..CALLS {
        let (ours, theirs) =
            socket::pair().map_err(|error| machine("socketpair", os_error(error)))?;
        let (handler, begun) = (Arc::clone(&handler), Arc::clone(&begun));
        let thread = std::thread::Builder::new()
            .stack_size(serve::STACK)
            .spawn(move || {
                begun.wait();
                handler.serve(&ours);
            })
            .map_err(|error| machine("thread", error.to_string()))?;
        sockets.push(theirs);
        threads.push(thread);
    }
    // All threads must have started: the filter forbids starting threads.
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

/// A descriptor of the root for the Landlock rule.
fn hold(root: &std::path::Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(root, flags, Mode::empty())
}
