//! Threads for what blocks: each kind of work has its own number of them, dealt out in fair shares.
//!
//! Logins have threads that no work on files takes. Opening the files of a client that logs in may wait for a file
//! system that hangs, and so has threads of its own as well. A unit of a pool is held until the thread is free
//! again, also when no session waits for the result any more: a thread that is stuck in the kernel counts for the client
//! whose file it is. What waits for a thread is a task, and needs none.

use std::sync::Arc;

use gridhaul_shares::{Grant, Load, Pool, Source};

/// Trust files, authorization, data ports: work that touches the server's own files only, and is quick. Handshakes and
/// passwords, which compute for long, have [`Workers`](crate::admission::Workers).
const LOGINS: usize = 64;

/// Roots that are being opened, and brokers that are being started.
const ATTACHING: usize = 64;

/// Threads that help with large directories.
const LISTERS: usize = 64;

/// Listings on control connections that wait for their readers. Each holds a few hundred kilobytes.
const LISTINGS: usize = 256;

/// Directories that are open because a tree is listed, beside the uppermost ones. Each holds a descriptor and some
/// hundred kilobytes.
const LEVELS: usize = 2048;

/// What the runtime needs beside these.
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
    /// `files` is how many threads work on files.
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

    /// How many blocking threads a runtime must allow, so that work that holds a unit never waits for a thread.
    pub(crate) fn needed(files: usize) -> usize {
        LOGINS + ATTACHING + files + OTHERS
    }

    /// Does work that a login needs and that touches no account's files. `None` if it panicked.
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

    /// Waits for a thread that may work on files.
    pub(crate) async fn file_thread(&self, source: &Source) -> FileThread {
        FileThread(self.files.take(source, 1).granted().await)
    }

    /// Waits for the right to hold a listing for a client that reads it on its control connection.
    pub(crate) async fn listing(&self, source: &Source) -> Grant {
        self.listings.take(source, 1).granted().await
    }

    /// What listings of a client may take beside their own thread.
    pub(crate) fn listers(self: &Arc<Self>, source: &Source) -> Listers {
        Listers {
            threads: Arc::clone(self),
            source: source.clone(),
        }
    }

    /// How many threads work on files, and what waits for one.
    pub(crate) fn files_load(&self) -> Load {
        self.files.load()
    }
}

/// What listings of a client may take beside their own thread.
#[derive(Debug, Clone)]
pub(crate) struct Listers {
    threads: Arc<Threads>,
    source: Source,
}

impl Listers {
    /// One more thread that helps, or lines that are made before the reader wants them; if there is one.
    pub(crate) fn helper(&self) -> Option<Grant> {
        self.threads.listers.try_take(&self.source, 1)
    }

    /// One more directory of a tree that is kept open, if there may be one.
    pub(crate) fn level(&self) -> Option<Grant> {
        self.threads.levels.try_take(&self.source, 1)
    }
}

/// The right to one thread that works on files.
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
    // Work that panicked says so on standard error.
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
