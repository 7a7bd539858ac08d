//! The exchanges that the login process remembers, and the accounts for which the monitor may be asked.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gridhaul_security::context::Context;
use gridhaul_security::trust::Peer;

use super::messages::Account;

/// What is remembered, as long as the client is there.
#[derive(Debug)]
pub(super) struct Exchanges {
    most: usize,
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    last: u64,
    exchanges: HashMap<u64, State>,
    /// How many clients who are still there were granted each account.
    granted: HashMap<Account, usize>,
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
        granted: Option<Account>,
    },
}

/// Too many clients are there.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Full;

impl Exchanges {
    /// Remembers up to so many.
    pub(super) fn new(most: usize) -> Self {
        Self {
            most,
            table: Mutex::default(),
        }
    }

    /// Begins another one, and gives its number.
    pub(super) fn begin(&self) -> Result<u64, Full> {
        let mut table = self.table();
        if table.exchanges.len() >= self.most {
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
    pub(super) fn establish(&self, exchange: u64, peer: Peer) {
        if let Some(state) = self.table().exchanges.get_mut(&exchange) {
            *state = State::Established {
                peer: Arc::new(peer),
                granted: None,
            };
        }
    }

    /// Who the client of an established exchange is.
    pub(super) fn peer(&self, exchange: u64) -> Option<Arc<Peer>> {
        match self.table().exchanges.get(&exchange)? {
            State::Established { peer, .. } => Some(Arc::clone(peer)),
            State::Busy | State::Waits(_) => None,
        }
    }

    /// The client of an established exchange may use this account from now on, and no other.
    pub(super) fn grant(&self, exchange: u64, account: Option<Account>) {
        let mut table = self.table();
        let Some(State::Established { granted, .. }) = table.exchanges.get_mut(&exchange) else {
            return;
        };
        let before = std::mem::replace(granted, account.clone());
        table.take_back(before);
        if let Some(account) = account {
            *table.granted.entry(account).or_default() += 1;
        }
    }

    /// Whether a client who is still there was granted this account.
    pub(super) fn is_granted(&self, account: &Account) -> bool {
        self.table().granted.contains_key(account)
    }

    /// The client is gone.
    pub(super) fn end(&self, exchange: u64) {
        let mut table = self.table();
        if let Some(State::Established { granted, .. }) = table.exchanges.remove(&exchange) {
            table.take_back(granted);
        }
    }

    /// How many exchanges and how many accounts are remembered.
    #[cfg(any(test, fuzzing))]
    pub(super) fn count(&self) -> (usize, usize) {
        let table = self.table();
        (table.exchanges.len(), table.granted.len())
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        // Every change of the table is whole, so a panic elsewhere does not spoil it.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn take_back(&mut self, account: Option<Account>) {
        let Some(account) = account else { return };
        if let Some(count) = self.granted.get_mut(&account) {
            *count -= 1;
            if *count == 0 {
                self.granted.remove(&account);
            }
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

    #[test]
    fn an_account_is_granted_as_long_as_one_client_is_there() {
        let exchanges = Exchanges::new(10);
        let [one, other] = [(); 2].map(|()| exchanges.begin().expect("room"));
        for exchange in [one, other] {
            exchanges.establish(exchange, peer());
            exchanges.grant(exchange, Some(account("alice")));
        }
        assert!(exchanges.is_granted(&account("alice")));
        assert!(!exchanges.is_granted(&account("bob")));
        let read_only = Account {
            read_only: true,
            ..account("alice")
        };
        assert!(!exchanges.is_granted(&read_only), "it is another grant");
        exchanges.end(one);
        exchanges.end(one);
        assert!(exchanges.is_granted(&account("alice")));
        exchanges.grant(other, Some(account("bob")));
        assert!(!exchanges.is_granted(&account("alice")), "one at a time");
        exchanges.end(other);
        assert!(!exchanges.is_granted(&account("bob")));
        assert!(exchanges.table().granted.is_empty());
    }

    #[test]
    fn nothing_is_granted_before_the_client_is_known() {
        let exchanges = Exchanges::new(10);
        let exchange = exchanges.begin().expect("room");
        exchanges.grant(exchange, Some(account("alice")));
        assert!(!exchanges.is_granted(&account("alice")));
        assert!(exchanges.peer(exchange).is_none());
        exchanges.end(exchange);
        exchanges.establish(exchange, peer());
        assert!(exchanges.peer(exchange).is_none(), "it has ended");
    }

    #[test]
    fn so_many_are_remembered_and_no_more() {
        let exchanges = Exchanges::new(2);
        let first = exchanges.begin().expect("room");
        exchanges.begin().expect("room");
        assert_eq!(exchanges.begin(), Err(Full));
        exchanges.end(first);
        exchanges.begin().expect("room again");
    }
}
