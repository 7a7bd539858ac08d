//! The exchanges that the login process remembers, and the accounts for which the monitor may be asked.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gridhaul_security::context::Context;
use gridhaul_security::trust::Peer;

use super::messages::{Account, Asker, Delegated};

/// What is remembered, as long as the client is there.
#[derive(Debug)]
pub(super) struct Exchanges {
    most: AtomicUsize,
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    last: u64,
    exchanges: HashMap<u64, State>,
}

/// What the client of an exchange was granted.
#[derive(Debug, Clone)]
struct Grant {
    account: Account,
    requested: Option<String>,
}

/// A client who is still there and was granted an account.
#[derive(Debug)]
pub(super) struct Holder {
    pub(super) peer: Arc<Peer>,
    /// The account that the client asked for, if it did.
    pub(super) requested: Option<String>,
}

#[derive(Debug)]
enum State {
    /// A thread works at it.
    Busy,
    /// Another token will come.
    Waits(Box<Context>),
    /// The client is known.
    Established {
        peer: Arc<Peer>,
        granted: Option<Grant>,
        /// For the process that serves the client after login, which asks for it once; `None` from then on.
        delegated: Option<Result<Delegated, String>>,
    },
}

/// What the serving process gets for an exchange.
#[derive(Debug)]
pub(super) struct Claimed {
    pub(super) peer: Arc<Peer>,
    pub(super) delegated: Result<Delegated, String>,
}

/// Too many clients are there.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Full;

impl Exchanges {
    /// Remembers up to so many.
    pub(super) fn new(most: usize) -> Self {
        Self {
            most: AtomicUsize::new(most),
            table: Mutex::default(),
        }
    }

    /// Remembers up to so many from now on. Those that are there stay.
    pub(super) fn set_most(&self, most: usize) {
        self.most.store(most, Ordering::Relaxed);
    }

    /// Begins another one, and gives its number.
    pub(super) fn begin(&self) -> Result<u64, Full> {
        let mut table = self.table();
        if table.exchanges.len() >= self.most.load(Ordering::Relaxed) {
            return Err(Full);
        }
        table.last += 1;
        let exchange = table.last;
        table.exchanges.insert(exchange, State::Busy);
        Ok(exchange)
    }

    /// Takes the context of an exchange that waits for a token; `None` if there is none.
    pub(super) fn take(&self, exchange: u64) -> Option<Context> {
        let mut table = self.table();
        let state = table.exchanges.get_mut(&exchange)?;
        if !matches!(state, State::Waits(_)) {
            return None;
        }
        match std::mem::replace(state, State::Busy) {
            State::Waits(context) => Some(*context),
            State::Busy | State::Established { .. } => None,
        }
    }

    /// Another token will come. An exchange that ended meanwhile stays ended, here and below.
    pub(super) fn wait(&self, exchange: u64, context: Context) {
        if let Some(state) = self.table().exchanges.get_mut(&exchange) {
            *state = State::Waits(Box::new(context));
        }
    }

    /// The client is known.
    pub(super) fn establish(
        &self,
        exchange: u64,
        peer: Peer,
        delegated: Result<Delegated, String>,
    ) {
        if let Some(state) = self.table().exchanges.get_mut(&exchange) {
            *state = State::Established {
                peer: Arc::new(peer),
                granted: None,
                delegated: Some(delegated),
            };
        }
    }

    /// Gives an established exchange to the serving process, once. A front process that strangers have taken over can so
    /// use only what clients prove from then on, and nothing of clients who are served already.
    pub(super) fn claim(&self, exchange: u64) -> Option<Claimed> {
        match self.table().exchanges.get_mut(&exchange)? {
            State::Established {
                peer, delegated, ..
            } => Some(Claimed {
                delegated: delegated.take()?,
                peer: Arc::clone(peer),
            }),
            State::Busy | State::Waits(_) => None,
        }
    }

    /// Who the client of an established exchange is, for the process that it belongs to.
    pub(super) fn peer(&self, exchange: u64, asks: Asker) -> Option<Arc<Peer>> {
        match self.table().exchanges.get(&exchange)? {
            state @ State::Established { peer, .. } if state.owner() == asks => {
                Some(Arc::clone(peer))
            }
            _ => None,
        }
    }

    /// The client of an established exchange, who asked for `requested`, may use this account from now on, and no other.
    pub(super) fn grant(
        &self,
        exchange: u64,
        asks: Asker,
        account: Account,
        requested: Option<&str>,
    ) {
        let grant = Grant {
            account,
            requested: requested.map(str::to_owned),
        };
        self.set_grant(exchange, asks, Some(grant));
    }

    /// The client of an established exchange may use no account any more.
    pub(super) fn take_back(&self, exchange: u64, asks: Asker) {
        self.set_grant(exchange, asks, None);
    }

    /// Nothing changes if the exchange belongs to the other process by now.
    fn set_grant(&self, exchange: u64, asks: Asker, grant: Option<Grant>) {
        let mut table = self.table();
        let state = table.exchanges.get_mut(&exchange);
        if let Some(state) = state.filter(|state| state.owner() == asks)
            && let State::Established { granted, .. } = state
        {
            *granted = grant;
        }
    }

    /// The clients who are served and were granted this account.
    pub(super) fn holders(&self, account: &Account) -> Vec<Holder> {
        let table = self.table();
        let holders = table.exchanges.values().filter_map(|state| match state {
            State::Established {
                peer,
                granted: Some(grant),
                delegated: None,
            } if grant.account == *account => Some(Holder {
                peer: Arc::clone(peer),
                requested: grant.requested.clone(),
            }),
            _ => None,
        });
        holders.collect()
    }

    /// The client is gone, says the process that the exchange belongs to.
    pub(super) fn end(&self, exchange: u64, says: Asker) {
        let mut table = self.table();
        let state = table.exchanges.get(&exchange);
        if state.is_some_and(|state| state.owner() == says) {
            table.exchanges.remove(&exchange);
        }
    }

    /// How many exchanges are remembered.
    #[cfg(any(test, fuzzing))]
    pub(super) fn count(&self) -> usize {
        self.table().exchanges.len()
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        // Every change of the table is whole, so a panic elsewhere does not spoil it.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// It begins with the front process, and is the serving process's when that has claimed it.
    fn owner(&self) -> Asker {
        match self {
            Self::Established {
                delegated: None, ..
            } => Asker::Serving,
            _ => Asker::Front,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use gridhaul_security::certificate::Certificate;

    use super::*;

    fn peer() -> Peer {
        let pem = include_bytes!("../security/samples/alice.pem");
        let chain = Certificate::all_from_pem(pem).expect("a certificate");
        Peer {
            identity: chain[0].subject().clone(),
            chain,
            limited: false,
            expires: SystemTime::now(),
        }
    }

    fn account(name: &str) -> Account {
        Account {
            account: name.to_owned(),
            root: "/srv".into(),
            read_only: false,
        }
    }

    const NONE: Result<Delegated, String> = Err(String::new());

    /// An exchange whose client the serving process has.
    fn claimed(exchanges: &Exchanges) -> u64 {
        let exchange = exchanges.begin().expect("room");
        exchanges.establish(exchange, peer(), NONE);
        exchanges.claim(exchange).expect("established");
        exchange
    }

    #[test]
    fn an_account_is_granted_as_long_as_one_client_is_there() {
        let exchanges = Exchanges::new(10);
        let [one, other] = [(); 2].map(|()| claimed(&exchanges));
        for exchange in [one, other] {
            exchanges.grant(exchange, Asker::Serving, account("alice"), None);
        }
        let holders = |account| exchanges.holders(&account).len();
        assert_eq!(holders(account("alice")), 2);
        assert_eq!(holders(account("bob")), 0);
        let read_only = Account {
            read_only: true,
            ..account("alice")
        };
        assert_eq!(holders(read_only), 0, "it is another grant");
        exchanges.end(one, Asker::Serving);
        exchanges.end(one, Asker::Serving);
        assert_eq!(holders(account("alice")), 1);
        exchanges.grant(other, Asker::Serving, account("bob"), Some("bob"));
        assert_eq!(holders(account("alice")), 0, "one at a time");
        let asked = exchanges.holders(&account("bob")).pop().expect("one");
        assert_eq!(asked.requested.as_deref(), Some("bob"));
        exchanges.take_back(other, Asker::Serving);
        assert_eq!(holders(account("bob")), 0);
    }

    #[test]
    fn nothing_is_granted_before_the_client_is_known() {
        let exchanges = Exchanges::new(10);
        let exchange = exchanges.begin().expect("room");
        exchanges.grant(exchange, Asker::Front, account("alice"), None);
        assert!(exchanges.holders(&account("alice")).is_empty());
        assert!(exchanges.peer(exchange, Asker::Front).is_none());
        assert!(exchanges.claim(exchange).is_none());
        exchanges.end(exchange, Asker::Front);
        exchanges.establish(exchange, peer(), NONE);
        let known = exchanges.peer(exchange, Asker::Front);
        assert!(known.is_none(), "it has ended");
    }

    #[test]
    fn a_client_who_is_served_is_out_of_the_front_processs_reach() {
        let exchanges = Exchanges::new(10);
        let exchange = exchanges.begin().expect("room");
        exchanges.establish(exchange, peer(), NONE);
        exchanges.grant(exchange, Asker::Front, account("alice"), None);
        let holders = || exchanges.holders(&account("alice")).len();
        assert_eq!(holders(), 0, "it is not served yet");
        assert!(exchanges.peer(exchange, Asker::Serving).is_none());
        exchanges.end(exchange, Asker::Serving);
        assert!(exchanges.peer(exchange, Asker::Front).is_some());
        assert!(exchanges.claim(exchange).is_some());
        assert!(exchanges.claim(exchange).is_none(), "once");
        assert!(exchanges.peer(exchange, Asker::Front).is_none());
        exchanges.end(exchange, Asker::Front);
        assert_eq!(holders(), 1);
        exchanges.end(exchange, Asker::Serving);
        assert_eq!((holders(), exchanges.count()), (0, 0));
    }

    #[test]
    fn so_many_are_remembered_and_no_more() {
        let exchanges = Exchanges::new(2);
        let first = exchanges.begin().expect("room");
        exchanges.begin().expect("room");
        assert_eq!(exchanges.begin(), Err(Full));
        exchanges.end(first, Asker::Front);
        exchanges.begin().expect("room again");
        exchanges.set_most(3);
        exchanges.begin().expect("more room");
        exchanges.set_most(1);
        assert_eq!(exchanges.begin(), Err(Full));
    }
}
