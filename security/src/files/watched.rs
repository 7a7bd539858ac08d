//! Values that are read from files, and reloaded when the files change.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::FileError;

/// The minimum interval between checks for changes.
const INTERVAL: Duration = Duration::from_secs(1);

/// A value, and the `Stamp` of its files when it was read.
#[derive(Debug)]
pub(super) struct Watched<T, Stamp>(Mutex<State<T, Stamp>>);

#[derive(Debug)]
struct State<T, Stamp> {
    looked: Instant,
    stamp: Stamp,
    value: Arc<T>,
    failure: Option<Arc<FileError>>,
}

impl<T, Stamp> Watched<T, Stamp> {
    pub(super) fn new(stamp: Stamp, value: T) -> Self {
        Self(Mutex::new(State {
            looked: Instant::now(),
            stamp,
            value: Arc::new(value),
            failure: None,
        }))
    }

    /// The present value. If a check is due, `read` gets the old stamp and returns a new value with its stamp, or `None` if
    /// the files are unchanged. If it fails, the old value stays in use.
    pub(super) fn current(
        &self,
        now: Instant,
        read: impl FnOnce(&Stamp) -> Result<Option<(Stamp, T)>, FileError>,
    ) -> Arc<T> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if now.saturating_duration_since(state.looked) >= INTERVAL {
            state.looked = now;
            match read(&state.stamp) {
                Ok(changed) => {
                    state.failure = None;
                    if let Some((stamp, value)) = changed {
                        state.stamp = stamp;
                        state.value = Arc::new(value);
                    }
                }
                Err(error) => {
                    state.failure.get_or_insert_with(|| Arc::new(error));
                }
            }
        }
        Arc::clone(&state.value)
    }

    /// Why the last check failed, if it did. The error stays the same until a check succeeds.
    pub(super) fn failure(&self) -> Option<Arc<FileError>> {
        let state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.failure.clone()
    }
}

/// The metadata of a file that changes when its content is changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct FileStamp {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl From<&Metadata> for FileStamp {
    fn from(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    fn failed() -> FileError {
        FileError::Io {
            path: "f".into(),
            error: io::ErrorKind::NotFound.into(),
        }
    }

    #[test]
    fn files_are_checked_once_in_an_interval() {
        let watched = Watched::new(1, "old");
        let soon = Instant::now();
        let unseen = watched.current(soon, |_| panic!("it is too early"));
        assert_eq!(*unseen, "old");
        let later = soon + INTERVAL;
        assert_eq!(*watched.current(later, |_| Ok(Some((2, "new")))), "new");
        assert_eq!(
            *watched.current(later, |_| panic!("it is too early")),
            "new"
        );
    }

    #[test]
    fn a_failure_keeps_the_old_value_until_a_check_succeeds() {
        let watched = Watched::new(1, "old");
        let mut now = Instant::now() + INTERVAL;
        assert_eq!(*watched.current(now, |_| Err(failed())), "old");
        let first = watched.failure().expect("the look failed");
        now += INTERVAL;
        watched.current(now, |_| Err(failed()));
        let second = watched.failure().expect("the look failed");
        assert!(Arc::ptr_eq(&first, &second));
        now += INTERVAL;
        let unchanged = watched.current(now, |stamp| {
            assert_eq!(*stamp, 1);
            Ok(None)
        });
        assert_eq!(*unchanged, "old");
        assert!(watched.failure().is_none());
    }
}
