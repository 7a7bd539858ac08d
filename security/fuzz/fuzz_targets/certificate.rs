//! Certificates in DER and PEM, and the names in them.

#![no_main]

use gridhaul_security::certificate::Certificate;
use gridhaul_security::key::PrivateKey;
use gridhaul_security::name::Name;
use gridhaul_security_fuzz::{Edits, chain, edited};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u8, Edits, Vec<u8>)| {
    let (which, edits, bytes) = input;
    let sample = &chain()[usize::from(which) % chain().len()];
    for der in [&edited(sample.der(), &edits), &bytes] {
        if let Ok(certificate) = Certificate::from_der(der) {
            assert_eq!(certificate.der(), der);
            let subject = certificate.subject();
            assert_eq!(Name::from_der(subject.as_der()).as_ref(), Ok(subject));
            assert!(!subject.one_line().contains(char::is_control));
            let _ = (certificate.validity(), certificate.proxy());
            let _ = subject.is_extended_by(certificate.issuer());
        }
    }
    let _ = Name::from_der(&bytes);
    let _ = Certificate::all_from_pem(&bytes);
    let _ = PrivateKey::from_pem(&bytes);
});
