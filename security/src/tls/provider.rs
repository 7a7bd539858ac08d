//! The cryptographic provider of connections.

use std::sync::{Arc, LazyLock};

use rustls::crypto::aws_lc_rs::{cipher_suite, default_provider, kx_group};
use rustls::crypto::{CipherSuiteCommon, CryptoProvider};
use rustls::{CipherSuite, SupportedCipherSuite, Tls12CipherSuite, Tls13CipherSuite};

use super::hello::OriginalHash;

/// In order of preference. AES-GCM precedes ChaCha20-Poly1305 because it is faster, and because GSI has no integrity-only
/// tokens for the latter.
const SUITES: [SupportedCipherSuite; 9] = [
    cipher_suite::TLS13_AES_256_GCM_SHA384,
    cipher_suite::TLS13_AES_128_GCM_SHA256,
    cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
    cipher_suite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
    cipher_suite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
    cipher_suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
    cipher_suite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
    cipher_suite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
    cipher_suite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
];

/// The purpose of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Records {
    /// Few small tokens.
    Tokens,
    /// Files: prefers faster ciphers.
    Bulk,
}

/// aws-lc-rs, with hash functions that restore original ClientHellos ([`super::hello`]).
pub(super) fn provider(records: Records) -> Arc<CryptoProvider> {
    static TOKENS: LazyLock<Arc<CryptoProvider>> = LazyLock::new(|| {
        Arc::new(CryptoProvider {
            cipher_suites: SUITES.map(with_original_hash).to_vec(),
            kx_groups: vec![kx_group::X25519, kx_group::SECP256R1, kx_group::SECP384R1],
            ..default_provider()
        })
    });
    // AES-128-GCM has 10 rounds where AES-256-GCM has 14.
    static BULK: LazyLock<Arc<CryptoProvider>> = LazyLock::new(|| {
        let mut provider = CryptoProvider::clone(&TOKENS);
        provider
            .cipher_suites
            .sort_by_key(|suite| !is_aes_128(*suite));
        Arc::new(provider)
    });
    Arc::clone(match records {
        Records::Tokens => &TOKENS,
        Records::Bulk => &BULK,
    })
}

fn is_aes_128(suite: SupportedCipherSuite) -> bool {
    matches!(
        suite.suite(),
        CipherSuite::TLS13_AES_128_GCM_SHA256
            | CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256
            | CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256
    )
}

/// A copy with `'static` lifetime, which rustls requires. It is made once for the process.
fn with_original_hash(suite: SupportedCipherSuite) -> SupportedCipherSuite {
    match suite {
        SupportedCipherSuite::Tls12(suite) => {
            SupportedCipherSuite::Tls12(Box::leak(Box::new(Tls12CipherSuite {
                common: common(&suite.common),
                prf_provider: suite.prf_provider,
                kx: suite.kx,
                sign: suite.sign,
                aead_alg: suite.aead_alg,
            })))
        }
        SupportedCipherSuite::Tls13(suite) => {
            SupportedCipherSuite::Tls13(Box::leak(Box::new(Tls13CipherSuite {
                common: common(&suite.common),
                hkdf_provider: suite.hkdf_provider,
                aead_alg: suite.aead_alg,
                quic: None,
            })))
        }
    }
}

fn common(common: &CipherSuiteCommon) -> CipherSuiteCommon {
    CipherSuiteCommon {
        suite: common.suite,
        hash_provider: Box::leak(Box::new(OriginalHash(common.hash_provider))),
        confidentiality_limit: common.confidentiality_limit,
    }
}
