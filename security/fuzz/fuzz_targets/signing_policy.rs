//! The files of a trust directory: signing policies, certificates, revocation lists.

#![no_main]

use gridhaul_security::trust::TrustBuilder;
use gridhaul_security_fuzz::{AUTHORITY, Edits, SIGNING_POLICY, chain, edited, now};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (Edits, Vec<u8>)| {
    let (edits, bytes) = input;
    for policy in [&edited(SIGNING_POLICY, &edits), &bytes] {
        let mut builder = TrustBuilder::default();
        builder.add("ca.pem", AUTHORITY);
        builder.add("ca.signing_policy", policy);
        builder.add("other.pem", &bytes);
        builder.add("other.r0", &bytes);
        let (trust, _) = builder.build();
        let _ = trust.validate(chain(), now());
    }
});
