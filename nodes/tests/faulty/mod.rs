//! Storage of a node that hangs or panics.

use std::net::TcpStream;
use std::path::Path;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

use gridhaul_stack::Cancel;
use gridhaul_storage::{ChecksumAlgorithm, DirectoryStream, Metadata, OpenedFile, StorageError};
use gridhaul_transfer::{ChecksumRequest, DataNode as _};

use crate::read_only::{ReadOnly, Reads};
use crate::site::{FILE_THREADS, Remote, listen, local_with, wait_until};

/// What the storage of a session does wrong.
#[derive(Debug, Default)]
struct Fault {
    /// `stat` waits until this is true.
    opened: Mutex<bool>,
    changed: Condvar,
    /// Calls that wait.
    waiting: AtomicUsize,
}

/// A storage that is wrong.
#[derive(Debug)]
struct Faulty(Arc<Fault>);

impl Reads for Faulty {
    fn stat(&self, _: &Path) -> Result<Metadata, StorageError> {
        self.0.waiting.fetch_add(1, Ordering::AcqRel);
        let mut opened = self.0.opened.lock().expect("no panic");
        while !*opened {
            opened = self.0.changed.wait(opened).expect("no panic");
        }
        Err(StorageError::new("stat", rustix::io::Errno::NOENT))
    }

    fn open_read(&self, _: &Path) -> Result<OpenedFile, StorageError> {
        panic!("a defect of the storage")
    }

    fn list(&self, _: &Path) -> Result<Box<dyn DirectoryStream>, StorageError> {
        unimplemented!()
    }
}

/// A node on which the storage of sessions with the name `faulty` is wrong.
fn remote() -> (Remote, Arc<Fault>) {
    let fault = Arc::new(Fault::default());
    let own = Arc::clone(&fault);
    let node = local_with(move |name, storage| match name {
        "faulty" => Arc::new(ReadOnly(Faulty(Arc::clone(&own)))),
        _ => storage,
    });
    (Remote::with(node), fault)
}

#[test]
fn a_client_whose_file_system_hangs_leaves_threads_for_others() {
    /// More than a node has blocking threads.
    const CALLS: usize = 300;
    let (remote, fault) = remote();
    let other = remote.attach();
    thread::scope(|scope| {
        // A session has 32 calls at a time.
        for _ in 0..CALLS.div_ceil(30) {
            let hung = remote.node.attach(&remote.account_of("faulty"));
            let storage = hung.expect("attached").storage();
            for _ in 0..30 {
                let storage = Arc::clone(&storage);
                scope.spawn(move || storage.stat(Path::new("/")).expect_err("no file"));
            }
        }
        wait_until(|| fault.waiting.load(Ordering::Acquire) >= 3 * FILE_THREADS / 4);
        for _ in 0..100 {
            other.storage().stat(Path::new("/")).expect("it is served");
        }
        remote.attach();
        let waiting = fault.waiting.load(Ordering::Acquire);
        assert!(waiting < FILE_THREADS, "{waiting} threads hang");
        *fault.opened.lock().expect("no panic") = true;
        fault.changed.notify_all();
    });
}

#[test]
fn a_session_of_which_all_calls_hang_ends_with_its_connection() {
    /// More than a session may have at a time.
    const CALLS: usize = 40;
    let (remote, fault) = remote();
    let hung = remote.node.attach(&remote.account_of("faulty"));
    let hung = hung.expect("attached");
    let addresses = listen(&*hung, 1);
    thread::scope(|scope| {
        for _ in 0..CALLS {
            let storage = hung.storage();
            scope.spawn(move || storage.stat(Path::new("/")).expect_err("no file"));
        }
        wait_until(|| fault.waiting.load(Ordering::Acquire) > 0);
        // Behind all calls. It returns because the node takes requests although they hang.
        listen(&*hung, 1);
        remote.cut();
        // The node closes the ports of a session that has ended.
        wait_until(|| TcpStream::connect(addresses[0]).is_err());
        *fault.opened.lock().expect("no panic") = true;
        fault.changed.notify_all();
    });
}

#[test]
fn a_checksum_that_panics_is_an_error_and_nothing_of_it_stays() {
    let (remote, _) = remote();
    let session = remote.node.attach(&remote.account_of("faulty"));
    let session = session.expect("attached");
    let request = ChecksumRequest {
        path: "/a".into(),
        algorithm: ChecksumAlgorithm::Md5,
        offset: 0,
        length: None,
    };
    for _ in 0..100 {
        let error = session
            .checksum(&request, &AtomicU64::new(0), &Cancel::new())
            .expect_err("it panics");
        assert!(error.to_string().contains("Protocol error"), "{error}");
    }
}
