//! Brokers of three accounts, with the permission checks of the kernel.

mod brokers;
mod listed;
mod machine;
#[path = "../common/monitored.rs"]
mod monitored;
mod rights;

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use gridhaul_accounts::{
    AccountPolicy, AccountRequest, AccountStorage, Accounts, BrokerLimits, ListedFiles,
    MonitorOptions,
};
use gridhaul_storage::{Entries, OpenedFile, Storage, StorageError, WriteMode};
use machine::{PLACE, TestAccount};
use rustix::io::Errno;
use tempfile::TempDir;

/// The pool that is shared by tests which do not count brokers.
static ACCOUNTS: LazyLock<Accounts> = LazyLock::new(|| accounts(BROKERS, Duration::from_secs(600)));

/// The number of brokers that every monitor is configured with.
const BROKERS: usize = 64;

/// The time after which an operation is taken for stuck.
const TIME_LIMIT: Duration = Duration::from_secs(30);

/// Above the uid of `daemon`, which every machine has.
const LEAST_UID: u32 = 2;

fn monitor_options() -> Result<(MonitorOptions, ListedFiles), String> {
    machine::arrange()?;
    let options = MonitorOptions {
        gridmapdir: None,
        policy: AccountPolicy {
            least_uid: LEAST_UID,
            ..AccountPolicy::default()
        },
        pam_service: Some(machine::PAM_SERVICE.to_owned()),
        umask: Some(0o027),
        brokers: BROKERS,
    };
    Ok((options, listed::files()))
}

fn accounts(brokers: usize, idle: Duration) -> Accounts {
    let limits = BrokerLimits {
        brokers,
        idle,
        call: BrokerLimits::CALL,
        fresh: BrokerLimits::FRESH,
    };
    accounts_within(limits)
}

fn accounts_within(limits: BrokerLimits) -> Accounts {
    Accounts::new(Arc::new(monitored::take_monitor()), limits)
}

fn request(account: &str, root: impl AsRef<Path>) -> AccountRequest {
    AccountRequest {
        account: account.to_owned(),
        root: root.as_ref().to_owned(),
        read_only: false,
        file_mode: 0o666,
    }
}

/// A directory of an account, and its storage.
struct Served {
    directory: TempDir,
    storage: AccountStorage,
}

impl Served {
    fn new(account: TestAccount) -> Self {
        Self::by(&ACCOUNTS, account)
    }

    fn by(accounts: &Accounts, account: TestAccount) -> Self {
        let directory = directory_of(account.uid, account.uid, 0o700);
        let storage = accounts
            .open(&request(account.name, directory.path()))
            .expect("the account may");
        Self { directory, storage }
    }

    fn real(&self, path: &str) -> PathBuf {
        self.directory.path().join(path)
    }
}

fn directory_of(uid: u32, gid: u32, mode: u32) -> TempDir {
    let directory = TempDir::new_in(PLACE).unwrap();
    own(directory.path(), uid, gid, mode);
    directory
}

fn own(path: &Path, uid: u32, gid: u32, mode: u32) {
    chown(path, Some(uid), Some(gid)).unwrap();
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

fn path(path: &str) -> &Path {
    Path::new(path)
}

fn errno<T>(result: Result<T, StorageError>) -> Option<Errno> {
    result.err().map(|error| error.errno)
}

fn write(storage: &dyn Storage, path: &Path, content: &[u8]) -> Result<(), StorageError> {
    let file = storage.open_write(path, WriteMode::Truncate)?;
    let written = rustix::io::pwrite(&file, content, 0).unwrap();
    assert_eq!(written, content.len());
    file.close()
}

fn content(file: &OpenedFile) -> Vec<u8> {
    let mut content = vec![0; usize::try_from(file.size().unwrap()).unwrap()];
    let read = rustix::io::pread(file, &mut content, 0).unwrap();
    assert_eq!(read, content.len());
    content
}

fn names(storage: &dyn Storage, path: &Path) -> Result<Vec<String>, StorageError> {
    let mut entries = Entries::new(storage.list(path)?, 4096);
    let mut names = Vec::new();
    while let Some(entry) = entries.next_entry()? {
        names.push(entry.name.into_string().unwrap());
    }
    Ok(names)
}

/// A field of `/proc/PID/status`.
fn status(pid: u32, title: &str) -> String {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(title));
    line.expect("every process has it")
        .trim_start_matches(':')
        .trim()
        .to_owned()
}

/// The descriptors of an idle broker: standard ones, the root twice, `/proc/self/fd`, and a socket for each thread.
const BROKERS_DESCRIPTORS: usize = 3 + 2 + 1 + 16;

/// Waits until a process has at most this many descriptors. It closes a descriptor after sending it, which may be later than
/// its receipt.
fn wait_for_few_descriptors(process: u32, few: usize) {
    let begun = Instant::now();
    loop {
        let descriptors = fs::read_dir(format!("/proc/{process}/fd")).unwrap();
        let held = descriptors.count();
        if held <= few {
            break;
        }
        assert!(begun.elapsed() < TIME_LIMIT, "{held} descriptors");
        std::thread::yield_now();
    }
}
