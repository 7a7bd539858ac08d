//! Certification requests of an acceptor.

#![no_main]

use std::sync::LazyLock;

use gridhaul_security::delegation::{request, sign};
use gridhaul_security::key::PrivateKey;
use gridhaul_security::proxy::ProxyPolicy;
use gridhaul_security_fuzz::{Edits, edited, settings};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (Edits, Vec<u8>)| {
    static REQUEST: LazyLock<Vec<u8>> = LazyLock::new(|| {
        let key = PrivateKey::generate_ec().expect("a key");
        request(&key).expect("a request")
    });
    let (edits, bytes) = input;
    let issuer = settings().credential;
    let now = issuer.leaf().validity().not_before;
    for request in [edited(&REQUEST, &edits), bytes] {
        if let Ok(proxy) = sign(&issuer, &request, ProxyPolicy::Limited, now) {
            assert!(issuer.leaf().subject().is_extended_by(proxy.subject()));
        }
    }
});
