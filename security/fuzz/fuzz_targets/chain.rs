//! Chains that peers send.

#![no_main]

use std::sync::LazyLock;

use gridhaul_security::certificate::Certificate;
use gridhaul_security::trust::{TrustBuilder, TrustStore};
use gridhaul_security_fuzz::{AUTHORITY, Edits, SIGNING_POLICY, chain, edited, now};
use libfuzzer_sys::fuzz_target;

/// The number of the next sample and its changes, or a certificate made by the fuzzer.
type Link = (u8, Edits, Option<Vec<u8>>);

fuzz_target!(|links: Vec<Link>| {
    static TRUST: LazyLock<TrustStore> = LazyLock::new(|| {
        let mut builder = TrustBuilder::default();
        builder.add("ca.pem", AUTHORITY);
        builder.add("ca.signing_policy", SIGNING_POLICY);
        let (trust, problems) = builder.build();
        assert_eq!(problems, []);
        trust.validate(chain(), now()).expect("the sample is valid");
        trust
    });
    let sent: Vec<Certificate> = links
        .iter()
        .filter_map(|(which, edits, own)| {
            let sample = chain()[usize::from(*which) % chain().len()].der();
            let sample = own.as_deref().unwrap_or(sample);
            Certificate::from_der(&edited(sample, edits)).ok()
        })
        .collect();
    if let Ok(peer) = TRUST.validate(&sent, now()) {
        // The fuzzer does not have the authority's key, so only signed certificates can be valid.
        assert_eq!(peer.chain[0], sent[0]);
        let is_known = |certificate| chain().contains(certificate);
        assert!(peer.chain.iter().rev().skip(1).all(is_known));
    }
});
