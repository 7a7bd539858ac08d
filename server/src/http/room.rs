//! The places of connections. Each caller has a share of them, so that one that opens connections without a request takes
//! only its own.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use gridhaul_shares::Network;
use tokio::task::JoinHandle;

/// The places of one listener.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Places {
    /// Connections of callers that the site is for, root excepted.
    pub(crate) connections: usize,
    /// Connections of root.
    pub(crate) root: usize,
    /// Connections of all others, who may use little of the site.
    pub(crate) guests: usize,
    /// Connections of one caller that the site is for.
    pub(crate) per_holder: usize,
    /// Connections of one other caller.
    pub(crate) per_guest: usize,
}

/// Whose connection it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Holder {
    /// A process of this account, on this machine.
    Account(u32),
    /// A client of this network.
    Network(Network),
}

/// Who is at the other end of a connection, as far as that is known before its first request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Caller {
    pub(crate) holder: Holder,
    /// Whether the caller may show a right to use the site. Others have places of their own.
    pub(crate) is_eligible: bool,
}

impl Caller {
    fn class(self) -> Class {
        match (self.is_eligible, self.holder) {
            (false, _) => Class::Guests,
            (true, Holder::Account(0)) => Class::Root,
            (true, _) => Class::Others,
        }
    }
}

/// Callers that share places.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    Root,
    Others,
    Guests,
}

/// Whether the site knows who is at the other end. Strangers make room when there are too many connections.
#[derive(Debug, Clone, Default)]
pub(crate) struct Standing(Arc<AtomicBool>);

impl Standing {
    /// From now on the connection is not closed for another one.
    pub(crate) fn trust(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn is_trusted(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// An open connection.
#[derive(Debug)]
struct Place {
    task: JoinHandle<()>,
    standing: Standing,
    caller: Caller,
}

impl Place {
    fn is_of_stranger(&self) -> bool {
        !self.standing.is_trusted()
    }
}

/// The open connections, oldest first.
#[derive(Debug)]
pub(super) struct Room {
    places: Places,
    taken: VecDeque<Place>,
}

impl Room {
    pub(super) fn new(places: Places) -> Self {
        Self {
            places,
            taken: VecDeque::new(),
        }
    }

    /// Begins a connection. A caller with too many connections loses its oldest one that is still a stranger's, and if its
    /// class has too many, the caller with the most of them loses one. If there is none, the new connection ends.
    pub(super) fn begin<F: Future<Output = ()> + Send + 'static>(
        &mut self,
        caller: Caller,
        connection: impl FnOnce(Standing) -> F,
    ) {
        self.taken.retain(|place| !place.task.is_finished());
        if !self.make_room(caller) {
            return;
        }
        let standing = Standing::default();
        let task = tokio::spawn(connection(standing.clone()));
        self.taken.push_back(Place {
            task,
            standing,
            caller,
        });
    }

    fn make_room(&mut self, caller: Caller) -> bool {
        let class = caller.class();
        let (most, per_holder) = match class {
            Class::Root => (self.places.root, self.places.root),
            Class::Others => (self.places.connections, self.places.per_holder),
            Class::Guests => (self.places.guests, self.places.per_guest),
        };
        let crowded = if self.count(|place| place.caller == caller) >= per_holder {
            Some(caller)
        } else if self.count(|place| place.caller.class() == class) >= most {
            self.largest(class)
        } else {
            return true;
        };
        let is_to_go = |place: &Place| place.is_of_stranger() && Some(place.caller) == crowded;
        let oldest = self.taken.iter().position(is_to_go);
        let Some(place) = oldest.and_then(|at| self.taken.remove(at)) else {
            return false;
        };
        place.task.abort();
        true
    }

    /// The caller of this class with the most connections of strangers; of several, the one with the oldest.
    fn largest(&self, class: Class) -> Option<Caller> {
        let strangers = self.taken.iter().filter(|place| place.is_of_stranger());
        let callers = strangers.map(|place| place.caller);
        let callers = callers.filter(|caller| caller.class() == class);
        // The last one of equal ones is taken, so they are searched from the newest.
        callers.rev().max_by_key(|caller| {
            self.count(|place| place.caller == *caller && place.is_of_stranger())
        })
    }

    fn count(&self, is_meant: impl Fn(&Place) -> bool) -> usize {
        self.taken.iter().filter(|place| is_meant(place)).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACES: Places = Places {
        connections: 6,
        root: 2,
        guests: 4,
        per_holder: 4,
        per_guest: 2,
    };

    fn account(uid: u32, is_eligible: bool) -> Caller {
        Caller {
            holder: Holder::Account(uid),
            is_eligible,
        }
    }

    /// Begins a connection that never ends by itself, and returns its standing if it has a place.
    fn begin(room: &mut Room, caller: Caller) -> Option<Standing> {
        let before = room.taken.len();
        let mut given = None;
        room.begin(caller, |standing| {
            given = Some(standing);
            std::future::pending()
        });
        assert!(room.taken.len() <= before + 1);
        given
    }

    fn held(room: &Room, caller: Caller) -> usize {
        room.count(|place| place.caller == caller)
    }

    #[tokio::test]
    async fn a_caller_that_opens_many_connections_takes_only_its_own_places() {
        let mut room = Room::new(PLACES);
        let (root, alice, mallory) = (account(0, true), account(1000, true), account(1001, false));
        assert!(begin(&mut room, root).is_some() && begin(&mut room, alice).is_some());
        for _ in 0..100 {
            assert!(begin(&mut room, mallory).is_some(), "its oldest one goes");
        }
        let counts = [root, alice, mallory].map(|caller| held(&room, caller));
        assert_eq!(counts, [1, 1, 2]);
        for uid in 2000..2100 {
            begin(&mut room, account(uid, false));
        }
        assert_eq!(room.count(|place| !place.caller.is_eligible), 4);
        for _ in 0..100 {
            begin(&mut room, alice);
        }
        let counts = [root, alice].map(|caller| held(&room, caller));
        assert_eq!(counts, [1, 4]);
    }

    #[tokio::test]
    async fn the_largest_one_makes_room_and_known_clients_stay() {
        let mut room = Room::new(PLACES);
        let (alice, bob) = (account(1000, true), account(1001, true));
        for caller in [alice, alice, alice, alice, bob, bob] {
            let standing = begin(&mut room, caller).expect("a place");
            if caller == bob {
                standing.trust();
            }
        }
        let carol = account(1002, true);
        assert!(begin(&mut room, carol).is_some());
        let counts = [alice, bob, carol].map(|caller| held(&room, caller));
        assert_eq!(counts, [3, 2, 1]);
        for place in &room.taken {
            place.standing.trust();
        }
        assert!(begin(&mut room, carol).is_none(), "all are known");
        assert!(
            begin(&mut room, account(0, true)).is_some(),
            "root has its own"
        );
    }

    #[tokio::test]
    async fn connections_that_have_ended_leave_their_places() {
        let mut room = Room::new(PLACES);
        let alice = account(1000, true);
        for _ in 0..3 {
            room.begin(alice, |_| async {});
        }
        while room.taken.iter().any(|place| !place.task.is_finished()) {
            tokio::task::yield_now().await;
        }
        begin(&mut room, alice);
        assert_eq!(held(&room, alice), 1);
    }
}
