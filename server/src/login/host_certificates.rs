//! The host's certificates, by the numbers under which the other processes ask for signatures.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gridhaul_security::credential::Credential;
use rustls::SignatureScheme;

use super::host_key::{Ends, schemes_of, sign_for_handshake};
use super::messages::Host;
use crate::security::chain;

/// The credentials that can sign: the newest, and the one before it, for handshakes that began with that.
#[derive(Debug, Default)]
pub(super) struct HostCertificates(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    last: u64,
    held: Vec<(u64, Arc<Credential>)>,
}

impl HostCertificates {
    /// The present certificates, if they are not those of the number `known`.
    pub(super) fn current(&self, credential: Arc<Credential>, known: Option<u64>) -> Host {
        let host = self.number(&credential);
        if known == Some(host) {
            return Host::Same;
        }
        let schemes = schemes_of(&*credential.key().signing_key());
        Host::New {
            host,
            chain: chain(&credential).iter().map(|der| der.to_vec()).collect(),
            schemes: schemes.into_iter().map(u16::from).collect(),
        }
    }

    /// The number of a credential. A new one takes the place of the oldest.
    fn number(&self, credential: &Arc<Credential>) -> u64 {
        let mut state = self.lock();
        let newest = state.held.last();
        if let Some((host, _)) = newest.filter(|(_, newest)| Arc::ptr_eq(newest, credential)) {
            return *host;
        }
        state.last += 1;
        let host = state.last;
        if state.held.len() > 1 {
            state.held.remove(0);
        }
        state.held.push((host, Arc::clone(credential)));
        host
    }

    /// Signs a message of a TLS handshake with the key of the certificates of this number.
    ///
    /// # Errors
    ///
    /// The reason why there is no signature.
    pub(super) fn sign(
        &self,
        host: u64,
        scheme: SignatureScheme,
        message: &[u8],
        ends: Ends,
    ) -> Result<Vec<u8>, String> {
        let credential = {
            let state = self.lock();
            let held = state.held.iter().find(|(number, _)| *number == host);
            held.map(|(_, credential)| Arc::clone(credential))
        };
        let credential = credential.ok_or("the host has another certificate now")?;
        sign_for_handshake(&*credential.key().signing_key(), scheme, message, ends)
    }

    /// Every change under the lock is complete, so a panic elsewhere leaves no partial state.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
