//! A transfer that was started on the session's thread.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use gridhaul_protocol::ranges::RangeSet;

use super::job::Held;
use crate::error::CancelReason;
use crate::node::{Progress, RunningTransfer, Survey};
use crate::running::Running;
use crate::sync::lock;

/// A transfer that was started on the session's thread, and may be held there.
pub(super) struct InlineTransfer {
    running: Arc<Running>,
    held: Mutex<Option<Held>>,
}

impl InlineTransfer {
    pub(super) fn new(running: Arc<Running>, held: Option<Held>) -> Self {
        let held = Mutex::new(held);
        Self { running, held }
    }

    fn take_held(&self) -> Option<Held> {
        lock(&self.held).take()
    }
}

impl RunningTransfer for InlineTransfer {
    fn cancel(&self, reason: CancelReason) {
        self.running.cancel(reason);
        // A held transfer has to run to report its end.
        self.resume_on_worker();
    }

    fn progress(&self) -> Progress {
        self.running.progress()
    }

    fn channels(&self) -> Vec<u64> {
        self.running.channels()
    }

    fn survey(&self) -> Survey {
        self.running.survey()
    }

    fn take_received(&self) -> RangeSet {
        self.running.take_received()
    }

    fn is_settling(&self) -> bool {
        self.running.is_settling()
    }

    fn waited(&self) -> Duration {
        self.running.waited()
    }

    fn is_held(&self) -> bool {
        lock(&self.held).is_some()
    }

    fn resume_if_arrived(&self) {
        let arrived = {
            let mut held = lock(&self.held);
            held.take_if(|held| held.has_begun_to_arrive())
        };
        if let Some(held) = arrived {
            held.resume_here();
        }
    }

    fn resume_here(&self) {
        if let Some(held) = self.take_held() {
            held.resume_here();
        }
    }

    fn resume_on_worker(&self) {
        if let Some(held) = self.take_held() {
            held.resume_on_worker();
        }
    }
}

impl fmt::Debug for InlineTransfer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InlineTransfer")
            .field("running", &self.running)
            .finish_non_exhaustive()
    }
}
