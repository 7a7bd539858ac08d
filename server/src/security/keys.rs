//! The keys of delegated credentials, of the configured kind.

use std::io;
use std::sync::OnceLock;

use gridhaul_security::delegation::{DelegationKeys, KeyPool};
use gridhaul_security::key::{KeyError, PrivateKey};

use crate::config::KeyKind;

/// The number of RSA keys in the pool. Larger bursts of logins generate their keys on as many threads as there are logins,
/// and a server without logins has little to do when it starts.
const STOCK: usize = 4;

/// Gives each login a key. RSA keys take long to generate, and come from a pool once the process may have threads; others
/// are generated on request.
#[derive(Debug)]
pub(super) struct LoginKeys {
    kind: KeyKind,
    pool: OnceLock<KeyPool>,
}

impl LoginKeys {
    pub(super) fn new(kind: KeyKind) -> Self {
        Self {
            kind,
            pool: OnceLock::new(),
        }
    }

    pub(super) fn kind(&self) -> KeyKind {
        self.kind
    }

    /// Begins to generate keys in advance, if they take long.
    pub(super) fn start(&self) -> io::Result<()> {
        if self.kind == KeyKind::Rsa && self.pool.get().is_none() {
            // If another thread was faster, this pool is dropped with its thread.
            let _ = self.pool.set(KeyPool::start(STOCK)?);
        }
        Ok(())
    }
}

impl DelegationKeys for LoginKeys {
    fn take(&self) -> Result<PrivateKey, KeyError> {
        match (self.kind, self.pool.get()) {
            (KeyKind::Ec, _) => PrivateKey::generate_ec(),
            (KeyKind::Rsa, None) => PrivateKey::generate_rsa(),
            (KeyKind::Rsa, Some(pool)) => pool.take(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_of_the_configured_kind_with_a_pool_and_without() {
        // The sizes of the two kinds of DER public keys are far apart.
        for (kind, large) in [(KeyKind::Rsa, true), (KeyKind::Ec, false)] {
            let keys = LoginKeys::new(kind);
            let alone = keys.take().expect("a key").public_key_info();
            keys.start().expect("started");
            keys.start().expect("started already");
            let pooled = keys.take().expect("a key").public_key_info();
            assert_ne!(alone, pooled);
            for key in [alone, pooled] {
                assert_eq!(key.len() > 200, large, "{kind:?}");
            }
        }
    }

    #[test]
    fn only_keys_that_take_long_have_a_thread() {
        let keys = LoginKeys::new(KeyKind::Ec);
        keys.start().expect("nothing to start");
        assert!(keys.pool.get().is_none());
    }
}
