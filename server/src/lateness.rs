//! Fewer transfers at a time where processors are what they wait for.
//!
//! Where hundreds of transfers share few processors, each waits for one again with every piece that it moves, and
//! so do the threads of the runtime, which have to tell a session that its transfer has ended before the next one
//! can begin. Who waits how often is luck then. The queue for transfers is fair, so that is where transfers wait
//! once the runtime is late. Why processors are short is not asked. Transfers that wait for a network,
//! or for each other, do not make the runtime late, and as many as `max-transfers` allows go on.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use crate::shutdown::{Phase, PhaseWatch};
use crate::transfer_limit::TransferLimit;

/// How often the runtime is looked at while many transfers run.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// And while few do, which the runtime need not be spared.
const REST: Duration = Duration::from_millis(500);

/// Looks at how late the runtime is, and tells `transfers`, until the server shuts down.
pub(crate) async fn watch(transfers: &Arc<TransferLimit>, mut phase: PhaseWatch) {
    let look = async {
        loop {
            let pause = if transfers.may_be_too_many() {
                LOOK_EVERY
            } else {
                REST
            };
            let due = Instant::now() + pause;
            sleep_until(due).await;
            transfers.note_lateness(due.elapsed());
        }
    };
    tokio::select! {
        () = look => {}
        () = phase.reached(Phase::Draining) => {}
    }
}
