//! Work on small files in the runtime's own threads.
//!
//! Passing a small file to another thread and waking up afterwards takes longer than the work on it. But a runtime thread
//! that a slow disk blocks may be the one that would have polled the network, and the others are not woken. So at least one
//! thread is kept free of such work, and a watcher thread examines the others regularly: when one is blocked, the watcher
//! wakes another one to poll.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;

/// The interval of the watcher, and the longest time that a slow disk delays the network.
const LOOK_EVERY: Duration = Duration::from_millis(5);

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
    /// The start of the work in each place, in nanoseconds after `began`; 0 if it is free.
    since: Box<[AtomicU64]>,
    /// The watcher is asleep.
    is_unwatched: AtomicBool,
    is_closed: AtomicBool,
}

/// The right to work in a runtime thread, until it is dropped.
#[derive(Debug)]
pub(crate) struct Place<'a>(&'a AtomicU64);

impl InPlace {
    /// A place, unless the limit is reached. Must be called, and the place dropped, in a runtime thread.
    pub(crate) fn enter(&self) -> Option<Place<'_>> {
        let watched = self.watched.get_or_init(Watched::start).as_ref()?;
        let now = watched.places.now();
        let is_free = |place: &&AtomicU64| {
            place
                .compare_exchange(0, now, Ordering::SeqCst, Ordering::Relaxed)
                .is_ok()
        };
        let place = watched.places.since.iter().find(is_free)?;
        if watched.places.is_unwatched.swap(false, Ordering::SeqCst) {
            watched.watcher.unpark();
        }
        Some(Place(place))
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.store(0, Ordering::Release);
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
        let now = self.now();
        let longest = u64::try_from(LOOK_EVERY.as_nanos()).unwrap_or(u64::MAX);
        self.since.iter().any(|since| {
            let since = since.load(Ordering::Acquire);
            since != 0 && now.saturating_sub(since) >= longest
        })
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::TcpStream;
    use std::sync::mpsc::{self, Sender};

    use tokio::io::AsyncReadExt;
    use tokio::net::TcpListener;
    use tokio::runtime::{Builder, Runtime};

    use super::*;

    /// A task that waits for a byte, and does something with each; and the end to send them from.
    fn listening(runtime: &Runtime, mut work: impl FnMut() + Send + 'static) -> TcpStream {
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0"));
        let listener = listener.expect("a port");
        let address = listener.local_addr().expect("bound");
        runtime.spawn(async move {
            let (mut stream, _) = listener.accept().await.expect("accepted");
            while stream.read_exact(&mut [0]).await.is_ok() {
                work();
            }
        });
        TcpStream::connect(address).expect("connected")
    }

    fn telling(sender: Sender<()>) -> impl FnMut() + Send + 'static {
        move || sender.send(()).expect("the test waits")
    }

    #[test]
    fn the_network_goes_on_while_a_thread_is_held_up() {
        let runtime = Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .expect("a runtime");
        let (heard, hear) = mpsc::channel();
        let mut other = listening(&runtime, telling(heard));
        let (is_held, held) = mpsc::channel();
        let (release, released) = mpsc::channel::<()>();
        let in_place = InPlace::default();
        // The thread that receives the byte was the one that polled the network.
        let mut blocked = listening(&runtime, move || {
            let place = in_place.enter();
            assert!(place.is_some() && in_place.enter().is_none());
            is_held.send(()).expect("the test waits");
            let _ = released.recv();
        });
        blocked.write_all(b"b").expect("sent");
        held.recv().expect("held up");
        for _ in 0..10 {
            other.write_all(b"o").expect("sent");
            let answer = hear.recv_timeout(Duration::from_secs(20));
            answer.expect("the network goes on");
        }
        drop(release);
    }
}
