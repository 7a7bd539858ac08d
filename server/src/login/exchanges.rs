//! The exchanges that the login process keeps, and the accounts for which it may ask the monitor.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use gridhaul_security::context::Context;
use gridhaul_security::trust::Peer;

use crate::callout::Permission;

use super::messages::{Account, Asker, Delegated};

/// The exchanges of clients that are connected.
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

/// The account that the client of an exchange was granted.
#[derive(Debug, Clone)]
struct Grant {
    account: Account,
    requested: Option<String>,
    /// What the callout has said, if there is one, and when.
    permission: Option<(Permission, Instant)>,
}

/// A connected client that was granted an account.
#[derive(Debug)]
pub(super) struct Holder {
    pub(super) peer: Arc<Peer>,
    /// The account that the client named, if it did.
    pub(super) requested: Option<String>,
    /// What the callout has said, if there is one.
    pub(super) permission: Option<Permission>,
}

#[derive(Debug)]
enum State {
    /// A thread processes a token.
    Busy,
    /// The client will send another token.
    Waits(Box<Context>),
    /// The client is authenticated.
    Established {
        peer: Arc<Peer>,
        granted: Option<Grant>,
        /// For the serving process, which takes it once; `None` from then on.
        delegated: Option<Result<Delegated, String>>,
    },
}

/// The part of an exchange that the serving process gets.
#[derive(Debug)]
pub(super) struct Claimed {
    pub(super) peer: Arc<Peer>,
    pub(super) delegated: Result<Delegated, String>,
}

/// The limit of exchanges is reached.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Full;

impl Exchanges {
    /// Keeps up to `most` exchanges.
    pub(super) fn new(most: usize) -> Self {
        Self {
            most: AtomicUsize::new(most),
            table: Mutex::default(),
        }
    }

    /// Sets the limit. Existing exchanges stay.
    pub(super) fn set_most(&self, most: usize) {
        self.most.store(most, Ordering::Relaxed);
    }

    /// Begins an exchange, and returns its number.
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

    /// Takes the context of an exchange that waits for a token, if there is one.
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

    /// Stores the context until the next token. An exchange that has ended meanwhile stays ended, here and below.
    pub(super) fn wait(&self, exchange: u64, context: Context) {
        if let Some(state) = self.table().exchanges.get_mut(&exchange) {
            *state = State::Waits(Box::new(context));
        }
    }

    /// Stores the identity of an authenticated client.
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

    /// Gives an established exchange to the serving process, once. So a compromised front process can use only what clients
    /// prove from then on, and no exchange of a client that is being served.
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

    /// The authenticated client of an exchange, for the process that owns it.
    pub(super) fn peer(&self, exchange: u64, asks: Asker) -> Option<Arc<Peer>> {
        match self.table().exchanges.get(&exchange)? {
            state @ State::Established { peer, .. } if state.owner() == asks => {
                Some(Arc::clone(peer))
            }
            _ => None,
        }
    }

    /// Grants the client of an established exchange this account and no other. `requested` is the account that the client
    /// named.
    pub(super) fn grant(
        &self,
        exchange: u64,
        asks: Asker,
        account: Account,
        requested: Option<&str>,
        permission: Option<(Permission, Instant)>,
    ) {
        let grant = Grant {
            account,
            requested: requested.map(str::to_owned),
            permission,
        };
        self.set_grant(exchange, asks, Some(grant));
    }

    /// What the callout said a moment ago about the client of an exchange that named this account. The serving process asks for
    /// the authorization that the front process has asked for just before.
    pub(super) fn recent_permission(
        &self,
        exchange: u64,
        requested: Option<&str>,
    ) -> Option<(Permission, Instant)> {
        const RECENT: Duration = Duration::from_secs(30);

        let table = self.table();
        let State::Established {
            granted: Some(grant),
            ..
        } = table.exchanges.get(&exchange)?
        else {
            return None;
        };
        let permission = grant.permission.clone();
        permission
            .filter(|(_, at)| grant.requested.as_deref() == requested && at.elapsed() < RECENT)
    }

    /// The exchanges of clients that are being served.
    pub(super) fn served(&self) -> Vec<(u64, Arc<Peer>)> {
        let table = self.table();
        let served = table.exchanges.iter();
        let served = served.filter_map(|(exchange, state)| match state {
            State::Established {
                peer,
                delegated: None,
                ..
            } => Some((*exchange, Arc::clone(peer))),
            _ => None,
        });
        served.collect()
    }

    /// Revokes the grant of an established exchange.
    pub(super) fn take_back(&self, exchange: u64, asks: Asker) {
        self.set_grant(exchange, asks, None);
    }

    /// Changes nothing if the exchange belongs to the other process.
    fn set_grant(&self, exchange: u64, asks: Asker, grant: Option<Grant>) {
        let mut table = self.table();
        let state = table.exchanges.get_mut(&exchange);
        if let Some(state) = state.filter(|state| state.owner() == asks)
            && let State::Established { granted, .. } = state
        {
            *granted = grant;
        }
    }

    /// The clients that are being served and were granted this account.
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
                permission: grant.permission.as_ref().map(|(said, _)| said.clone()),
            }),
            _ => None,
        });
        holders.collect()
    }

    /// Ends an exchange, if it belongs to this process.
    pub(super) fn end(&self, exchange: u64, says: Asker) {
        let mut table = self.table();
        let state = table.exchanges.get(&exchange);
        if state.is_some_and(|state| state.owner() == says) {
            table.exchanges.remove(&exchange);
        }
    }

    /// The number of exchanges.
    #[cfg(any(test, fuzzing))]
    pub(super) fn count(&self) -> usize {
        self.table().exchanges.len()
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        // Every change of the table is complete, so a panic elsewhere leaves no partial state.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// The front process, until the serving process has claimed the exchange.
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
            exchanges.grant(exchange, Asker::Serving, account("alice"), None, None);
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
        exchanges.grant(other, Asker::Serving, account("bob"), Some("bob"), None);
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
        exchanges.grant(exchange, Asker::Front, account("alice"), None, None);
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
        exchanges.grant(exchange, Asker::Front, account("alice"), None, None);
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
