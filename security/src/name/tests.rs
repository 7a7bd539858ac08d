//! Tests with names in bytes.

use super::*;

fn tlv(tag: u8, content: &[u8]) -> Vec<u8> {
    let length = u8::try_from(content.len()).expect("short");
    [&[tag, length][..], content].concat()
}

fn attribute(identifier: &[u8], tag: u8, value: &[u8]) -> Vec<u8> {
    tlv(0x30, &[tlv(6, identifier), tlv(tag, value)].concat())
}

fn name(rdns: &[&[Vec<u8>]]) -> Name {
    let sets: Vec<_> = rdns.iter().map(|rdn| tlv(0x31, &rdn.concat())).collect();
    Name::from_der(&tlv(0x30, &sets.concat())).expect("a name")
}

fn common_name(tag: u8, value: &[u8]) -> Vec<u8> {
    attribute(&COMMON_NAME, tag, value)
}

#[test]
fn bytes_that_are_not_printable_are_escaped() {
    let name = name(&[&[common_name(0x0c, "Jürg \x01/+~".as_bytes())]]);
    assert_eq!(name.one_line(), r"/CN=J\xC3\xBCrg \x01\/\+~");
    assert_eq!(name.first_common_name().as_deref(), Some("Jürg \x01/+~"));
}

#[test]
fn a_name_may_be_written_in_two_ways() {
    let host = name(&[&[common_name(0x13, b"host/a.org")]]);
    assert!(host.is_written(r"/CN=host\/a.org"));
    assert!(host.is_written("/CN=host/a.org"));
    assert!(!host.is_written("/CN=host/b.org"));
    let tricky = name(&[&[common_name(0x13, b"a/CN=b")]]);
    assert!(tricky.is_written(r"/CN=a\/CN=b"));
    assert!(!tricky.is_written("/CN=a/CN=b"));
}

#[test]
fn several_attributes_of_one_rdn_are_joined() {
    let uid = [0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 1];
    let set = [common_name(0x13, b"a"), attribute(&uid, 0x0c, b"b")];
    assert_eq!(
        name(&[&set, &[common_name(0x13, b"c")]]).one_line(),
        "/CN=a+UID=b/CN=c"
    );
}

#[test]
fn unknown_types_are_dotted() {
    let large = [
        0x69, 0x83, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f,
    ];
    let set = [
        attribute(&[0x2a, 0x86, 0x48], 0x13, b"x"),
        attribute(&large, 0x13, b"y"),
    ];
    let expected = "/1.2.840=x+2.25.36893488147419103231=y";
    assert_eq!(name(&[&set]).one_line(), expected);
}

#[test]
fn identifiers_that_are_cut_or_endless_are_malformed() {
    for identifier in [&[][..], &[0x2a, 0x86], &[0xff; 40], &[1; 65]] {
        let set = tlv(0x31, &attribute(identifier, 0x13, b"x"));
        assert!(Name::from_der(&tlv(0x30, &set)).is_err(), "{identifier:?}");
    }
}

#[test]
fn names_match_without_case_spaces_and_kinds_of_strings() {
    let one = name(&[&[common_name(0x13, b"  Grid \t CA ")]]);
    let other = name(&[&[common_name(0x1e, b"\0g\0r\0i\0d\0 \0c\0a")]]);
    let third = name(&[&[common_name(0x0c, b"GridCA")]]);
    assert!(one.matches(&other));
    assert!(!one.matches(&third));
    assert_ne!(one, other);
}

#[test]
fn a_name_is_extended_by_exactly_one_common_name() {
    let organization = || attribute(&[0x55, 4, 10], 0x13, b"o");
    let issuer = name(&[&[organization()], &[common_name(0x13, b"a")]]);
    let proxy = |rdns: &[&[Vec<u8>]]| {
        let start: [&[Vec<u8>]; 2] = [&[organization()], &[common_name(0x13, b"a")]];
        issuer.is_extended_by(&name(&[&start, rdns].concat()))
    };
    assert!(proxy(&[&[common_name(0x13, b"1")]]));
    assert!(!proxy(&[]));
    assert!(!proxy(&[&[organization()]]));
    assert!(!proxy(&[&[
        common_name(0x13, b"1"),
        common_name(0x13, b"2")
    ]]));
    assert!(!proxy(&[
        &[common_name(0x13, b"1")],
        &[common_name(0x13, b"2")]
    ]));
    assert!(!issuer.is_extended_by(&name(&[&[common_name(0x13, b"a")], &[organization()]])));
}

#[test]
fn names_that_are_too_long_to_be_logged_are_malformed() {
    let rdn = tlv(0x31, &common_name(0x13, &[b'a'; 110]));
    let content = |count| rdn.repeat(count);
    let name = |content: &[u8]| {
        let length = u16::try_from(content.len()).expect("short").to_be_bytes();
        Name::from_der(&[&[0x30, 0x82][..], &length, content].concat())
    };
    assert!(name(&content(MAX_BYTES / rdn.len())).is_ok());
    assert!(name(&content(MAX_BYTES / rdn.len() + 1)).is_err());
}

#[test]
fn an_empty_set_and_bad_text_are_malformed() {
    let bad_utf8 = tlv(0x31, &common_name(0x0c, &[0xff]));
    let odd_bmp = tlv(0x31, &common_name(0x1e, b"abc"));
    for rdn in [vec![0x31, 0], bad_utf8, odd_bmp] {
        assert!(Name::from_der(&tlv(0x30, &rdn)).is_err(), "{rdn:?}");
    }
}
