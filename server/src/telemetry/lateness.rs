//! Measures how late the runtime runs its tasks, which shows whether processors are short.
//!
//! With hundreds of transfers on few processors, each transfer waits for a processor with every block, and so do the threads
//! of the runtime, which start the next transfer of a session. Under CPU contention scheduling is unfair. The queue for
//! transfers is fair, so transfers wait there once the runtime is late. Transfers that wait for a network or for each other
//! do not make the runtime late, and as many as `max-transfers` allows run.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use crate::shutdown::{Phase, PhaseWatch};

/// The interval of measurements while many transfers run.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// The interval while few transfers run.
const REST: Duration = Duration::from_millis(500);

/// Measures how late the runtime is, and passes it to `note`, until the server shuts down. `is_loaded` tells whether many
/// transfers run.
pub(crate) async fn watch_lateness(
    is_loaded: impl Fn() -> bool,
    note: impl Fn(Duration),
    mut phase: PhaseWatch,
) {
    let measure = async {
        loop {
            let pause = if is_loaded() { LOOK_EVERY } else { REST };
            let due = Instant::now() + pause;
            sleep_until(due).await;
            note(due.elapsed());
        }
    };
    tokio::select! {
        () = measure => {}
        () = phase.reached(Phase::Replaced) => {}
    }
}
