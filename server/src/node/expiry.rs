//! Warns of the end of the certificate of an enrolled node, which an administrator renews.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use gridhaul_security::node_authority::Role;
use tokio::task::spawn_blocking;
use tracing::warn;

use super::security::NodeSecurity;
use crate::security::ends_soon;

/// The interval. The start has warned too.
const EVERY: Duration = Duration::from_secs(12 * 3600);

/// Looks at the certificate without end.
pub(super) async fn warn_of_end(security: Arc<NodeSecurity>) {
    loop {
        tokio::time::sleep(EVERY).await;
        let security = Arc::clone(&security);
        let Ok(Some(end)) = spawn_blocking(move || security.end_of_identity()).await else {
            return;
        };
        if let Some(text) = ends_soon(Role::Node, end, SystemTime::now()) {
            warn!("{text}");
        }
    }
}
