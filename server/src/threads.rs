//! Threads for blocking work: each kind of work has a number of threads, divided in fair shares.
//!
//! Logins have threads that no work on files takes. Opening the files of a client that logs in may wait for a file system
//! that hangs, and so has its own threads too. A unit of a pool is held until the thread is free again, even if no session
//! waits for the result any more: a thread that is stuck in the kernel counts for the client of the file. A task that waits
//! for a thread needs none.

use std::sync::Arc;

use gridhaul_shares::{Grant, Load, Pool, Source};

/// For trust files, authorization and data ports: quick work that touches only the server's own files. Handshakes and
/// passwords, which compute for long, have [`Workers`](crate::admission::Workers).
const LOGINS: usize = 64;

/// For opening roots and starting brokers.
const ATTACHING: usize = 64;

/// Threads that help with large directories.
const LISTERS: usize = 64;

/// The limit of listings on control connections whose clients have not read them yet. Each holds a few hundred kilobytes.
const LISTINGS: usize = 256;

/// The limit of open directories of recursive listings, without the uppermost ones. Each holds a descriptor and some hundred
/// kilobytes.
const LEVELS: usize = 2048;

/// Other blocking threads of the runtime.
const OTHERS: usize = 128;

/// The blocking threads of a server.
#[derive(Debug)]
pub(crate) struct Threads {
    logins: Pool,
    attaching: Pool,
    files: Pool,
    listers: Pool,
    listings: Pool,
    levels: Pool,
}

impl Threads {
    /// `files` is the number of threads for work on files.
    pub(crate) fn new(files: usize) -> Arc<Self> {
        Arc::new(Self {
            logins: Pool::new(LOGINS),
            attaching: Pool::new(ATTACHING),
            files: Pool::new(files),
            listers: Pool::new(LISTERS),
            listings: Pool::new(LISTINGS),
            levels: Pool::new(LEVELS),
        })
    }

    /// The number of blocking threads that the runtime must allow, so that work with a unit never waits for a thread.
    pub(crate) fn needed(files: usize) -> usize {
        LOGINS + ATTACHING + files + OTHERS
    }

    /// Does work of a login that touches no account's files. `None` if it panicked.
    pub(crate) async fn log_in<T: Send + 'static>(
        &self,
        source: &Source,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        run(self.logins.take(source, 1).granted().await, work).await
    }

    /// Opens the files of a client that logs in. `None` if it panicked.
    pub(crate) async fn attach<T: Send + 'static>(
        &self,
        source: &Source,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        run(self.attaching.take(source, 1).granted().await, work).await
    }

    /// Waits for a thread for work on files.
    pub(crate) async fn file_thread(&self, source: &Source) -> FileThread {
        FileThread(self.files.take(source, 1).granted().await)
    }

    /// Waits for a unit to hold a listing while a client reads it on its control connection.
    pub(crate) async fn listing(&self, source: &Source) -> Grant {
        self.listings.take(source, 1).granted().await
    }

    /// The resources that listings of a client may take beside their own thread.
    pub(crate) fn listers(self: &Arc<Self>, source: &Source) -> Listers {
        Listers {
            threads: Arc::clone(self),
            source: source.clone(),
        }
    }

    /// The load of the threads for work on files.
    pub(crate) fn files_load(&self) -> Load {
        self.files.load()
    }
}

/// The resources that listings of a client may take beside their own thread.
#[derive(Debug, Clone)]
pub(crate) struct Listers {
    threads: Arc<Threads>,
    source: Source,
}

impl Listers {
    /// A unit for another thread that helps, or for lines that are made in advance; `None` if there is none.
    pub(crate) fn helper(&self) -> Option<Grant> {
        self.threads.listers.try_take(&self.source, 1)
    }

    /// A unit for another open directory of a recursive listing; `None` if there is none.
    pub(crate) fn level(&self) -> Option<Grant> {
        self.threads.levels.try_take(&self.source, 1)
    }
}

/// The right to one thread for work on files.
#[derive(Debug)]
pub(crate) struct FileThread(Grant);

impl FileThread {
    /// Does the work. `None` if it panicked.
    pub(crate) async fn run<T: Send + 'static>(
        self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        run(self.0, work).await
    }
}

async fn run<T: Send + 'static>(
    grant: Grant,
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let work = move || {
        let _grant = grant;
        work()
    };
    // The panic message is on standard error.
    tokio::task::spawn_blocking(work).await.ok()
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    fn source(host: u8) -> Source {
        Source::at([192, 0, 2, host].into()).with_account(host.to_string())
    }

    /// File systems that hang take the share of their clients, and nothing from logins.
    #[tokio::test]
    async fn threads_that_hang_count_for_their_client() {
        let threads = Threads::new(8);
        let (end, ended) = mpsc::channel::<()>();
        let ended = Arc::new(std::sync::Mutex::new(ended));
        let mut stuck = Vec::new();
        for _ in 0..100 {
            let (threads, ended) = (threads.clone(), ended.clone());
            stuck.push(tokio::spawn(async move {
                let thread = threads.file_thread(&source(1)).await;
                let hang = move || ended.lock().map(|ended| ended.recv().is_ok()).is_ok();
                thread.run(hang).await
            }));
        }
        while threads.files_load().waiting < 94 {
            tokio::task::yield_now().await;
        }
        assert_eq!(threads.files_load().held, 6);
        // The results are not needed any more, but the threads are still busy.
        for task in stuck {
            task.abort();
            assert!(task.await.is_err());
        }
        assert_eq!(threads.files_load().held, 6);
        let other = threads.file_thread(&source(2)).await;
        assert_eq!(other.run(|| 1).await, Some(1));
        assert_eq!(threads.log_in(&source(1), || 2).await, Some(2));
        assert_eq!(threads.attach(&source(1), || 3).await, Some(3));
        drop(end);
    }
}
