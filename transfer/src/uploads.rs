//! The uploads under temporary names that are running, so that two of them never write to one file.
//!
//! A later upload of the same name replaces the running one: a client whose connection broke restarts at once, while the
//! server may still wait for more bytes on the old connection.

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use gridhaul_storage::FileIdentity;

use crate::error::CancelReason;
use crate::node::RunningTransfer as _;
use crate::running::Running;
use crate::sync::{ignore_poison, lock};

/// How long a later upload waits for the end of the replaced one, most of whose calls end within 100 ms.
const PATIENCE: Duration = Duration::from_secs(10);

/// How often the waiting upload looks whether it was cancelled itself.
const INTERVAL: Duration = Duration::from_millis(100);

/// The uploads of a node, by the file that they write to.
#[derive(Debug, Default)]
pub(crate) struct Uploads {
    running: Mutex<HashMap<FileIdentity, Writer>>,
    ended: Condvar,
}

#[derive(Debug)]
struct Writer {
    transfer: Arc<Running>,
    /// It is getting its final name, and is not replaced any more.
    completing: bool,
}

/// The exclusive use of a file by an upload.
#[derive(Debug)]
pub(crate) struct Claim {
    uploads: Arc<Uploads>,
    file: FileIdentity,
    /// The claim of another upload was ended for this one.
    has_replaced: bool,
}

impl Uploads {
    /// Claims a file for a transfer, and cancels the transfer that has it. `None` if that does not end.
    pub(crate) fn claim(
        self: &Arc<Self>,
        file: FileIdentity,
        transfer: &Arc<Running>,
    ) -> Option<Claim> {
        let deadline = Instant::now() + PATIENCE;
        let mut running = lock(&self.running);
        let has_replaced = running.contains_key(&file);
        while let Some(writer) = running.get(&file) {
            if !writer.completing {
                writer.transfer.cancel(CancelReason::Replaced);
            }
            if transfer.has_failed() || Instant::now() >= deadline {
                return None;
            }
            running = ignore_poison(self.ended.wait_timeout(running, INTERVAL)).0;
        }
        let transfer = transfer.clone();
        running.insert(
            file,
            Writer {
                transfer,
                completing: false,
            },
        );
        Some(Claim {
            uploads: self.clone(),
            file,
            has_replaced,
        })
    }
}

impl Claim {
    /// Whether another upload of the file has ended for this one.
    pub(crate) fn has_replaced(&self) -> bool {
        self.has_replaced
    }

    /// From now on the upload is not replaced. Returns false if it has failed or was replaced before.
    pub(crate) fn begin_completing(&self) -> bool {
        let mut running = lock(&self.uploads.running);
        running.get_mut(&self.file).is_some_and(|writer| {
            writer.completing = true;
            !writer.transfer.has_failed()
        })
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        lock(&self.uploads.running).remove(&self.file);
        self.uploads.ended.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    const FILE: FileIdentity = FileIdentity {
        device: 1,
        inode: 2,
    };

    fn transfer() -> Arc<Running> {
        Running::new(1, Box::new(|_| {}))
    }

    #[test]
    fn a_later_upload_replaces_a_running_one() {
        let uploads = Arc::new(Uploads::default());
        let (first, second) = (transfer(), transfer());
        let claim = uploads.claim(FILE, &first).expect("free");
        let other = FileIdentity { inode: 3, ..FILE };
        assert!(uploads.claim(other, &second).is_some());
        thread::scope(|scope| {
            let waiting = scope.spawn(|| uploads.claim(FILE, &second).is_some());
            while !first.cancel.is_cancelled() {
                thread::yield_now();
            }
            assert!(!claim.begin_completing(), "it was replaced");
            drop(claim);
            assert!(waiting.join().expect("no panic"));
        });
        assert!(!second.has_failed());
    }

    #[test]
    fn an_upload_that_completes_is_awaited() {
        let uploads = Arc::new(Uploads::default());
        let (first, second) = (transfer(), transfer());
        let claim = uploads.claim(FILE, &first).expect("free");
        assert!(claim.begin_completing());
        thread::scope(|scope| {
            let waiting = scope.spawn(|| uploads.claim(FILE, &second).is_some());
            drop(claim);
            assert!(waiting.join().expect("no panic"));
        });
        assert!(!first.has_failed());
    }

    #[test]
    fn an_upload_that_was_cancelled_waits_for_no_other() {
        let uploads = Arc::new(Uploads::default());
        let (first, second) = (transfer(), transfer());
        let _claim = uploads.claim(FILE, &first).expect("free");
        second.cancel(CancelReason::Abort);
        assert!(uploads.claim(FILE, &second).is_none());
    }
}
