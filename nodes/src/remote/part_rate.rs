//! The rate of a transfer on a node: its part of the limits that it shares with transfers on other nodes.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use gridhaul_transfer::{BandwidthLimit, BandwidthPart};
use tokio::runtime::Handle;
use tokio::time::{MissedTickBehavior, interval};

use super::transfer::RemoteTransfer;

/// How often the rate is looked at. Nodes tell the bytes of a transfer as often.
const EVERY: Duration = Duration::from_millis(500);

/// The rate of a transfer.
pub(super) struct PartRate {
    parts: Vec<BandwidthPart>,
    /// Bytes per second, as the node was told last; `None` is no limit.
    told: Option<u64>,
}

impl PartRate {
    /// A part of each limit.
    pub(super) fn of(limits: &[Arc<BandwidthLimit>]) -> Self {
        let mut rate = Self {
            parts: limits.iter().map(BandwidthPart::of).collect(),
            told: None,
        };
        rate.told = rate.after(0);
        rate
    }

    /// The rate at the beginning.
    pub(super) fn present(&self) -> Option<u64> {
        self.told
    }

    /// Tells the node when the rate changes, until the transfer ends.
    pub(super) fn keep(mut self, transfer: &Arc<RemoteTransfer>, runtime: &Handle) {
        if self.parts.is_empty() {
            return;
        }
        let transfer: Weak<RemoteTransfer> = Arc::downgrade(transfer);
        runtime.spawn(async move {
            let mut ticks = interval(EVERY);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                ticks.tick().await;
                let Some(transfer) = transfer.upgrade() else {
                    return;
                };
                let Some(moved) = transfer.moved() else {
                    return;
                };
                let rate = self.after(moved);
                if rate != self.told {
                    transfer.set_rate(rate);
                    self.told = rate;
                }
            }
        });
    }

    fn after(&self, moved: u64) -> Option<u64> {
        let now = Instant::now();
        let rates = self.parts.iter().filter_map(|part| part.rate(moved, now));
        rates.min()
    }
}
