//! Tests of building stores from files.

use proptest::prelude::*;
use rustls_pki_types::CertificateRevocationListDer;
use rustls_pki_types::pem::PemObject;

use super::*;
use crate::test_pki::{Issued, Pki, USER, now, openssl, run};
use crate::trust::RevocationList;
use crate::trust::test_world::{World, policy};

const POLICY: &[u8] = b"access_id_CA X509 /CN=Root pos_rights globus CA:sign";

#[test]
fn one_file_with_two_names_counts_once() {
    let pki = Pki::new();
    let root = pki.root("/CN=Root");
    let list = pki.revocation_list(&root, &[]);
    let mut builder = TrustBuilder::default();
    for (stem, list_extension) in [("ca", "crl"), ("5ca1ab1e", "r0")] {
        let extension = if stem == "ca" { "pem" } else { "0" };
        builder.add(&format!("{stem}.{extension}"), &root.pem());
        builder.add(&format!("{stem}.{list_extension}"), &list);
    }
    let (store, problems) = builder.build();
    assert_eq!(problems, []);
    assert_eq!(store.authorities().count(), 1);
    assert_eq!(store.revocation_lists().count(), 1);
    assert_eq!(
        store.next_update(),
        store
            .revocation_lists()
            .next()
            .and_then(RevocationList::next_update)
    );
}

#[test]
fn binary_files_are_read_too() {
    let pki = Pki::new();
    let root = pki.root("/CN=Root");
    let file = pki.path().join("list.pem");
    std::fs::write(&file, pki.revocation_list(&root, &[])).expect("written");
    let der = pki.path().join("list.der");
    run(openssl(["crl", "-outform", "DER", "-in"])
        .arg(&file)
        .arg("-out")
        .arg(&der));
    let mut builder = TrustBuilder::default();
    builder.add("ca.pem", root.certificate.der());
    builder.add(
        "ca.crl",
        &std::fs::read(&der).expect("the program wrote it"),
    );
    let (store, problems) = builder.build();
    assert_eq!(problems, []);
    assert_eq!(store.authorities().next(), Some(&root.certificate));
    assert_eq!(store.revocation_lists().count(), 1);
}

#[test]
fn unusable_files_are_reported_and_the_others_are_used() {
    let mut builder = TrustBuilder::default();
    builder.add("e.signing_policy", POLICY);
    builder.add("d.signing_policy", b"TO Issuer");
    builder.add("c.crl", b"");
    builder.add(
        "b.pem",
        b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
    );
    builder.add("a.pem", b"words");
    builder.add("a.info", b"words");
    let (store, problems) = builder.build();
    let files: Vec<_> = problems.iter().map(|problem| &*problem.file).collect();
    // The list comes first, before the certificate of its issuer is known.
    assert_eq!(files, ["c.crl", "a.pem", "b.pem", "d.signing_policy"]);
    assert!(problems[0].is_grave && problems[0].reason.contains("fetch-crl"));
    assert!(problems[1].reason.contains("no certificate"));
    assert!(problems[2].reason.contains("malformed"));
    let [hashed, plain] = &store.directory.policies;
    assert_eq!((hashed.len(), plain.len()), (0, 1));
}

proptest! {
    #[test]
    fn no_content_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let der = [&[0x30, 0x81, u8::try_from(bytes.len()).expect("short")][..], &bytes].concat();
        let mut builder = TrustBuilder::default();
        for file in ["ca.pem", "ca.crl", "ca.signing_policy"] {
            builder.add(file, &bytes);
            builder.add(file, &der);
        }
        builder.build();
    }
}

#[test]
fn no_change_of_a_list_lets_a_revoked_user_in() {
    let world = World::new();
    let other = world.pki.issue(&world.root, "/DC=test/CN=Bob", USER);
    let sound = world.pki.revocation_list(&world.root, &[&world.user]);
    let build = |mut builder: TrustBuilder, list: &[u8]| {
        builder.add("root.pem", &world.root.pem());
        builder.add("root.signing_policy", &policy(&world.root, "/DC=test/*"));
        builder.add("root.r0", list);
        builder.build_at(now())
    };
    let is_accepted = |built: &Built, user: &Issued| {
        let chain = std::slice::from_ref(&user.certificate);
        built.store.validate(chain, now()).is_ok()
    };
    let before = build(TrustBuilder::default(), &sound);
    assert!(is_accepted(&before, &other) && !is_accepted(&before, &world.user));
    let check = |list: &[u8]| {
        let start = build(TrustBuilder::default(), list);
        let problems = &start.problems;
        assert!(
            !is_accepted(&start, &world.user),
            "{problems:?} {list:02x?}"
        );
        let running = build(TrustBuilder::after(before.last_good.clone()), list);
        assert!(!is_accepted(&running, &world.user));
        assert!(is_accepted(&running, &other), "the last good list is lost");
    };
    for length in (0..sound.len()).step_by(7) {
        check(&sound[..length]);
    }
    let der = CertificateRevocationListDer::from_pem_slice(&sound).expect("a list");
    for at in 0..der.len() {
        let mut changed = der.to_vec();
        changed[at] ^= 1 << (at % 8);
        check(&changed);
    }
}
