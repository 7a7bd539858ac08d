//! Drivers that were sent to another machine as bytes.

use std::sync::{Arc, LazyLock};

use gridhaul_security::credential::Credential;
use gridhaul_security::tls::TlsVersions;
use gridhaul_security::trust::TrustStore;
use gridhaul_stack::{
    Driver as _, MAX_SESSION_VALUE_BYTES, RestoreError, SessionValue, SessionValueError,
};
use proptest::prelude::*;

use super::gsi::{PROTECTIONS, meet, tcp};
use super::pki::{ALICE, ALICE_NAME, BOB, BOB_NAME, PKI, alice, alice_with};
use super::{content, receive_all, send, with_operation};
use crate::{ChannelSecurity, Gsi, Protection};

const VERSIONS: [TlsVersions; 3] = [
    TlsVersions::From12To13,
    TlsVersions::Only12,
    TlsVersions::Only13,
];

/// The driver on another machine, which has the trust of the test's authority.
fn sent(driver: &Gsi) -> Gsi {
    let value = driver.session_value().expect("it can be sent");
    assert_eq!(value.name(), driver.name());
    Gsi::restore(value.bytes(), Arc::clone(&PKI.trust)).expect("it can be restored")
}

/// Whether data passes from `connector` to `acceptor`.
fn expect_data(connector: &Gsi, acceptor: &Gsi) {
    let (connector, acceptor) = meet(&tcp(connector.clone()), &tcp(acceptor.clone()));
    let (mut connector, mut acceptor) = (connector.expect("made"), acceptor.expect("made"));
    std::thread::scope(|scope| {
        scope.spawn(move || {
            send(&mut *connector, &content(100_000));
            with_operation(|operation| connector.finish(operation)).expect("finished");
        });
        assert!(receive_all(&mut *acceptor).expect("received") == content(100_000));
    });
}

/// A value of Alice's, with a certificate among the anchors.
static VALUE: LazyLock<SessionValue> = LazyLock::new(|| {
    let driver = Gsi::new(ChannelSecurity {
        anchors: BOB.chain().to_vec(),
        ..PKI.security(&ALICE, ALICE_NAME, Protection::Private)
    });
    driver.session_value().expect("it can be sent")
});

#[test]
fn a_value_keeps_everything_but_the_trust_of_the_machine() {
    for protection in PROTECTIONS {
        for versions in VERSIONS {
            let security = ChannelSecurity {
                versions,
                anchors: BOB.chain().to_vec(),
                ..PKI.security(&ALICE, BOB_NAME, protection)
            };
            let value = Gsi::new(security).session_value().expect("it can be sent");
            let trust = Arc::<TrustStore>::default();
            let restored =
                crate::value::restore(value.bytes(), Arc::clone(&trust)).expect("restored");
            assert_eq!(restored.protection, protection);
            assert_eq!(restored.versions, versions);
            assert_eq!(restored.expected, BOB_NAME);
            assert_eq!(restored.anchors, BOB.chain());
            assert_eq!(restored.credential.chain(), ALICE.chain());
            assert_eq!(
                restored.credential.key().exported(),
                ALICE.key().exported(),
                "the key"
            );
            assert!(Arc::ptr_eq(&restored.trust, &trust));
            // Another machine may send it on.
            assert_eq!(Gsi::new(restored).session_value(), Ok(value));
        }
    }
}

#[test]
fn a_restored_driver_meets_the_original_one() {
    for protection in PROTECTIONS {
        let ours = alice(protection);
        expect_data(&ours, &sent(&ours));
        expect_data(&sent(&ours), &ours);
        // And refuses the same peers.
        let bob = PKI.driver(&BOB, ALICE_NAME, protection);
        let (_, accepted) = meet(&tcp(bob), &tcp(sent(&ours)));
        let error = accepted.expect_err("another identity").to_string();
        assert!(error.contains(BOB_NAME), "{error}");
    }
    for versions in VERSIONS {
        expect_data(&sent(&alice_with(versions)), &alice(Protection::Private));
    }
    let (_, accepted) = meet(
        &tcp(alice_with(TlsVersions::Only12)),
        &tcp(sent(&alice_with(TlsVersions::Only13))),
    );
    accepted.expect_err("no common version");
}

#[test]
fn the_anchors_of_a_self_signed_credential_travel() {
    let credential = PKI.self_signed("self", "/DC=test/CN=Self");
    let own = |anchors, protection| {
        Gsi::new(ChannelSecurity {
            anchors,
            ..PKI.security(&credential, "/DC=test/CN=Self", protection)
        })
    };
    for protection in PROTECTIONS {
        let ours = own(credential.chain().to_vec(), protection);
        expect_data(&ours, &sent(&ours));
        expect_data(&sent(&ours), &ours);
        let without = sent(&own(Vec::new(), protection));
        let (_, accepted) = meet(&tcp(ours), &tcp(without));
        accepted.expect_err("not trusted");
    }
}

#[test]
fn a_key_that_was_read_from_a_file_stays_here() {
    // It makes the files.
    LazyLock::force(&ALICE);
    let credential = Credential::from_pem(&PKI.both("alice")).expect("a credential");
    let driver = PKI.driver(&Arc::new(credential), ALICE_NAME, Protection::Clear);
    let error = driver.session_value().expect_err("it stays here");
    assert!(
        error.to_string().contains("stays on this machine"),
        "{error}"
    );
    let error = Gsi::without_session().session_value();
    assert_eq!(error, Err(SessionValueError::without_session("gsi")));
}

#[test]
fn a_value_that_is_too_long_is_not_made() {
    let driver = PKI.driver(
        &ALICE,
        &"x".repeat(MAX_SESSION_VALUE_BYTES),
        Protection::Clear,
    );
    let error = driver.session_value().expect_err("too long");
    assert!(
        matches!(error, SessionValueError::TooLong { .. }),
        "{error}"
    );
}

#[test]
fn keys_are_not_printed() {
    let driver = Gsi::restore(VALUE.bytes(), Arc::default()).expect("restored");
    let key = ALICE.key().exported().expect("a session's key");
    let bytes = format!("{:?}", &key.bytes()[..8]);
    let bytes = bytes.trim_matches(['[', ']']);
    for text in [format!("{driver:?}"), format!("{:?}", *VALUE)] {
        assert!(!text.contains(bytes), "{text}");
    }
    assert!(format!("{driver:?}").contains("PrivateKey { .. }"));
}

fn refusal(bytes: &[u8]) -> RestoreError {
    Gsi::restore(bytes, Arc::default()).expect_err("malformed")
}

#[test]
fn other_bytes_are_refused_with_the_reason() {
    let bytes = VALUE.bytes();
    for length in 0..bytes.len() {
        refusal(&bytes[..length]);
    }
    assert!(refusal(&[]).to_string().contains("it is empty"));
    let more = [bytes, b"x"].concat();
    assert!(refusal(&more).to_string().contains("1 bytes follow it"));
    let newer = [&[2], &bytes[1..]].concat();
    assert_eq!(
        refusal(&newer).to_string(),
        "the value of the driver gsi has the format 2, and this machine reads the format 1: install the same \
         version of the program on all machines"
    );
    let long = vec![1; MAX_SESSION_VALUE_BYTES + 1];
    assert!(refusal(&long).to_string().contains("262145 bytes"));
    // A chain with 2^32 - 1 certificates, none of which are there.
    refusal(&[1, 0xff, 0xff, 0xff, 0xff, 0x0f]);
    // The key of another user, which is as long.
    let key =
        |credential: &Credential| credential.key().exported().expect("a key").bytes().to_vec();
    let (own, other) = (key(&ALICE), key(&BOB));
    let place = bytes.windows(own.len()).position(|window| window == own);
    let place = place.expect("the key is in the value");
    let mut foreign = bytes.to_vec();
    foreign[place..place + own.len()].copy_from_slice(&other);
    let error = refusal(&foreign).to_string();
    assert!(
        error.contains("does not belong to the certificate"),
        "{error}"
    );
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn arbitrary_bytes_are_no_panic(bytes in prop::collection::vec(any::<u8>(), 0..2000)) {
        let _ = Gsi::restore(&bytes, Arc::default());
        let _ = Gsi::restore(&[&[1], &bytes[..]].concat(), Arc::default());
    }

    #[test]
    fn edited_values_are_no_panic(
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4)
    ) {
        let mut bytes = VALUE.bytes().to_vec();
        for (place, byte) in edits {
            let place = place.index(bytes.len());
            bytes[place] = byte;
        }
        if let Ok(driver) = Gsi::restore(&bytes, Arc::default()) {
            driver.session_value().expect("what was received can be sent");
        }
    }
}
