//! The wait of a transfer for bandwidth.
//!
//! A transfer pays for each piece of data, before it sends it or after it has received it, and waits until the piece fits into
//! its limits. Only one worker of a transfer waits at a time, so transfers share a rate equally, independent of their number of
//! channels.

use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use gridhaul_stack::ChannelError;

use crate::bandwidth::BandwidthLimit;
use crate::error::TransferError;
use crate::running::Running;
use crate::sync::lock;

/// A waiting worker looks this often whether its transfer was cancelled.
const INTERVAL: Duration = Duration::from_millis(50);

/// The limits that apply to one transfer.
#[derive(Debug)]
pub(crate) struct Throttle {
    limits: Vec<Arc<BandwidthLimit>>,
    /// Held by the worker that pays.
    turn: Mutex<()>,
}

impl Throttle {
    /// `None` without limits.
    pub(crate) fn new(limits: &[Arc<BandwidthLimit>]) -> Option<Arc<Self>> {
        let limits = (!limits.is_empty()).then(|| limits.to_vec())?;
        let turn = Mutex::default();
        Some(Arc::new(Self { limits, turn }))
    }

    /// How many bytes a worker should move at a time, at most.
    pub(crate) fn piece_bytes(&self) -> u64 {
        let pieces = self.limits.iter().filter_map(|limit| limit.piece());
        pieces.min().unwrap_or(u64::MAX)
    }

    /// Waits until `bytes` fit into all limits. Takes them in pieces of the same size as all other transfers with the same
    /// limit, which take turns.
    pub(crate) fn pay(&self, running: &Running, bytes: u64) -> Result<(), TransferError> {
        let _turn = lock(&self.turn);
        let mut left = bytes;
        while left > 0 {
            let piece = self.piece_bytes().min(left);
            left -= piece;
            let ready = self.limits.iter().map(|limit| limit.take(piece)).max();
            if let Some(ready) = ready.filter(|&ready| ready > Instant::now())
                && let Err(error) = wait_until(ready, running)
            {
                self.limits.iter().for_each(|limit| limit.give_back(piece));
                return Err(error);
            }
        }
        Ok(())
    }
}

fn wait_until(ready: Instant, running: &Running) -> Result<(), TransferError> {
    let _waiting = running.wait_for_bandwidth();
    loop {
        if running.cancel.is_cancelled() {
            return Err(ChannelError::Cancelled.into());
        }
        let left = ready.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        thread::sleep(left.min(INTERVAL));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::CancelReason;
    use crate::node::RunningTransfer as _;

    #[test]
    fn a_wait_ends_with_the_transfer_and_is_counted() {
        let throttle = Throttle::new(&[BandwidthLimit::new(Some(1))]).expect("a limit");
        let running = Running::new(1, Box::new(|_| {}));
        thread::scope(|scope| {
            let paying = scope.spawn(|| throttle.pay(&running, 1_000_000));
            while running.waited().is_zero() {
                thread::yield_now();
            }
            running.cancel(CancelReason::Abort);
            assert!(paying.join().expect("no panic").is_err());
        });
        let waited = running.waited();
        assert_eq!(running.waited(), waited, "it waits no more");
    }
}
