//! Work on small files in the runtime's own threads.
//!
//! Passing a small file to another thread and waking up afterwards takes longer than the work on it. But a runtime thread
//! that a slow disk blocks may be the one that would have polled the network, and the others are not woken. So at least one
//! thread is kept free of such work, and a watcher thread examines the others regularly: when one is blocked, the watcher
//! wakes another one to poll.
//!
//! Work waits for its turn for a moment, because the files before it take less time than another thread would need. Only behind a
//! slow disk it goes to another thread.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

/// The interval of the watcher, and the longest time that a slow disk delays the network.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// The longest time that work waits for a place, and the longest time that work in a place takes if its disk is not slow.
const PATIENCE: Duration = Duration::from_millis(1);

/// The watcher sleeps after this number of rounds without work.
const IDLE_LOOKS: u32 = 200;

/// The places for work in runtime threads.
#[derive(Debug, Default)]
pub(crate) struct InPlace {
    /// Created by the first session; `None` with a single processor, or if the watcher cannot be started.
    watched: OnceLock<Option<Watched>>,
}

#[derive(Debug)]
struct Watched {
    places: Arc<Places>,
    watcher: Thread,
}

#[derive(Debug)]
struct Places {
    began: Instant,
    /// One permit for each place. Those who wait get them in their order.
    turns: Semaphore,
    /// The start of the work in each place, in nanoseconds after `began`; 0 if it is free.
    since: Box<[AtomicU64]>,
    /// The watcher is asleep.
    is_unwatched: AtomicBool,
    is_closed: AtomicBool,
}

/// The right to work in a runtime thread, until it is dropped.
#[derive(Debug)]
pub(crate) struct Place<'a> {
    since: &'a AtomicU64,
    // Returned after `since` is 0.
    _turn: SemaphorePermit<'a>,
}

impl InPlace {
    /// A place, unless all are taken for longer than a moment. Must be called, and the place dropped, in a runtime thread, and it must
    /// not be held while a task waits.
    pub(crate) async fn enter(&self) -> Option<Place<'_>> {
        let watched = self.watched.get_or_init(Watched::start).as_ref()?;
        let places = &watched.places;
        let turn = match places.turns.try_acquire() {
            Ok(turn) => turn,
            Err(_) if places.are_slow() => return None,
            Err(_) => timeout(PATIENCE, places.turns.acquire()).await.ok()?.ok()?,
        };
        let place = places.place(turn)?;
        if places.is_unwatched.swap(false, Ordering::SeqCst) {
            watched.watcher.unpark();
        }
        Some(place)
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.since.store(0, Ordering::Release);
    }
}

impl Watched {
    fn start() -> Option<Self> {
        let runtime = Handle::current();
        let count = runtime.metrics().num_workers().saturating_sub(1);
        if count == 0 {
            return None;
        }
        let places = Arc::new(Places {
            began: Instant::now(),
            turns: Semaphore::new(count),
            since: (0..count).map(|_| AtomicU64::new(0)).collect(),
            is_unwatched: AtomicBool::new(true),
            is_closed: AtomicBool::new(false),
        });
        let watcher = thread::Builder::new().name("in-place".to_owned()).spawn({
            let places = places.clone();
            move || places.watch(&runtime)
        });
        let watcher = watcher.ok()?.thread().clone();
        Some(Self { places, watcher })
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.places.is_closed.store(true, Ordering::Release);
        self.watcher.unpark();
    }
}

impl Places {
    fn now(&self) -> u64 {
        let elapsed = self.began.elapsed().as_nanos();
        u64::try_from(elapsed).unwrap_or(u64::MAX).max(1)
    }

    /// The place of a turn.
    fn place<'a>(&'a self, turn: SemaphorePermit<'a>) -> Option<Place<'a>> {
        let now = self.now();
        let is_free = |place: &&AtomicU64| {
            place
                .compare_exchange(0, now, Ordering::SeqCst, Ordering::Relaxed)
                .is_ok()
        };
        // There is one for each turn.
        let since = self.since.iter().find(is_free)?;
        Some(Place { since, _turn: turn })
    }

    /// Whether the work in all places takes longer than a moment.
    fn are_slow(&self) -> bool {
        self.since
            .iter()
            .all(|since| self.is_older(since, PATIENCE))
    }

    fn watch(&self, runtime: &Handle) {
        let mut idle_looks = 0;
        while !self.is_closed.load(Ordering::Acquire) {
            if self.is_unwatched.load(Ordering::Acquire) {
                thread::park();
                idle_looks = 0;
                continue;
            }
            thread::park_timeout(LOOK_EVERY);
            if self.is_held_up() {
                // The thread that runs this task polls the network afterwards.
                runtime.spawn(async {});
            }
            idle_looks = if self.is_busy() { 0 } else { idle_looks + 1 };
            if idle_looks >= IDLE_LOOKS {
                self.is_unwatched.store(true, Ordering::SeqCst);
                // Work that began at this moment may have missed the flag.
                if self.is_busy() {
                    self.is_unwatched.store(false, Ordering::SeqCst);
                }
            }
        }
    }

    fn is_busy(&self) -> bool {
        let is_busy = |since: &AtomicU64| since.load(Ordering::SeqCst) != 0;
        self.since.iter().any(is_busy)
    }

    /// Whether work in a place takes long.
    fn is_held_up(&self) -> bool {
        let mut places = self.since.iter();
        places.any(|since| self.is_older(since, LOOK_EVERY))
    }

    /// Whether there is work in a place that began before so long.
    fn is_older(&self, since: &AtomicU64, age: Duration) -> bool {
        let since = since.load(Ordering::Acquire);
        let age = u64::try_from(age.as_nanos()).unwrap_or(u64::MAX);
        since != 0 && self.now().saturating_sub(since) >= age
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::TcpStream;
    use std::sync::Mutex;
    use std::sync::mpsc::{self, Sender};

    use tokio::io::AsyncReadExt;
    use tokio::net::TcpListener;
    use tokio::runtime::{Builder, Runtime};

    use super::*;

    /// A task that waits for a byte, and does something with each; and the end to send them from.
    fn listening<W: Future<Output = ()> + Send + 'static>(
        runtime: &Runtime,
        mut work: impl FnMut() -> W + Send + 'static,
    ) -> TcpStream {
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0"));
        let listener = listener.expect("a port");
        let address = listener.local_addr().expect("bound");
        runtime.spawn(async move {
            let (mut stream, _) = listener.accept().await.expect("accepted");
            while stream.read_exact(&mut [0]).await.is_ok() {
                work().await;
            }
        });
        TcpStream::connect(address).expect("connected")
    }

    fn telling(sender: Sender<()>) -> impl FnMut() -> std::future::Ready<()> + Send + 'static {
        move || {
            sender.send(()).expect("the test waits");
            std::future::ready(())
        }
    }

    fn runtime() -> Runtime {
        Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .expect("a runtime")
    }

    #[test]
    fn the_network_goes_on_while_a_thread_is_held_up() {
        let runtime = runtime();
        let (heard, hear) = mpsc::channel();
        let mut other = listening(&runtime, telling(heard));
        let (is_held, held) = mpsc::channel();
        let (release, released) = mpsc::channel::<()>();
        let in_place = Arc::new(InPlace::default());
        let (blocked_in, released) = (Arc::clone(&in_place), Arc::new(Mutex::new(released)));
        // The thread that receives the byte was the one that polled the network.
        let mut blocked = listening(&runtime, move || {
            let (in_place, released) = (Arc::clone(&blocked_in), Arc::clone(&released));
            let is_held = is_held.clone();
            async move {
                let _place = in_place.enter().await.expect("a place");
                is_held.send(()).expect("the test waits");
                let _ = released.lock().expect("no panic").recv();
            }
        });
        blocked.write_all(b"b").expect("sent");
        held.recv().expect("held up");
        // It does not wait for a thread that is held up.
        assert!(runtime.block_on(in_place.enter()).is_none());
        for _ in 0..10 {
            other.write_all(b"o").expect("sent");
            let answer = hear.recv_timeout(Duration::from_secs(20));
            answer.expect("the network goes on");
        }
        drop(release);
    }

    #[test]
    fn work_waits_for_its_turn() {
        const ROUNDS: usize = 1000;

        let in_place = Arc::new(InPlace::default());
        let at_work = Arc::new(AtomicU64::new(0));
        let runtime = runtime();
        let work = || {
            let (in_place, at_work) = (Arc::clone(&in_place), Arc::clone(&at_work));
            async move {
                let mut turns = 0_usize;
                for _ in 0..ROUNDS {
                    if let Some(_place) = in_place.enter().await {
                        assert_eq!(at_work.fetch_add(1, Ordering::SeqCst), 0);
                        turns += 1;
                        at_work.fetch_sub(1, Ordering::SeqCst);
                    }
                }
                turns
            }
        };
        let tasks = [(); 4].map(|()| runtime.spawn(work()));
        let turns = tasks.map(|task| runtime.block_on(task).expect("no panic"));
        // A thread of a busy machine may be away for longer than a moment.
        let all: usize = turns.iter().sum();
        assert!(all >= 4 * ROUNDS * 9 / 10, "{turns:?}");
    }
}
