//! Tests with lists that `openssl` has made, and with some that it cannot make.

use proptest::prelude::*;
use rustls_pki_types::CertificateRevocationListDer;
use rustls_pki_types::pem::PemObject;

use super::*;
use crate::test_pki::{Pki, Request};

fn read(pem: &[u8]) -> RevocationList {
    let der = CertificateRevocationListDer::from_pem_slice(pem).expect("a list");
    RevocationList::from_der(der.to_vec()).expect("sound")
}

#[test]
fn a_list_has_what_openssl_put_into_it() {
    let pki = Pki::new();
    let root = pki.root("/CN=Root");
    let issued: Vec<_> = (0..4)
        .map(|number| pki.issue(&root, &format!("/CN={number}"), ""))
        .collect();
    let list = read(&pki.revocation_list(&root, &[&issued[0], &issued[2]]));
    let revoked: Vec<_> = issued
        .iter()
        .map(|issued| list.has_revoked(issued.certificate.serial()))
        .collect();
    assert_eq!(revoked, [true, false, true, false]);
    assert_eq!(list.revoked_count(), 2);
    assert_eq!(list.issuer(), root.certificate.subject());
    let next_update = list.next_update().expect("there is one");
    let life = next_update.duration_since(list.this_update());
    assert_eq!(life.expect("in order").as_secs(), 10 * 86400);
    assert!(list.is_signed_with(root.certificate.public_key_info()));
    assert!(!list.is_signed_with(issued[0].certificate.public_key_info()));
    assert!(list.is_signed_with(root.certificate.public_key_info()));
}

fn tlv(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let content = parts.concat();
    let length = u8::try_from(content.len()).expect("short");
    let mut bytes = vec![tag];
    if length >= 0x80 {
        bytes.push(0x81);
    }
    bytes.push(length);
    [bytes, content].concat()
}

/// An entry of a list: a serial number and extensions.
fn entry(serial: &[u8], extensions: &[u8]) -> Vec<u8> {
    let date = tlv(0x17, &[b"200101000000Z"]);
    tlv(0x30, &[&tlv(2, &[serial]), &date, extensions])
}

/// An unsigned list of `/CN=a` with these entries.
fn unsigned(entries: &[u8]) -> Vec<u8> {
    // ecdsa-with-SHA256
    let algorithm = tlv(0x30, &[&[6, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 2]]);
    let attribute = tlv(0x30, &[&[6, 3, 0x55, 4, 3], &tlv(0x0c, &[b"a"])]);
    let issuer = tlv(0x30, &[&tlv(0x31, &[&attribute])]);
    let date = tlv(0x17, &[b"200101000000Z"]);
    let entries = tlv(0x30, &[entries]);
    let signed = tlv(
        0x30,
        &[&[2, 1, 1], &algorithm, &issuer, &date, &date, &entries],
    );
    tlv(0x30, &[&signed, &algorithm, &[3, 2, 0, 0]])
}

/// One extension, critical or not.
fn extension(identifier: &[u8], is_critical: bool, content: &[u8]) -> Vec<u8> {
    let critical: &[u8] = if is_critical { &[1, 1, 0xff] } else { &[] };
    let parts = [&tlv(6, &[identifier]), critical, &tlv(4, &[content])];
    tlv(0x30, &parts)
}

#[test]
fn serial_numbers_are_found_in_any_order() {
    let entries = [entry(&[5], &[]), entry(&[1, 0], &[]), entry(&[2], &[])];
    let list = RevocationList::from_der(unsigned(&entries.concat())).expect("sound");
    let found: Vec<_> = list
        .parts
        .revoked
        .iter()
        .map(|range| bytes(&list.der, range))
        .collect();
    assert_eq!(found, [&[1, 0][..], &[2], &[5]]);
}

#[test]
fn entries_that_say_more_than_is_understood_make_the_list_unusable() {
    let reason = [0x55, 29, 21];
    let certificate_issuer = [0x55, 29, 29];
    let unknown = [0x2a, 3, 4];
    for (identifier, is_critical, words) in [
        (&reason[..], true, None),
        (&unknown, false, None),
        (&unknown, true, Some("critical extension 1.2.3.4")),
        (&certificate_issuer, true, Some("indirect")),
        (&certificate_issuer, false, Some("indirect")),
    ] {
        let extension = extension(identifier, is_critical, &[0x0a, 1, 1]);
        let with = entry(&[1], &tlv(0x30, &[&extension]));
        let read = RevocationList::from_der(unsigned(&[entry(&[2], &[]), with].concat()));
        match (read, words) {
            (Ok(list), None) => assert!(list.has_revoked(&[1]) && list.has_revoked(&[2])),
            (Err(error), Some(words)) => {
                assert!(error.reason.contains(words), "{error:?}");
                assert_eq!(error.issuer.expect("it was read").one_line(), "/CN=a");
            }
            (read, _) => panic!("{identifier:?}: {read:?}"),
        }
    }
}

#[test]
fn a_scope_is_read_strictly() {
    let covers_all = |content: &[u8]| match Scope::parse(content) {
        Ok(Ok(scope)) => Ok(scope == Scope::default()),
        Ok(Err(_)) => Err("unusable"),
        Err(_) => Err("malformed"),
    };
    let point = tlv(0xa0, &[&tlv(0xa0, &[&tlv(0x86, &[b"x"])])]);
    for (fields, expected) in [
        (&[][..], Ok(true)),
        (&[0x81, 1, 0], Ok(true)),
        (&[0x81, 1, 0xff], Ok(false)),
        (&[0x82, 1, 0xff], Ok(false)),
        (&point, Ok(false)),
        (&[0x83, 2, 6, 0x40], Err("unusable")),
        (&[0x84, 1, 1], Err("unusable")),
        (&[0x85, 1, 0xff], Err("unusable")),
        // nameRelativeToCRLIssuer
        (&[0xa0, 2, 0xa1, 0], Err("unusable")),
        (&[0xa0, 2, 0xa0, 0], Err("malformed")),
        (&[0x81, 1, 0xff, 0x82, 1, 0xff], Err("malformed")),
        (&[0x82, 1, 0, 0x81, 1, 0xff], Err("malformed")),
        (&[0x84, 0], Err("malformed")),
        (&[0x86, 1, 0xff], Err("malformed")),
    ] {
        assert_eq!(covers_all(&tlv(0x30, &[fields])), expected, "{fields:?}");
    }
}

#[test]
fn only_version_2_is_read() {
    let mut list = unsigned(&entry(&[1], &[]));
    let version = list
        .windows(3)
        .position(|bytes| bytes == [2, 1, 1])
        .expect("it is there");
    list[version + 2] = 2;
    assert!(RevocationList::from_der(list).is_err());
}

#[test]
fn zeros_before_a_serial_number_do_not_count() {
    assert_eq!(significant(&[0, 0x80]), [0x80]);
    assert_eq!(significant(&[0]), []);
}

#[test]
fn cut_and_changed_lists_do_not_panic() {
    let pki = Pki::new();
    let root = pki.make(&Request::default(), None);
    let list = read(&pki.revocation_list(&root, &[&root]));
    for length in 0..list.der.len() {
        assert!(RevocationList::from_der(list.der[..length].to_vec()).is_err());
    }
    let key = root.certificate.public_key_info();
    proptest!(|(at in 0..list.der.len(), value in 1..=u8::MAX)| {
        let mut changed = list.der.clone();
        changed[at] ^= value;
        if let Ok(changed) = RevocationList::from_der(changed) {
            prop_assert!(!changed.is_signed_with(key));
        }
    });
}
