//! A background thread that drives idle and closing channels.
//!
//! There is one for the process. It starts with the first task and ends with the last, so a server
//! without transfers has none. It sleeps until the descriptor of a task is readable, or until the
//! time that a task has asked for. It is not an async executor: its tasks are rare, short, or mostly
//! wait for the other end.

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

use super::timers::wake_in_time;
use crate::clock;

/// The most tasks at a time. Each has descriptors of its own, which are limited for a process.
const MAX_TASKS: usize = 1024;

/// The longest single sleep.
const LONGEST_SLEEP: Duration = Duration::from_secs(3600);

/// Events taken from the kernel with one call.
const MAX_EVENTS: usize = 64;

/// A task of the background thread.
pub(crate) trait Task: Send {
    /// Becomes readable when there is something to do. `None` when the task is done.
    fn descriptor(&self) -> Option<BorrowedFd<'_>>;

    /// Makes progress without waiting. Returns when to call again if the descriptor stays
    /// quiet ([`clock::now`]), or `None` when the task is done.
    fn drive(&mut self) -> Option<Duration>;
}

/// A task that its owner can take back at any time.
pub(crate) type SharedTask<C> = Arc<Mutex<C>>;

/// Identifies a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TaskId(u64);

/// Hands a task to the thread, which drops it when it is done.
///
/// # Errors
///
/// When there are too many tasks, or the system has no thread or descriptor left.
pub(crate) fn submit<C: Task + 'static>(task: &SharedTask<C>) -> io::Result<TaskId> {
    let mut background = background();
    if background.tasks.len() >= MAX_TASKS {
        return Err(Errno::AGAIN.into());
    }
    let waker = background.waker()?;
    let id = TaskId(background.next_id);
    let data = epoll::EventData::new_u64(id.0);
    if let Some(descriptor) = lock(task).descriptor() {
        epoll::add(&waker.epoll, descriptor, data, epoll::EventFlags::IN)?;
    }
    background.next_id += 1;
    let entry = Entry {
        task: Arc::<Mutex<C>>::clone(task),
        again_at: Duration::ZERO,
    };
    background.tasks.insert(id, entry);
    waker.ring();
    Ok(id)
}

/// Takes a task back: from now on the thread does not drive it.
pub(crate) fn take_back<C: Task>(id: TaskId, task: &SharedTask<C>) -> MutexGuard<'_, C> {
    let waker = background().remove(id);
    let task = lock(task);
    if let Some(waker) = waker {
        waker.forget(&*task);
    }
    task
}

pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The tasks of the process.
static BACKGROUND: Mutex<Background> = Mutex::new(Background {
    waker: None,
    tasks: BTreeMap::new(),
    next_id: 0,
});

struct Background {
    /// `None` while there is no thread.
    waker: Option<Arc<Waker>>,
    tasks: BTreeMap<TaskId, Entry>,
    next_id: u64,
}

struct Entry {
    task: SharedTask<dyn Task>,
    again_at: Duration,
}

/// Wakes the thread.
struct Waker {
    epoll: OwnedFd,
    wake: OwnedFd,
}

/// The wake-up event's own identifier in epoll.
const WAKE: u64 = u64::MAX;

impl Waker {
    fn new() -> io::Result<Self> {
        let waker = Self {
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            wake: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
        };
        let data = epoll::EventData::new_u64(WAKE);
        epoll::add(&waker.epoll, &waker.wake, data, epoll::EventFlags::IN)?;
        Ok(waker)
    }

    /// Wakes the thread, so that it reads the list again.
    fn ring(&self) {
        // Can fail only while the thread is being woken already.
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }

    /// Stops watching a descriptor. It may not be watched any more, which is no error.
    fn forget(&self, task: &(impl Task + ?Sized)) {
        if let Some(descriptor) = task.descriptor() {
            let _ = epoll::delete(&self.epoll, descriptor);
        }
    }

    /// Sleeps until an event, at the latest until `until`; returns the tasks with events.
    fn sleep(&self, until: Option<Duration>) -> Vec<TaskId> {
        let timeout = until.map(|until| {
            let left = until.saturating_sub(clock::now());
            Timespec::try_from(left.min(LONGEST_SLEEP)).expect("an hour is a short time")
        });
        let mut events = Vec::with_capacity(MAX_EVENTS);
        // epoll_wait(2) has a resolution of milliseconds; a paced message may be due earlier.
        let mut anything = [PollFd::new(&self.epoll, PollFlags::IN)];
        let _ = poll(&mut anything, timeout.as_ref());
        // The descriptors are valid; an interrupted call has no events.
        let at_once = Some(&Timespec::default());
        let _ = epoll::wait(&self.epoll, spare_capacity(&mut events), at_once);
        let ids = events.iter().map(|event| event.data.u64());
        let ids = ids.filter(|&id| id != WAKE).map(TaskId).collect();
        let _ = rustix::io::read(&self.wake, &mut [0_u8; 8]);
        ids
    }
}

impl Background {
    /// The thread's wake-up event; starts the thread if there is none.
    fn waker(&mut self) -> io::Result<Arc<Waker>> {
        if let Some(waker) = &self.waker {
            return Ok(Arc::clone(waker));
        }
        let waker = Arc::new(Waker::new()?);
        let own = Arc::clone(&waker);
        thread::Builder::new()
            .name("rdma-background".to_owned())
            .spawn(move || run_tasks(&own))?;
        self.waker = Some(Arc::clone(&waker));
        Ok(waker)
    }

    /// Records when a task wants to be called again. Returns a task that is done, to be dropped
    /// outside the lock. A task that was taken back is not on the list any more.
    fn note(&mut self, id: TaskId, again_at: Option<Duration>) -> Option<Entry> {
        let Some(again_at) = again_at else {
            return self.tasks.remove(&id);
        };
        self.tasks.get_mut(&id)?.again_at = again_at;
        None
    }

    /// Removes a task from the list; returns the event with which it is watched.
    fn remove(&mut self, id: TaskId) -> Option<Arc<Waker>> {
        self.tasks.remove(&id)?;
        self.waker.clone()
    }

    /// The tasks with events, and those whose time has come.
    fn due(&self, happened: &[TaskId]) -> Vec<(TaskId, SharedTask<dyn Task>)> {
        let now = clock::now();
        self.tasks
            .iter()
            .filter(|(id, entry)| entry.again_at <= now || happened.contains(id))
            .map(|(&id, entry)| (id, Arc::clone(&entry.task)))
            .collect()
    }
}

/// The thread.
fn run_tasks(waker: &Waker) {
    wake_in_time();
    let mut happened = Vec::new();
    loop {
        let due = background().due(&happened);
        for (id, task) in due {
            let mut task = lock(&task);
            // A task that panics is done; the others continue.
            let again_at = catch_unwind(AssertUnwindSafe(|| task.drive())).unwrap_or(None);
            if again_at.is_none() {
                waker.forget(&*task);
            }
            drop(task);
            let done = background().note(id, again_at);
            drop(done);
        }
        let mut background = background();
        if background.tasks.is_empty() {
            background.waker = None;
            return;
        }
        let until = background.tasks.values().map(|entry| entry.again_at).min();
        drop(background);
        happened = waker.sleep(until);
    }
}

fn background() -> MutexGuard<'static, Background> {
    lock(&BACKGROUND)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::sync::mpsc::{Sender, channel};

    use super::*;

    /// Counts the bytes that it reads, and reports them when it is dropped.
    struct Reader {
        from: OwnedFd,
        count: usize,
        until: usize,
        dropped: Sender<usize>,
    }

    impl Task for Reader {
        fn descriptor(&self) -> Option<BorrowedFd<'_>> {
            Some(self.from.as_fd())
        }

        fn drive(&mut self) -> Option<Duration> {
            while let Ok(1) = rustix::io::read(&self.from, &mut [0; 1]) {
                self.count += 1;
            }
            (self.count < self.until).then_some(Duration::MAX)
        }
    }

    impl Drop for Reader {
        fn drop(&mut self) {
            self.dropped.send(self.count).unwrap();
        }
    }

    #[test]
    fn tasks_are_driven_until_they_are_done() {
        let flags = rustix::pipe::PipeFlags::CLOEXEC | rustix::pipe::PipeFlags::NONBLOCK;
        let (dropped, counts) = channel();
        for until in [0, 1, 3] {
            let (from, to) = rustix::pipe::pipe_with(flags).unwrap();
            let dropped = dropped.clone();
            let reader = Reader {
                from,
                count: 0,
                until,
                dropped,
            };
            submit(&Arc::new(Mutex::new(reader))).unwrap();
            for _ in 0..until {
                rustix::io::write(&to, &[0]).unwrap();
            }
            assert_eq!(counts.recv(), Ok(until));
        }
    }

    /// Its descriptor is readable from the start.
    struct Panics(OwnedFd, Sender<usize>);

    impl Task for Panics {
        fn descriptor(&self) -> Option<BorrowedFd<'_>> {
            Some(self.0.as_fd())
        }

        fn drive(&mut self) -> Option<Duration> {
            panic!("a task fails")
        }
    }

    impl Drop for Panics {
        fn drop(&mut self) {
            self.1.send(0).unwrap();
        }
    }

    #[test]
    fn a_task_that_panics_is_done() {
        let (dropped, counts) = channel();
        for _ in 0..2 {
            let event = eventfd(1, EventfdFlags::CLOEXEC).unwrap();
            submit(&Arc::new(Mutex::new(Panics(event, dropped.clone())))).unwrap();
            assert_eq!(counts.recv(), Ok(0));
        }
    }
}
