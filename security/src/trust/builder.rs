//! Makes a trust store from the files of a directory.

use std::sync::Arc;

use rustls_pki_types::CertificateRevocationListDer;
use rustls_pki_types::pem::PemObject;

use super::revocation::RevocationList;
use super::signing_policy::SigningPolicy;
use super::{Directory, TrustStore};
use crate::certificate::{Certificate, CertificateError};

/// Collects the files of a trust directory.
#[derive(Debug, Default)]
pub struct TrustBuilder {
    directory: Directory,
    problems: Vec<TrustProblem>,
}

/// A file of a trust directory that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrustProblem {
    /// The file's name.
    pub file: String,
    /// What is wrong with it, and what to do.
    pub reason: String,
}

/// What a file holds, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Certificate,
    RevocationList,
    /// Whether it is named after the hash of an authority's name.
    SigningPolicy {
        is_hashed: bool,
    },
}

impl Kind {
    fn of(file: &str) -> Option<Self> {
        let (stem, extension) = file.rsplit_once('.')?;
        let is_number =
            |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let is_hashed = stem.len() == 8 && stem.bytes().all(|byte| byte.is_ascii_hexdigit());
        match extension {
            "signing_policy" => Some(Self::SigningPolicy { is_hashed }),
            "pem" | "crt" => Some(Self::Certificate),
            "crl" => Some(Self::RevocationList),
            number if is_hashed && is_number(number) => Some(Self::Certificate),
            number if is_hashed && number.strip_prefix('r').is_some_and(is_number) => {
                Some(Self::RevocationList)
            }
            _ => None,
        }
    }
}

impl TrustBuilder {
    /// Whether a file of this name means anything here: `HASH.0`, `HASH.signing_policy`, `HASH.r0`, and
    /// plain names such as `ca.pem`, `ca.signing_policy` and `ca.crl`.
    pub fn wants(file: &str) -> bool {
        Kind::of(file).is_some()
    }

    /// Takes a file by its name. Files that mean nothing here are ignored, and so is what is there
    /// already under another name.
    pub fn add(&mut self, file: &str, content: &[u8]) {
        let taken = match Kind::of(file) {
            Some(Kind::Certificate) => self.add_certificates(content),
            Some(Kind::RevocationList) => self.add_lists(content),
            Some(Kind::SigningPolicy { is_hashed }) => self.add_policy(is_hashed, content),
            None => Ok(()),
        };
        if let Err(reason) = taken {
            self.refuse(file, reason);
        }
    }

    /// Notes that a file cannot be used.
    pub fn refuse(&mut self, file: &str, reason: String) {
        self.problems.push(TrustProblem {
            file: file.to_owned(),
            reason,
        });
    }

    /// The store, and what could not be used.
    pub fn build(mut self) -> (TrustStore, Vec<TrustProblem>) {
        self.problems
            .sort_by(|one, other| one.file.cmp(&other.file));
        let store = TrustStore {
            directory: Arc::new(self.directory),
            extra_anchors: Arc::default(),
        };
        (store, self.problems)
    }

    fn add_certificates(&mut self, content: &[u8]) -> Result<(), String> {
        let words = |error: CertificateError| error.to_string();
        let certificates = match is_der(content) {
            true => vec![Certificate::from_der(content).map_err(words)?],
            false => Certificate::all_from_pem(content).map_err(words)?,
        };
        if certificates.is_empty() {
            return Err("there is no certificate in it: remove it, or fetch it anew".to_owned());
        }
        for certificate in certificates {
            let name = Arc::clone(certificate.subject().canonical());
            let same_name = self.directory.authorities.entry(name).or_default();
            if !same_name.contains(&certificate) {
                same_name.push(certificate);
            }
        }
        Ok(())
    }

    fn add_lists(&mut self, content: &[u8]) -> Result<(), String> {
        let lists = match is_der(content) {
            true => vec![content.to_vec()],
            false => CertificateRevocationListDer::pem_slice_iter(content)
                .map(|section| section.map(|der| der.to_vec()))
                .collect::<Result<_, _>>()
                .map_err(|error| format!("the PEM text is malformed: {error}"))?,
        };
        if lists.is_empty() {
            return Err("there is no revocation list in it: fetch it anew (fetch-crl)".to_owned());
        }
        for der in lists {
            let list = RevocationList::from_der(der).map_err(|error| error.to_string())?;
            let name = Arc::clone(list.issuer().canonical());
            let same_issuer = self.directory.revocation_lists.entry(name).or_default();
            if same_issuer.iter().all(|known| known.der() != list.der()) {
                same_issuer.push(list);
            }
        }
        Ok(())
    }

    fn add_policy(&mut self, is_hashed: bool, content: &[u8]) -> Result<(), String> {
        let policy = SigningPolicy::parse(content)?;
        let [hashed, plain] = &mut self.directory.policies;
        let policies = if is_hashed { hashed } else { plain };
        if !policies.contains(&policy) {
            policies.push(policy);
        }
        Ok(())
    }
}

/// DER of a certificate or a list begins with a SEQUENCE; PEM is text, in which that byte is a digit.
fn is_der(content: &[u8]) -> bool {
    matches!(content, [0x30, 0x80..=0x84, ..])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_pki::{Pki, openssl, run};

    const POLICY: &[u8] = b"access_id_CA X509 /CN=Root pos_rights globus CA:sign";

    #[test]
    fn files_are_told_by_their_names() {
        let hashed = Kind::SigningPolicy { is_hashed: true };
        let plain = Kind::SigningPolicy { is_hashed: false };
        for (file, kind) in [
            ("5ca1ab1e.0", Some(Kind::Certificate)),
            ("5CA1AB1E.12", Some(Kind::Certificate)),
            ("My.CA.pem", Some(Kind::Certificate)),
            ("ca.crt", Some(Kind::Certificate)),
            ("5ca1ab1e.r0", Some(Kind::RevocationList)),
            ("ca.crl", Some(Kind::RevocationList)),
            ("5ca1ab1e.signing_policy", Some(hashed)),
            ("My CA.signing_policy", Some(plain)),
            ("5ca1ab1e.namespaces", None),
            ("ca.info", None),
            ("ca.0", None),
            ("5ca1ab1e.", None),
            ("5ca1ab1e.r", None),
            ("5ca1ab1e.rx", None),
            ("pem", None),
        ] {
            assert_eq!(Kind::of(file), kind, "{file}");
        }
    }

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
    fn what_cannot_be_used_is_named_and_the_rest_works() {
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
        assert_eq!(files, ["a.pem", "b.pem", "c.crl", "d.signing_policy"]);
        assert!(problems[0].reason.contains("no certificate"));
        assert!(problems[1].reason.contains("malformed"));
        assert!(problems[2].reason.contains("fetch-crl"));
        let [hashed, plain] = &store.directory.policies;
        assert_eq!((hashed.len(), plain.len()), (0, 1));
    }
}
