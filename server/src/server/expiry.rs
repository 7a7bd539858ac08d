//! Keeps the inventory of certificates and revocation lists up to date.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::spawn_blocking;
use tokio::time::sleep;

use crate::shared::Shared;
use crate::shutdown::{Phase, PhaseWatch};

/// The interval. What watches the files looks at them at most once a second; ends are days away.
const EVERY: Duration = Duration::from_secs(10);

/// Takes an inventory now and at intervals, until the server shuts down.
pub(super) async fn watch_expiry(shared: Arc<Shared>, mut phase: PhaseWatch) {
    let watch = async {
        loop {
            let shared = Arc::clone(&shared);
            // After a panic the last inventory stays.
            let _ = spawn_blocking(move || shared.take_inventory()).await;
            sleep(EVERY).await;
        }
    };
    tokio::select! {
        () = watch => {}
        () = phase.reached(Phase::Replaced) => {}
    }
}
