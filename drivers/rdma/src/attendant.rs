//! A thread that looks after what has to go on while nobody calls.
//!
//! One for the process: it begins with the first charge and ends with the last, so that a server without transfers has
//! none. It sleeps until the descriptor of a charge becomes readable, or until the time that a charge has asked
//! for. It is no executor: what it looks after is rare, short, or waits for the other end most of the time.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::buffer::spare_capacity;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, epoll, eventfd, poll};
use rustix::io::Errno;

use crate::clock;

/// Charges at a time. Each has descriptors of its own, so that a process has not many more.
const MAX_CHARGES: usize = 1024;

/// The longest single sleep.
const LONGEST_SLEEP: Duration = Duration::from_secs(3600);

/// Events that are taken from the kernel with one call.
const MAX_EVENTS: usize = 64;

/// Something to look after.
pub(crate) trait Charge: Send {
    /// Becomes readable when there is something to do. `None` when there is nothing to look after any more.
    fn descriptor(&self) -> Option<BorrowedFd<'_>>;

    /// Does what can be done without waiting. Returns when to come again though nothing happens ([`clock::now`]), and
    /// `None` when there is nothing left to do, ever.
    fn attend(&mut self) -> Option<Duration>;
}

/// What may be taken back at any time.
pub(crate) type Shared<C> = Arc<Mutex<C>>;

/// Names a charge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Name(u64);

/// Leaves something to the thread. It is dropped when it is done.
///
/// # Errors
///
/// When there are too many charges, or the system has no thread or descriptor left.
pub(crate) fn leave<C: Charge + 'static>(charge: &Shared<C>) -> io::Result<Name> {
    let mut attendant = attendant();
    if attendant.charges.len() >= MAX_CHARGES {
        return Err(Errno::AGAIN.into());
    }
    let bell = attendant.bell()?;
    let name = Name(attendant.next_name);
    let data = epoll::EventData::new_u64(name.0);
    if let Some(descriptor) = lock(charge).descriptor() {
        epoll::add(&bell.epoll, descriptor, data, epoll::EventFlags::IN)?;
    }
    attendant.next_name += 1;
    let entry = Entry {
        charge: Arc::<Mutex<C>>::clone(charge),
        again_at: Duration::ZERO,
    };
    attendant.charges.insert(name, entry);
    bell.ring();
    Ok(name)
}

/// Takes something back: from now on the thread does nothing with it that changes anything.
pub(crate) fn take_back<C: Charge>(name: Name, charge: &Shared<C>) -> MutexGuard<'_, C> {
    let bell = attendant().remove(name);
    let charge = lock(charge);
    if let Some(bell) = bell {
        bell.forget(&*charge);
    }
    charge
}

pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What the thread looks after.
static ATTENDANT: Mutex<Attendant> = Mutex::new(Attendant {
    bell: None,
    charges: BTreeMap::new(),
    next_name: 0,
});

struct Attendant {
    /// `None` while there is no thread.
    bell: Option<Arc<Bell>>,
    charges: BTreeMap<Name, Entry>,
    next_name: u64,
}

struct Entry {
    charge: Shared<dyn Charge>,
    again_at: Duration,
}

/// What the thread sleeps on.
struct Bell {
    epoll: OwnedFd,
    wake: OwnedFd,
}

/// The bell's own name among those of charges.
const RING: u64 = u64::MAX;

impl Bell {
    fn new() -> io::Result<Self> {
        let bell = Self {
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            wake: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
        };
        let data = epoll::EventData::new_u64(RING);
        epoll::add(&bell.epoll, &bell.wake, data, epoll::EventFlags::IN)?;
        Ok(bell)
    }

    /// Wakes the thread, so that it looks at the list.
    fn ring(&self) {
        // It can only fail while it rings already.
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }

    /// Watches a descriptor no more. One that is not watched has been forgotten before.
    fn forget(&self, charge: &(impl Charge + ?Sized)) {
        if let Some(descriptor) = charge.descriptor() {
            let _ = epoll::delete(&self.epoll, descriptor);
        }
    }

    /// Sleeps until something happens, at the latest until `until`; returns what.
    fn sleep(&self, until: Option<Duration>) -> Vec<Name> {
        let timeout = until.map(|until| {
            let left = until.saturating_sub(clock::now());
            Timespec::try_from(left.min(LONGEST_SLEEP)).expect("an hour is a short time")
        });
        let mut events = Vec::with_capacity(MAX_EVENTS);
        // epoll_wait(2) counts whole milliseconds; a message that is paced may be due in less.
        let mut anything = [PollFd::new(&self.epoll, PollFlags::IN)];
        let _ = poll(&mut anything, timeout.as_ref());
        // Nothing can be wrong with the descriptors; after a signal there are no events.
        let at_once = Some(&Timespec::default());
        let _ = epoll::wait(&self.epoll, spare_capacity(&mut events), at_once);
        let names = events.iter().map(|event| event.data.u64());
        let names = names.filter(|&name| name != RING).map(Name).collect();
        let _ = rustix::io::read(&self.wake, &mut [0_u8; 8]);
        names
    }
}

impl Attendant {
    /// What wakes the thread, which is started if there is none.
    fn bell(&mut self) -> io::Result<Arc<Bell>> {
        if let Some(bell) = &self.bell {
            return Ok(Arc::clone(bell));
        }
        let bell = Arc::new(Bell::new()?);
        let own = Arc::clone(&bell);
        thread::Builder::new()
            .name("rdma-attendant".to_owned())
            .spawn(move || look_after_all(&own))?;
        self.bell = Some(Arc::clone(&bell));
        Ok(bell)
    }

    /// When a charge wants to be attended to again. Returns one that is done, for which somebody else should have
    /// the lock meanwhile; one that was taken back is not on the list any more.
    fn note(&mut self, name: Name, again_at: Option<Duration>) -> Option<Entry> {
        let Some(again_at) = again_at else {
            return self.charges.remove(&name);
        };
        self.charges.get_mut(&name)?.again_at = again_at;
        None
    }

    /// Strikes a charge off the list; returns what still watches it.
    fn remove(&mut self, name: Name) -> Option<Arc<Bell>> {
        self.charges.remove(&name)?;
        self.bell.clone()
    }

    /// Those that something has happened to, and those whose time has come.
    fn due(&self, happened: &[Name]) -> Vec<(Name, Shared<dyn Charge>)> {
        let now = clock::now();
        self.charges
            .iter()
            .filter(|(name, entry)| entry.again_at <= now || happened.contains(name))
            .map(|(&name, entry)| (name, Arc::clone(&entry.charge)))
            .collect()
    }
}

/// The thread.
fn look_after_all(bell: &Bell) {
    let mut happened = Vec::new();
    loop {
        let due = attendant().due(&happened);
        for (name, charge) in due {
            let mut charge = lock(&charge);
            // One that panics is done, and the others are looked after as before.
            let again_at = catch_unwind(AssertUnwindSafe(|| charge.attend())).unwrap_or(None);
            if again_at.is_none() {
                bell.forget(&*charge);
            }
            drop(charge);
            let done = attendant().note(name, again_at);
            drop(done);
        }
        let mut attendant = attendant();
        if attendant.charges.is_empty() {
            attendant.bell = None;
            return;
        }
        let until = attendant.charges.values().map(|entry| entry.again_at).min();
        drop(attendant);
        happened = bell.sleep(until);
    }
}

fn attendant() -> MutexGuard<'static, Attendant> {
    lock(&ATTENDANT)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::sync::mpsc::{Sender, channel};

    use super::*;

    /// Counts what it reads, and tells how much that was when it is dropped.
    struct Reader {
        from: OwnedFd,
        count: usize,
        until: usize,
        told: Sender<usize>,
    }

    impl Charge for Reader {
        fn descriptor(&self) -> Option<BorrowedFd<'_>> {
            Some(self.from.as_fd())
        }

        fn attend(&mut self) -> Option<Duration> {
            while let Ok(1) = rustix::io::read(&self.from, &mut [0; 1]) {
                self.count += 1;
            }
            (self.count < self.until).then_some(Duration::MAX)
        }
    }

    impl Drop for Reader {
        fn drop(&mut self) {
            self.told.send(self.count).unwrap();
        }
    }

    #[test]
    fn charges_are_looked_after_until_they_are_done() {
        let flags = rustix::pipe::PipeFlags::CLOEXEC | rustix::pipe::PipeFlags::NONBLOCK;
        let (told, hears) = channel();
        for until in [0, 1, 3] {
            let (from, to) = rustix::pipe::pipe_with(flags).unwrap();
            let told = told.clone();
            let reader = Reader {
                from,
                count: 0,
                until,
                told,
            };
            leave(&Arc::new(Mutex::new(reader))).unwrap();
            for _ in 0..until {
                rustix::io::write(&to, &[0]).unwrap();
            }
            assert_eq!(hears.recv(), Ok(until));
        }
    }

    /// Its descriptor is readable at once.
    struct Panics(OwnedFd, Sender<usize>);

    impl Charge for Panics {
        fn descriptor(&self) -> Option<BorrowedFd<'_>> {
            Some(self.0.as_fd())
        }

        fn attend(&mut self) -> Option<Duration> {
            panic!("of no harm to others")
        }
    }

    impl Drop for Panics {
        fn drop(&mut self) {
            self.1.send(0).unwrap();
        }
    }

    #[test]
    fn a_charge_that_panics_is_done() {
        let (told, hears) = channel();
        for _ in 0..2 {
            let event = eventfd(1, EventfdFlags::CLOEXEC).unwrap();
            leave(&Arc::new(Mutex::new(Panics(event, told.clone())))).unwrap();
            assert_eq!(hears.recv(), Ok(0));
        }
    }
}
