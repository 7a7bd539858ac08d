//! Blocking threads of the sessions, divided in fair shares, so that a client whose file system hangs leaves threads for others. A
//! thread that is stuck in the kernel counts for its client also after the end of the session.

use gridhaul_shares::{Grant, Pool, Source};
use tokio::task::spawn_blocking;

/// For opening roots and starting brokers.
const ATTACHING: usize = 64;

/// For data ports: quick work.
const PORTS: usize = 64;

/// Other blocking threads of the runtime.
const OTHERS: usize = 128;

/// The blocking threads of a node.
pub(super) struct Threads {
    pub(super) attaching: Pool,
    /// For calls for storage and checksums.
    pub(super) files: Pool,
    pub(super) ports: Pool,
}

impl Threads {
    /// `files` is the number of threads for work on files.
    pub(super) fn new(files: usize) -> Self {
        Self {
            attaching: Pool::new(ATTACHING),
            files: Pool::new(files),
            ports: Pool::new(PORTS),
        }
    }

    /// The number of blocking threads that the runtime must allow.
    pub(super) fn needed(files: usize) -> usize {
        ATTACHING + PORTS + files + OTHERS
    }
}

/// Does work on a thread of this pool, when the source may have one. `None` if it panicked.
pub(super) async fn run<T: Send + 'static>(
    pool: &Pool,
    source: &Source,
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let grant: Grant = pool.take(source, 1).granted().await;
    let work = move || {
        let _grant = grant;
        work()
    };
    spawn_blocking(work).await.ok()
}
