//! All brokers of a server: which one serves which login, how many there may be, and which one ends.
//!
//! For each root that an account is granted one broker serves its sessions. When a login needs a newer one, sessions go
//! over to that, and the older one finishes the calls and listings that it has begun. The number of those is bounded
//! for each account, and so is its part of all brokers.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use tracing::debug;

use super::broker::Broker;
use super::{AccountError, AccountRequest, BrokerLimits, BrokerSource};

/// How many brokers of an account may finish what they began while others serve its sessions.
const MOST_FINISHING: usize = 2;

/// For how long a broker serves new logins if it cannot be replaced, because too many finish what they began.
const LONGEST: Duration = Duration::from_secs(600);

/// How many of so many brokers one account may have at work: others get theirs whatever it does. It has more than one
/// where it is granted several roots, and while older ones finish what they began.
pub(crate) fn brokers_of_account(brokers: usize) -> usize {
    (brokers / 4).max(1 + MOST_FINISHING)
}

#[derive(Debug)]
pub(super) struct Shared {
    source: Arc<dyn BrokerSource>,
    pub(super) limits: BrokerLimits,
    table: Mutex<Table>,
    /// Wakes the thread that ends idle brokers.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Table {
    /// What new logins get.
    newest: HashMap<AccountRequest, Arc<Broker>>,
    /// All that are still in use.
    all: Vec<Weak<Broker>>,
    /// Brokers that are older serve no new logins.
    renewed: Option<Instant>,
    /// The thread that ends idle brokers is there.
    watched: bool,
    closed: bool,
}

impl Shared {
    pub(super) fn new(source: Arc<dyn BrokerSource>, limits: BrokerLimits) -> Self {
        Self {
            source,
            limits,
            table: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        // Every change of the table is whole, so a panic elsewhere does not spoil it.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The broker for a new login: the newest one, or another if that is too old.
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
            Err(AccountError::Finishing(_)) if !is_renewed && started.elapsed() < LONGEST => {
                Ok(newest)
            }
            begun => begun,
        }
    }

    /// Another broker in place of one whose root has gone.
    pub(super) fn replace(
        self: &Arc<Self>,
        request: &AccountRequest,
        gone: &Arc<Broker>,
    ) -> Result<Arc<Broker>, AccountError> {
        let mut table = self.table();
        match table.newest.get(request) {
            // Another login has replaced it meanwhile.
            Some(newest) if !Arc::ptr_eq(newest, gone) => Ok(Arc::clone(newest)),
            _ => table.begin(self, request),
        }
    }

    /// Leaves the sessions of a request to the broker that new logins get, now that it runs. So an account has one for
    /// each root, and others only as long as they finish something.
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

    /// How many brokers there are.
    pub(super) fn running(&self) -> usize {
        let table = self.table();
        let brokers = table.all.iter().filter_map(Weak::upgrade);
        brokers.filter(|broker| broker.counts()).count()
    }

    /// Lets those brokers that there are serve no new logins.
    pub(super) fn renew(&self) {
        let mut table = self.table();
        table.renewed = Some(Instant::now());
        table
            .newest
            .retain(|_, broker| Arc::strong_count(broker) > 1);
    }

    /// There are no new logins any more, and idle brokers end with their sessions.
    pub(super) fn close(&self) {
        let mut table = self.table();
        table.closed = true;
        table.newest.clear();
        self.changed.notify_all();
    }

    /// Keeps no broker for an account that may not be used.
    pub(super) fn forget(&self, request: &AccountRequest, broker: &Arc<Broker>) {
        let mut table = self.table();
        let same = |newest: &Arc<Broker>| Arc::ptr_eq(newest, broker);
        if table.newest.get(request).is_some_and(same) {
            table.newest.remove(request);
        }
    }

    /// Asks the monitor for a broker, ending an idle one if there are too many.
    pub(super) fn start(
        self: &Arc<Self>,
        broker: &Broker,
        request: &AccountRequest,
    ) -> Result<OwnedFd, AccountError> {
        self.make_room(broker)?;
        self.watch();
        self.source.broker(request).map_err(AccountError::Monitor)
    }

    /// Ends the broker that has been idle for longest, if there are as many as there may be: of the account, or in all.
    fn make_room(&self, newcomer: &Broker) -> Result<(), AccountError> {
        let mut table = self.table();
        // Brokers without a session are not needed to know that an account is new.
        let used = |broker: &Arc<Broker>| Arc::strong_count(broker) > 1 || broker.counts();
        table.newest.retain(|_, broker| used(broker));
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

/// Ends the one that has been idle for longest; false if there is none.
fn end_an_idle(brokers: &[Arc<Broker>]) -> bool {
    let idle = brokers
        .iter()
        .filter_map(|broker| Some((broker.idle_since()?, broker)))
        .min_by_key(|(since, _)| *since);
    idle.is_some_and(|(_, broker)| broker.end_if_idle(Duration::ZERO))
}

impl Table {
    /// Another broker for new logins. Those that there are will finish what they began.
    fn begin(
        &mut self,
        shared: &Arc<Shared>,
        request: &AccountRequest,
    ) -> Result<Arc<Broker>, AccountError> {
        let finishing = self.finishing(request);
        if finishing > MOST_FINISHING {
            return Err(AccountError::Finishing(finishing));
        }
        let broker = Arc::new(Broker::new(shared, request.clone()));
        self.all.retain(|broker| broker.strong_count() > 0);
        self.all.push(Arc::downgrade(&broker));
        self.newest.insert(request.clone(), Arc::clone(&broker));
        Ok(broker)
    }

    /// How many brokers of an account would finish what they began, if a new one took the place of that which serves
    /// the request.
    fn finishing(&self, request: &AccountRequest) -> usize {
        let serves_others = |broker: &Arc<Broker>| {
            let newest = self.newest.get(broker.request());
            broker.request() != request && newest.is_some_and(|newest| Arc::ptr_eq(newest, broker))
        };
        let all = self.all.iter().filter_map(Weak::upgrade);
        all.filter(|broker| broker.request().account == request.account)
            .filter(|broker| !serves_others(broker) && broker.is_at_work())
            .count()
    }

    /// All brokers but one.
    fn others(&self, one: &Broker) -> impl Iterator<Item = Arc<Broker>> {
        let all = self.all.iter().filter_map(Weak::upgrade);
        all.filter(move |broker| !std::ptr::eq(Arc::as_ptr(broker), one))
    }
}
