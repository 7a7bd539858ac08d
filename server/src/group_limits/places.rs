//! Places for the running transfers of a group, in the order of arrival.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use tokio::sync::oneshot;

/// A limit of transfers at a time.
#[derive(Debug)]
pub(crate) struct Places {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// `None` does not limit.
    most: Option<usize>,
    held: usize,
    queue: VecDeque<oneshot::Sender<Place>>,
}

/// A place for a running transfer.
#[derive(Debug)]
pub(crate) struct Place {
    /// `None` after its place was given back without a transfer.
    places: Option<Arc<Places>>,
}

/// A wait for a place.
#[derive(Debug)]
pub(crate) struct Waiting {
    granted: oneshot::Receiver<Place>,
    ahead: usize,
}

/// The answer to a request for a place.
#[derive(Debug)]
pub(crate) enum Entered {
    Now(Place),
    Later(Waiting),
}

impl Places {
    pub(super) fn new(most: Option<usize>) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(State {
                most,
                held: 0,
                queue: VecDeque::new(),
            }),
        })
    }

    /// Changes the limit; running transfers continue.
    pub(super) fn set(self: &Arc<Self>, most: Option<usize>) {
        self.state().most = most;
        self.admit();
    }

    pub(crate) fn enter(self: &Arc<Self>) -> Entered {
        let mut state = self.state();
        state.queue.retain(|waiting| !waiting.is_closed());
        if state.has_room() && state.queue.is_empty() {
            state.held += 1;
            return Entered::Now(self.place());
        }
        let ahead = state.queue.len();
        let (grant, granted) = oneshot::channel();
        state.queue.push_back(grant);
        Entered::Later(Waiting { granted, ahead })
    }

    /// Admits those who wait, while there is room.
    fn admit(self: &Arc<Self>) {
        loop {
            let mut state = self.state();
            if !state.has_room() {
                return;
            }
            let Some(next) = state.queue.pop_front() else {
                return;
            };
            state.held += 1;
            drop(state);
            // The client has left.
            if let Err(mut place) = next.send(self.place()) {
                place.places = None;
                self.state().held -= 1;
            }
        }
    }

    fn place(self: &Arc<Self>) -> Place {
        Place {
            places: Some(Arc::clone(self)),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Every change is complete at the unlock, so a panic elsewhere leaves no partial state.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn has_room(&self) -> bool {
        self.most.is_none_or(|most| self.held < most)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(places) = self.places.take() {
            places.state().held -= 1;
            places.admit();
        }
    }
}

impl Waiting {
    /// How many were before it when it came.
    pub(crate) fn ahead(&self) -> usize {
        self.ahead
    }
}

impl Future for Waiting {
    /// `None` does not occur while the group exists.
    type Output = Option<Place>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.granted).poll(context).map(Result::ok)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now(entered: Entered) -> Place {
        match entered {
            Entered::Now(place) => place,
            Entered::Later(_) => panic!("has to wait"),
        }
    }

    fn later(entered: Entered) -> Waiting {
        match entered {
            Entered::Now(_) => panic!("need not wait"),
            Entered::Later(waiting) => waiting,
        }
    }

    fn granted(waiting: &mut Waiting) -> Option<Place> {
        waiting.granted.try_recv().ok()
    }

    #[test]
    fn places_are_given_in_the_order_of_arrival() {
        let places = Places::new(Some(2));
        let (first, _second) = (now(places.enter()), now(places.enter()));
        let mut waiting: Vec<_> = (0..3).map(|_| later(places.enter())).collect();
        assert_eq!(waiting[2].ahead(), 2);
        assert!(granted(&mut waiting[0]).is_none());
        // The first one leaves.
        waiting.remove(0);
        drop(first);
        assert!(granted(&mut waiting[0]).is_some(), "and gives it back");
        assert!(granted(&mut waiting[1]).is_some());
        let _third = now(places.enter());
        drop(later(places.enter()));
    }

    #[test]
    fn a_change_admits_those_who_wait() {
        let places = Places::new(Some(1));
        let _first = now(places.enter());
        let mut waiting = later(places.enter());
        places.set(None);
        let _second = granted(&mut waiting).expect("no limit any more");
        let _third = now(places.enter());
        places.set(Some(1));
        drop(later(places.enter()));
    }
}
