//! Tests with certificates that the `openssl` program has made: unchanged, truncated and modified.

use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::proxy::ProxyFamily;
use crate::test_pki::{FULL, Pki, Request, USER, openssl, run};

#[test]
fn a_certificate_is_read_as_openssl_wrote_it() {
    let pki = Pki::new();
    let root = pki.root("/DC=test/CN=Root");
    let extensions = format!("{USER}\nsubjectAltName=DNS:a.example,email:x@y,DNS:*.b.example");
    let issued = pki.issue(&root, "/DC=test/CN=Alice", &extensions);
    let certificate = &issued.certificate;
    assert_eq!(certificate.subject().one_line(), "/DC=test/CN=Alice");
    assert_eq!(certificate.issuer(), root.certificate.subject());
    assert_eq!(certificate.serial(), [2]);
    assert_eq!(certificate.dns_names(), ["a.example", "*.b.example"]);
    let Validity {
        not_before,
        not_after,
    } = certificate.validity();
    let life = not_after.duration_since(not_before).expect("in order");
    assert_eq!(life, Duration::from_secs(30 * 86400));
    assert!(certificate.extension("2.5.29.15").is_some());
    assert!(certificate.extension("2.5.29.30").is_none());
    assert!(certificate.proxy().is_none());
    assert!(!certificate.is_self_issued());
    assert!(root.certificate.is_self_issued());
}

#[test]
fn a_proxy_is_told_by_its_extension() {
    let pki = Pki::new();
    let root = pki.root("/DC=test/CN=Root");
    let user = pki.issue(&root, "/DC=test/CN=Alice", USER);
    let proxy = pki.proxy(&user, &format!("{FULL},pathlen:3"));
    let info = proxy.certificate.proxy().expect("a proxy");
    assert_eq!(info.family, ProxyFamily::Rfc3820);
    assert_eq!(info.path_length, Some(3));
}

#[test]
fn names_are_written_as_openssl_writes_them() {
    let pki = Pki::new();
    for subject in [
        "/C=CH/ST=Genève/L=Meyrin/O=a, b \\\\ c/OU=\"quoted\"/CN=Jürg \\/ \\+ 漢字 €",
        "/DC=org/DC=example/UID=u1+CN=Alice Smith 12345/emailAddress=alice@example.org",
        "/serialNumber=77/GN=A/SN=B/title=Dr./initials=A.B./street=Way 1/postalCode=1211",
        "/CN=host\\/gridftp.example.org/dnQualifier=x/pseudonym=y/role=z/name=n",
        "/1.2.3.4.5=dotted/CN=~ !\"#$%&'()*,-.:;<=>?@[]^_`{|}",
        "/unstructuredName=un/unstructuredAddress=ua/description=d/businessCategory=bc",
        "/jurisdictionC=DE/jurisdictionL=l/jurisdictionST=s/organizationIdentifier=oi",
    ] {
        let request = Request {
            subject,
            ..Request::default()
        };
        let issued = pki.make(&request, None);
        let printed = run(
            openssl(["x509", "-noout", "-subject", "-nameopt", "compat", "-in"])
                .arg(&issued.certificate_file),
        );
        let expected = printed.trim_end().strip_prefix("subject=");
        let ours = issued.certificate.subject().one_line();
        assert_eq!(Some(ours), expected, "{subject}");
    }
}

#[test]
fn a_pem_text_may_hold_other_things() {
    let pki = Pki::new();
    let root = pki.root("/CN=Root");
    let text = [
        b"some words\n",
        &root.key_pem()[..],
        &root.pem(),
        b"\nmore words\n",
    ]
    .concat();
    let read = Certificate::all_from_pem(&text).expect("sound");
    assert_eq!(read, [root.certificate]);
    assert_eq!(Certificate::all_from_pem(b"no PEM at all"), Ok(Vec::new()));
}

#[test]
fn every_cut_certificate_is_malformed() {
    let pki = Pki::new();
    let der = pki.root("/CN=Root").certificate.der().to_vec();
    for length in 0..der.len() {
        assert!(Certificate::from_der(&der[..length]).is_err(), "{length}");
    }
    assert!(Certificate::from_der(&[&der[..], &[0]].concat()).is_err());
}

#[test]
fn a_signature_algorithm_that_was_not_signed_is_malformed() {
    // ecdsa-with-SHA256, whose last byte becomes that of ecdsa-with-SHA384.
    const ALGORITHM: [u8; 8] = [0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 2];
    let pki = Pki::new();
    let mut der = pki.root("/CN=Root").certificate.der().to_vec();
    let last = der.windows(8).rposition(|eight| eight == ALGORITHM);
    der[last.expect("it has one") + 7] = 3;
    assert!(Certificate::from_der(&der).is_err());
}

#[test]
fn an_extension_that_is_there_twice_is_malformed() {
    let pki = Pki::new();
    let der = pki.root("/CN=Root").certificate.der().to_vec();
    // keyUsage (2.5.29.15) becomes a second basicConstraints (2.5.29.19).
    let at = der.windows(3).position(|three| three == [0x55, 0x1d, 15]);
    let mut changed = der.clone();
    changed[at.expect("it has one") + 2] = 19;
    assert!(Certificate::from_der(&changed).is_err());
}

proptest! {
    #[test]
    fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = Certificate::from_der(&bytes);
        let _ = Certificate::all_from_pem(&bytes);
        let _ = Name::from_der(&bytes);
    }
}

#[test]
fn changed_certificates_do_not_panic() {
    let pki = Pki::new();
    let root = pki.root("/DC=test/CN=Root");
    let user = pki.issue(&root, "/DC=test/CN=Alice", USER);
    let proxy = pki.proxy(&user, FULL);
    for issued in [root, user, proxy] {
        let der = issued.certificate.der();
        proptest!(|(at in 0..der.len(), value in any::<u8>())| {
            let mut changed = der.to_vec();
            changed[at] = value;
            if let Ok(certificate) = Certificate::from_der(&changed) {
                prop_assert_eq!(certificate.der(), &changed[..]);
                let _ = certificate.subject().first_common_name();
            }
        });
    }
}
