//! The pool of brokers: assigns a broker to each login, limits their number, and ends idle ones.
//!
//! Each root that an account is granted has one broker, which serves all its sessions. A login that needs a newer
//! broker replaces it: sessions move to the new one, and the old one finishes the calls and listings that it has begun.
//! The number of such old brokers is bounded for each account, and so is the account's share of the pool.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use tracing::debug;

use super::broker::{Broker, Launcher};
use super::counts::{BrokerCounts, Counts};
use super::error::AccountError;
use super::limits::{BrokerLimits, MOST_FINISHING, brokers_of_account};
use super::source::{AccountRequest, BrokerSource};

/// How long a broker serves new logins at most if it cannot be replaced because too many old ones are still busy.
const LONGEST_SERVICE: Duration = Duration::from_secs(600);

/// All brokers of a server.
#[derive(Debug)]
pub(super) struct BrokerPool {
    source: Arc<dyn BrokerSource>,
    limits: BrokerLimits,
    table: Mutex<Table>,
    /// Wakes the thread that ends idle brokers.
    changed: Condvar,
    counts: Counts,
}

#[derive(Debug, Default)]
struct Table {
    /// The brokers of new logins.
    newest: HashMap<AccountRequest, Arc<Broker>>,
    /// All brokers that are in use.
    all: Vec<Weak<Broker>>,
    /// Brokers that were started before this time serve no new logins.
    renewed: Option<Instant>,
    /// The thread that ends idle brokers runs.
    has_reaper: bool,
    closed: bool,
}

impl BrokerPool {
    pub(super) fn new(source: Arc<dyn BrokerSource>, limits: BrokerLimits) -> Self {
        Self {
            source,
            limits,
            table: Mutex::default(),
            changed: Condvar::new(),
            counts: Counts::default(),
        }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        // The table is consistent whenever the lock is released, so poisoning is harmless.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The broker for a new login: the newest one, or a new one if that is too old.
    pub(super) fn newest(
        self: &Arc<Self>,
        request: &AccountRequest,
    ) -> Result<Arc<Broker>, AccountError> {
        let mut table = self.table();
        let Some(newest) = table.newest.get(request).cloned() else {
            return table.begin(self, request);
        };
        let Some(started) = newest.started_at() else {
            return Ok(newest);
        };
        let is_renewed = table.renewed.is_some_and(|renewed| started <= renewed);
        if !is_renewed && started.elapsed() < self.limits.fresh {
            return Ok(newest);
        }
        match table.begin(self, request) {
            Err(AccountError::Finishing(_))
                if !is_renewed && started.elapsed() < LONGEST_SERVICE =>
            {
                Ok(newest)
            }
            begun => begun,
        }
    }

    /// A new broker in place of one whose root was replaced in the file system.
    pub(super) fn replace(
        self: &Arc<Self>,
        request: &AccountRequest,
        gone: &Arc<Broker>,
    ) -> Result<Arc<Broker>, AccountError> {
        let mut table = self.table();
        match table.newest.get(request) {
            // Another login has replaced it already.
            Some(newest) if !Arc::ptr_eq(newest, gone) => Ok(Arc::clone(newest)),
            _ => table.begin(self, request),
        }
    }

    /// Moves the sessions of a request to the broker of new logins, now that it runs. The others remain only until
    /// their calls and listings are finished.
    pub(super) fn retire_others(&self, serving: &Arc<Broker>) {
        let table = self.table();
        let newest = table.newest.get(serving.request());
        if newest.is_some_and(|newest| Arc::ptr_eq(newest, serving)) {
            table
                .others(serving)
                .filter(|other| other.request() == serving.request())
                .for_each(|other| other.retire(serving));
        }
    }

    /// The number of brokers that run.
    pub(super) fn running(&self) -> usize {
        let table = self.table();
        let brokers = table.all.iter().filter_map(Weak::upgrade);
        brokers.filter(|broker| broker.counts()).count()
    }

    /// What has happened to brokers since the start.
    pub(super) fn counted(&self) -> BrokerCounts {
        self.counts.now()
    }

    /// Excludes all current brokers from new logins.
    pub(super) fn renew(&self) {
        let mut table = self.table();
        table.renewed = Some(Instant::now());
        table
            .newest
            .retain(|_, broker| Arc::strong_count(broker) > 1);
    }

    /// Ends the thread that ends idle brokers. The brokers end with their sessions.
    pub(super) fn close(&self) {
        let mut table = self.table();
        table.closed = true;
        table.newest.clear();
        self.changed.notify_all();
    }

    /// Removes the broker of an account that may not be used.
    pub(super) fn forget(&self, request: &AccountRequest, broker: &Arc<Broker>) {
        let mut table = self.table();
        let same = |newest: &Arc<Broker>| Arc::ptr_eq(newest, broker);
        if table.newest.get(request).is_some_and(same) {
            table.newest.remove(request);
        }
    }

    /// Ends the broker that has been idle for longest if a limit is reached: that of the account, or that of all.
    fn make_room(&self, newcomer: &Broker) -> Result<(), AccountError> {
        let mut table = self.table();
        // A broker without a process or a session holds no state that a new one would not have.
        let is_used = |broker: &Arc<Broker>| Arc::strong_count(broker) > 1 || broker.counts();
        table.newest.retain(|_, broker| is_used(broker));
        let others: Vec<_> = table
            .others(newcomer)
            .filter(|broker| broker.counts())
            .collect();
        let account = &newcomer.request().account;
        let of_account: Vec<_> = others
            .iter()
            .filter(|broker| broker.request().account == *account)
            .cloned()
            .collect();
        let share = brokers_of_account(self.limits.brokers);
        if of_account.len() >= share {
            return match end_an_idle(&of_account) {
                true => Ok(()),
                false => Err(AccountError::AccountBusy(share)),
            };
        }
        if others.len() < self.limits.brokers || end_an_idle(&others) {
            return Ok(());
        }
        Err(AccountError::Busy(self.limits.brokers))
    }

    /// Starts the thread that ends idle brokers, or wakes it for a new one.
    fn ensure_reaper(self: &Arc<Self>) {
        let mut table = self.table();
        if !table.has_reaper {
            let pool = Arc::clone(self);
            let thread = std::thread::Builder::new()
                .name("gridhaul-idle".to_owned())
                .spawn(move || pool.end_idle());
            match thread {
                Ok(_) => table.has_reaper = true,
                // The next start tries again; until then idle brokers end only when a limit is reached.
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
                // A busy broker is examined again at the earliest time at which it could have been idle for long enough.
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

impl Launcher for BrokerPool {
    fn launch(self: Arc<Self>, broker: &Broker) -> Result<OwnedFd, AccountError> {
        self.make_room(broker)?;
        self.ensure_reaper();
        self.source
            .broker(broker.request())
            .map_err(AccountError::Monitor)
    }

    fn counts(&self) -> &Counts {
        &self.counts
    }
}

/// Ends the broker that has been idle for longest; false if none is idle.
fn end_an_idle(brokers: &[Arc<Broker>]) -> bool {
    let idle = brokers
        .iter()
        .filter_map(|broker| Some((broker.idle_since()?, broker)))
        .min_by_key(|(since, _)| *since);
    idle.is_some_and(|(_, broker)| broker.end_if_idle(Duration::ZERO))
}

impl Table {
    /// Adds a broker for new logins. The previous one will finish its calls and listings.
    fn begin(
        &mut self,
        pool: &Arc<BrokerPool>,
        request: &AccountRequest,
    ) -> Result<Arc<Broker>, AccountError> {
        let finishing = self.finishing(request);
        if finishing > MOST_FINISHING {
            return Err(AccountError::Finishing(finishing));
        }
        let launcher = Arc::downgrade(pool) as Weak<dyn Launcher>;
        let broker = Arc::new(Broker::new(launcher, request.clone(), pool.limits.call));
        self.all.retain(|broker| broker.strong_count() > 0);
        self.all.push(Arc::downgrade(&broker));
        self.newest.insert(request.clone(), Arc::clone(&broker));
        Ok(broker)
    }

    /// The number of the account's replaced brokers that would still be busy if a new one replaced the broker of this
    /// request.
    fn finishing(&self, request: &AccountRequest) -> usize {
        let serves_others = |broker: &Arc<Broker>| {
            let newest = self.newest.get(broker.request());
            broker.request() != request && newest.is_some_and(|newest| Arc::ptr_eq(newest, broker))
        };
        let all = self.all.iter().filter_map(Weak::upgrade);
        all.filter(|broker| broker.request().account == request.account)
            .filter(|broker| !serves_others(broker) && broker.is_busy())
            .count()
    }

    /// All brokers except this one.
    fn others(&self, one: &Broker) -> impl Iterator<Item = Arc<Broker>> {
        let all = self.all.iter().filter_map(Weak::upgrade);
        all.filter(move |broker| !std::ptr::eq(Arc::as_ptr(broker), one))
    }
}
