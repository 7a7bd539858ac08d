//! The identity that a client proved with GSI.

use std::sync::Arc;

use gridhaul_security::credential::Credential;

use crate::login::Proof;

#[derive(Debug)]
pub(super) struct Initiator {
    /// In one-line form.
    pub(super) identity: String,
    /// The login process starts brokers for the client's account while this exists.
    pub(super) proof: Arc<dyn Proof>,
    /// The delegated credential, which data channels present, or why there is none. `None` in the front process: the
    /// process that serves the client gets it.
    pub(super) delegated: Result<Option<Arc<Credential>>, String>,
}
