//! Revocation lists as files of a trust directory: no change of a list makes a revoked user acceptable.

#![no_main]

use gridhaul_security::trust::{TrustBuilder, TrustStore};
use gridhaul_security_fuzz::revocation::{Samples, samples};
use gridhaul_security_fuzz::{Edits, edited};
use libfuzzer_sys::fuzz_target;

/// Names of the file with the list. The last one does not identify the authority.
const FILES: [&str; 3] = ["ca.r0", "ca.crl", "other.crl"];

#[derive(Debug, arbitrary::Arbitrary)]
struct Input {
    file: u8,
    is_der: bool,
    edits: Edits,
    /// The number of bytes that are kept.
    cut: Option<u16>,
    /// A completely different content.
    own: Option<Vec<u8>>,
}

fn add(mut builder: TrustBuilder, file: &str, list: &[u8]) -> TrustBuilder {
    let Samples {
        authority, policy, ..
    } = samples();
    builder.add("ca.pem", authority);
    builder.add("ca.signing_policy", policy.as_bytes());
    builder.add(file, list);
    builder
}

fn is_believed(store: &TrustStore, user: usize) -> bool {
    let samples = samples();
    let chain = std::slice::from_ref(&samples.users[user]);
    store.validate(chain, samples.now).is_ok()
}

fuzz_target!(|input: Input| {
    let samples = samples();
    let sound = if input.is_der { &samples.der } else { &samples.pem };
    let mut list = input.own.unwrap_or_else(|| edited(sound, &input.edits));
    list.truncate(input.cut.map_or(usize::MAX, usize::from));
    let file = FILES[usize::from(input.file) % FILES.len()];

    // At the start. If the file's name does not identify the authority, a list with another issuer belongs to another one.
    if file != "other.crl" {
        let built = add(TrustBuilder::default(), file, &list).build_at(samples.now);
        assert!(!is_believed(&built.store, 0), "a revoked user is let in");
    }
    // While the server runs.
    let before = add(TrustBuilder::default(), file, sound).build_at(samples.now);
    assert!(is_believed(&before.store, 1) && !is_believed(&before.store, 0));
    let built = add(TrustBuilder::after(before.last_good), file, &list).build_at(samples.now);
    assert!(!is_believed(&built.store, 0), "a revoked user is let in");
    assert!(is_believed(&built.store, 1), "the last good list is lost");
});
