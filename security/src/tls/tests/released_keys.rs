//! Engines whose keys are released to the kernel.

use super::*;
use crate::tls::{Direction, RecordKeys, RecordVersion};

/// Unprotected records: a close_notify, and a KeyUpdate that does not request another.
const CLOSE_NOTIFY: [u8; 7] = [21, 3, 3, 0, 2, 1, 0];
const KEY_UPDATE: [u8; 10] = [22, 3, 3, 0, 5, 24, 0, 0, 1, 0];

/// The values on which both ends must agree.
fn shared(keys: Option<RecordKeys<'_>>) -> (RecordVersion, Vec<u8>, [u8; 4], u64) {
    let keys = keys.expect("they were not released");
    let salt = *keys.iv.first_chunk().expect("it is longer");
    (keys.version, keys.key.to_vec(), salt, keys.sequence)
}

#[test]
fn both_ends_give_away_the_same_keys_and_speak_in_bare_records_then() {
    let fixture = Fixture::new();
    for versions in [TlsVersions::Only12, TlsVersions::Only13] {
        let [mut connector, mut acceptor] = established(&fixture, versions);
        let sending = shared(connector.keys(Direction::Sending));
        assert_eq!(sending, shared(acceptor.keys(Direction::Receiving)));
        let receiving = shared(connector.keys(Direction::Receiving));
        assert_eq!(receiving, shared(acceptor.keys(Direction::Sending)));
        assert_ne!(sending.1, receiving.1);
        connector.release_keys(Direction::Sending);
        acceptor.release_keys(Direction::Receiving);
        assert!(connector.keys(Direction::Sending).is_none());
        // The other direction is not affected.
        let records = wrapped(&mut acceptor, b"sealed");
        assert_eq!(understood(&mut connector, &records).unwrap().0, b"sealed");
        let mut output = Vec::new();
        connector.close(&mut output);
        assert_eq!(output, CLOSE_NOTIFY);
        let content = acceptor.open_in_place(&mut output, &mut Vec::new());
        assert!(content.unwrap().is_empty());
        assert!(acceptor.is_closed_by_peer());
    }
}

#[test]
fn an_explicit_nonce_is_given_away_far_from_those_that_were_used() {
    let fixture = Fixture::new();
    let [mut connector, _] = established(&fixture, TlsVersions::Only12);
    let used = wrapped(&mut connector, b"x");
    let next = connector.keys(Direction::Sending).expect("keys").iv;
    // RFC 5288 3: the eight bytes after the header.
    assert_eq!(used[5] ^ next[4], 0x80);
    assert_eq!(used[6..12], next[5..11]);
}

#[test]
fn keys_that_the_kernel_has_used_up_are_updated_on_both_sides() {
    let fixture = Fixture::new();
    let [mut connector, mut acceptor] = established(&fixture, TlsVersions::Only13);
    connector.release_keys(Direction::Sending);
    acceptor.release_keys(Direction::Receiving);
    let mut output = Vec::new();
    connector.note_sealed(49, &mut output).expect("keys");
    assert!(output.is_empty());
    connector.note_sealed(1, &mut output).expect("keys");
    assert_eq!(output, KEY_UPDATE);
    acceptor
        .open_in_place(&mut output, &mut Vec::new())
        .unwrap();
    let sending = shared(connector.keys(Direction::Sending));
    assert_eq!(sending, shared(acceptor.keys(Direction::Receiving)));
    assert_eq!(sending.3, 0);
}

#[test]
fn an_invalid_record_is_answered_by_an_alert() {
    let fixture = Fixture::new();
    let [_, mut acceptor] = established(&fixture, TlsVersions::Only13);
    acceptor.release_keys(Direction::Receiving);
    acceptor.release_keys(Direction::Sending);
    let mut output = Vec::new();
    acceptor.open_in_place(&mut [], &mut output).unwrap_err();
    // Fatal, bad_record_mac (RFC 8446 6).
    assert_eq!(output, [21, 3, 3, 0, 2, 2, 20]);
}
