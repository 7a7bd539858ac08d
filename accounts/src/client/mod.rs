//! The server's side: which brokers there are, and how many.

mod broker;
mod listing;
mod storage;
pub(crate) mod talk;

use std::collections::HashMap;
use std::fmt;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use tracing::{debug, info};

use self::broker::Broker;
pub use self::storage::AccountStorage;
use crate::messages::LONGEST_PATH;
use crate::policy::{Refusal, words};

/// How long a broker serves new logins. A login that comes later gets another, which looks the account
/// up again: its groups may have changed, or it may have been disabled.
const FRESH: Duration = Duration::from_secs(60);

/// How many brokers of an account may finish what they began while others serve its sessions.
const MOST_FINISHING: usize = 2;

/// The local accounts of a server that was started as root: a broker for each that is active.
#[derive(Debug)]
pub struct Accounts {
    shared: Arc<Shared>,
}

/// How many brokers there are, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BrokerLimits {
    /// Brokers at a time. Past it, one that is idle ends.
    pub brokers: usize,
    /// How long a broker may do nothing before it ends. The next call starts another.
    pub idle: Duration,
    /// How long a call may take, but for the removal of a tree, which takes as long as its caller wants. A broker
    /// that needs longer is taken for one whose files hang.
    pub call: Duration,
}

impl BrokerLimits {
    /// What a call may take by default: as long as a file system over a network that repeats what was lost.
    pub const CALL: Duration = Duration::from_secs(60);
}

/// How many of so many brokers one account may have at work: others get theirs whatever it does. It has more than one
/// where it is granted several roots, and while older ones finish what they began.
pub(crate) fn brokers_of_account(brokers: usize) -> usize {
    (brokers / 4).max(1 + MOST_FINISHING)
}

/// Whose files are wanted, and how.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct AccountRequest {
    /// The local account's name.
    pub account: String,
    /// The directory that paths start from, opened as the account. `$HOME` and `$USER` in it stand for the
    /// account's home directory and its name.
    pub root: PathBuf,
    /// Nothing may be changed.
    pub read_only: bool,
    /// Permission bits of new files, less the umask.
    pub file_mode: u32,
}

/// Why the files of a local account cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum AccountError {
    /// The account may not be used, or cannot.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// Without root there is one account.
    #[error(
        "the server was started without root by '{own}', and the map asks for '{wanted}': start it as \
         root, or map to '{own}'"
    )]
    NotOurs {
        /// The server's own account.
        own: String,
        /// The account that was asked for.
        wanted: String,
    },
    /// Every broker is at work.
    #[error(
        "{0} accounts are at work, and that is the limit: try again later, or raise max-brokers"
    )]
    Busy(usize),
    /// The account database, or the root's file system, does not answer.
    #[error("looking up the account and opening its root took more than {} seconds", .0.as_secs())]
    Silent(Duration),
    /// The account's files hang: an earlier call had no answer in time.
    #[error("the account's files do not answer within {} seconds", .0.as_secs())]
    Unresponsive(Duration),
    /// No broker can be started: the monitor is gone, or the machine lacks something.
    #[error("no process can be started to act as the account: {}", words(*.0))]
    Monitor(Errno),
}

/// Has brokers started.
pub trait BrokerSource: Send + Sync + fmt::Debug {
    /// Has a broker started for an account, and returns the socket to it. May block, but not for what the account
    /// database or the account's files take.
    ///
    /// # Errors
    ///
    /// When no process can be started, or this account may not have one.
    fn broker(&self, request: &AccountRequest) -> Result<OwnedFd, Errno>;
}

#[derive(Debug)]
struct Shared {
    source: Arc<dyn BrokerSource>,
    limits: BrokerLimits,
    table: Mutex<Table>,
    /// Wakes the thread that ends idle brokers.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Table {
    /// What new logins get.
    newest: HashMap<AccountRequest, Arc<Broker>>,
    /// All that somebody still has.
    all: Vec<Weak<Broker>>,
    /// The thread that ends idle brokers is there.
    watched: bool,
    closed: bool,
}

impl Accounts {
    /// Starts no broker and no thread yet.
    pub fn new(source: Arc<dyn BrokerSource>, limits: BrokerLimits) -> Self {
        Self {
            shared: Arc::new(Shared {
                source,
                limits,
                table: Mutex::default(),
                changed: Condvar::new(),
            }),
        }
    }

    /// The files of an account, as they are at a login: starts a broker if there is none yet. May block.
    ///
    /// # Errors
    ///
    /// When the account may not be used, its root cannot be opened, or there are too many brokers.
    pub fn open(&self, request: &AccountRequest) -> Result<AccountStorage, AccountError> {
        if request.root.as_os_str().len() > LONGEST_PATH {
            return Err(AccountError::Monitor(Errno::NAMETOOLONG));
        }
        let mut broker = self.shared.newest(request);
        if let Some(error) = broker.root_has_gone() {
            let (account, root) = (&request.account, request.root.display());
            info!(account, %root, %error, "a root is not what was opened: it is opened anew");
            // Sessions that have the old one keep it.
            self.shared.forget(request, &broker);
            broker = self.shared.newest(request);
        }
        if let Err(error) = broker.start() {
            self.shared.forget(request, &broker);
            return Err(error);
        }
        Ok(AccountStorage::new(broker))
    }

    /// How many brokers there are.
    pub fn running(&self) -> usize {
        let table = self.shared.table();
        let brokers = table.all.iter().filter_map(Weak::upgrade);
        brokers.filter(|broker| broker.counts()).count()
    }

    /// Lets the next login of every account look it up again.
    pub fn renew(&self) {
        self.shared.table().newest.clear();
    }
}

impl Drop for Accounts {
    fn drop(&mut self) {
        let mut table = self.shared.table();
        table.closed = true;
        table.newest.clear();
        self.shared.changed.notify_all();
    }
}

impl Shared {
    fn table(&self) -> MutexGuard<'_, Table> {
        // Every change of the table is whole, so a panic elsewhere does not spoil it.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The broker for a new login: the newest one, or another if that is too old.
    fn newest(self: &Arc<Self>, request: &AccountRequest) -> Arc<Broker> {
        let mut table = self.table();
        if let Some(broker) = table.newest.get(request)
            && !broker.is_stale(FRESH)
        {
            return Arc::clone(broker);
        }
        let broker = Arc::new(Broker::new(self, request.clone()));
        table.all.retain(|broker| broker.strong_count() > 0);
        table.all.push(Arc::downgrade(&broker));
        table.newest.insert(request.clone(), Arc::clone(&broker));
        broker
    }

    /// Keeps no broker for an account that may not be used.
    fn forget(&self, request: &AccountRequest, broker: &Arc<Broker>) {
        let mut table = self.table();
        let same = |newest: &Arc<Broker>| Arc::ptr_eq(newest, broker);
        if table.newest.get(request).is_some_and(same) {
            table.newest.remove(request);
        }
    }

    /// Asks the monitor for a broker, ending an idle one if there are too many.
    fn start(
        self: &Arc<Self>,
        broker: &Broker,
        request: &AccountRequest,
    ) -> Result<OwnedFd, AccountError> {
        self.make_room(broker)?;
        self.watch();
        self.source.broker(request).map_err(AccountError::Monitor)
    }

    /// Ends the broker that has been idle for longest, if there are as many as there may be.
    fn make_room(&self, newcomer: &Broker) -> Result<(), AccountError> {
        let mut table = self.table();
        // Those that nobody has a session with are not needed to know that an account is new.
        let used = |broker: &Arc<Broker>| Arc::strong_count(broker) > 1 || broker.counts();
        table.newest.retain(|_, broker| used(broker));
        let others: Vec<_> = table
            .others(newcomer)
            .filter(|broker| broker.counts())
            .collect();
        if others.len() < self.limits.brokers {
            return Ok(());
        }
        let idle = others
            .iter()
            .filter_map(|broker| Some((broker.idle_since()?, broker)))
            .min_by_key(|(since, _)| *since);
        match idle {
            Some((_, broker)) if broker.end_if_idle(Duration::ZERO) => Ok(()),
            _ => Err(AccountError::Busy(self.limits.brokers)),
        }
    }

    /// Starts the thread that ends idle brokers, or tells it that there is one more.
    fn watch(self: &Arc<Self>) {
        let mut table = self.table();
        if !table.watched {
            let shared = Arc::clone(self);
            let thread = std::thread::Builder::new()
                .name("gridhaul-idle".to_owned())
                .spawn(move || shared.end_idle());
            match thread {
                Ok(_) => table.watched = true,
                // The next one tries again; until then brokers end when they are too many.
                Err(error) => debug!(%error, "idle brokers are not ended"),
            }
        }
        self.changed.notify_all();
    }

    fn end_idle(&self) {
        let mut table = self.table();
        while !table.closed {
            let now = Instant::now();
            let mut next: Option<Duration> = None;
            for broker in table.all.iter().filter_map(Weak::upgrade) {
                if broker.end_if_idle(self.limits.idle) || !broker.counts() {
                    continue;
                }
                // One that is at work is looked at again when it could have been idle for long enough.
                let since = broker.idle_since().unwrap_or(now);
                let wait = (since + self.limits.idle).saturating_duration_since(now);
                next = Some(next.map_or(wait, |next| next.min(wait)));
            }
            table = match next {
                Some(wait) => {
                    let waited = self.changed.wait_timeout(table, wait);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
                None => {
                    let waited = self.changed.wait(table);
                    waited.unwrap_or_else(PoisonError::into_inner)
                }
            };
        }
    }
}

impl Table {
    /// All brokers but one.
    fn others(&self, one: &Broker) -> impl Iterator<Item = Arc<Broker>> {
        let all = self.all.iter().filter_map(Weak::upgrade);
        all.filter(move |broker| !std::ptr::eq(Arc::as_ptr(broker), one))
    }
}
