//! The consent of the session to a received file, before it replaces the one at its name.
//!
//! A client compares a file with the other end first: whether the server says that it has sent all of it, and the checksums.

use std::fmt;
use std::sync::{Condvar, Mutex};
use std::time::Duration;

use gridhaul_storage::ChecksumAlgorithm;

use crate::sync::{ignore_poison, lock};

/// How often a waiting transfer looks whether it was cancelled.
const INTERVAL: Duration = Duration::from_millis(100);

/// Receives the checksums of a file that has arrived: those that the plan names.
pub type ConsentSink = Box<dyn Fn(Vec<(ChecksumAlgorithm, String)>) + Send + Sync>;

/// Asks the session whether a received file is what it should be. Only on a node of the same process.
///
/// A worker waits for the answer. A transfer that is cancelled meanwhile leaves the file under its temporary name, as one that
/// was cancelled earlier.
pub struct Consent {
    ask: ConsentSink,
    answer: Mutex<Option<Answer>>,
    answered: Condvar,
}

/// What the session says about a received file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// It is complete.
    Complete,
    /// It is complete if so many bytes have arrived. More would have been counted for the file that follows, or be those of another
    /// version.
    CompleteWith(u64),
    /// Its content is wrong. It is removed: a restart must not continue it.
    WrongChecksum {
        /// The checksum of the file.
        computed: String,
        /// That of the other end.
        expected: String,
    },
}

impl Consent {
    /// `ask` is called once, on a thread of the transfer.
    pub fn new(ask: ConsentSink) -> Self {
        Self {
            ask,
            answer: Mutex::default(),
            answered: Condvar::new(),
        }
    }

    /// Answers; only the first answer counts.
    pub fn answer(&self, answer: Answer) {
        lock(&self.answer).get_or_insert(answer);
        self.answered.notify_all();
    }

    /// Whether the answer is there before the question, so that a transfer does not wait.
    pub(crate) fn is_answered(&self) -> bool {
        lock(&self.answer).is_some()
    }

    /// Asks, and waits. `None` if the transfer is cancelled.
    pub(crate) fn wait(
        &self,
        sums: Vec<(ChecksumAlgorithm, String)>,
        is_cancelled: impl Fn() -> bool,
    ) -> Option<Answer> {
        (self.ask)(sums);
        let mut answer = lock(&self.answer);
        loop {
            if let Some(answer) = answer.take() {
                return Some(answer);
            }
            if is_cancelled() {
                return None;
            }
            answer = ignore_poison(self.answered.wait_timeout(answer, INTERVAL)).0;
        }
    }
}

/// A consent is for one transfer.
impl PartialEq for Consent {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Eq for Consent {}

impl fmt::Debug for Consent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Consent").finish_non_exhaustive()
    }
}
