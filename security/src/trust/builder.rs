//! Makes a trust store from the files of a directory.

use std::sync::Arc;

use rustls_pki_types::CertificateRevocationListDer;
use rustls_pki_types::pem::PemObject;

use super::revocation::RevocationList;
use super::signing_policy::SigningPolicy;
use super::{Directory, TrustStore};
use crate::certificate::Certificate;

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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum TrustFileKind {
    Certificates,
    RevocationLists,
    /// Whether it is named after the hash of an authority's name.
    SigningPolicy {
        is_hashed: bool,
    },
}

/// What was read from a file. Parsed files can go into several stores.
#[derive(Debug)]
pub(crate) enum TrustFile {
    Certificates(Vec<Certificate>),
    RevocationLists(Vec<Arc<RevocationList>>),
    SigningPolicy(Arc<SigningPolicy>),
}

impl TrustFileKind {
    /// Whether a file of this name means anything: `HASH.0`, `HASH.signing_policy`, `HASH.r0`, and plain
    /// names such as `ca.pem`, `ca.signing_policy` and `ca.crl`.
    pub(crate) fn of(file: &str) -> Option<Self> {
        let (stem, extension) = file.rsplit_once('.')?;
        let is_number =
            |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let is_hashed = stem.len() == 8 && stem.bytes().all(|byte| byte.is_ascii_hexdigit());
        match extension {
            "signing_policy" => Some(Self::SigningPolicy { is_hashed }),
            "pem" | "crt" => Some(Self::Certificates),
            "crl" => Some(Self::RevocationLists),
            // The IGTF's plain names of revocation lists are those that fetch-crl gives them.
            "r0" => Some(Self::RevocationLists),
            number if is_hashed && is_number(number) => Some(Self::Certificates),
            number if is_hashed && number.strip_prefix('r').is_some_and(is_number) => {
                Some(Self::RevocationLists)
            }
            _ => None,
        }
    }
}

impl TrustFile {
    /// Reads a file's content.
    ///
    /// # Errors
    ///
    /// Words about what is wrong, and what to do.
    pub(crate) fn parse(kind: TrustFileKind, content: &[u8]) -> Result<Self, String> {
        match kind {
            TrustFileKind::Certificates => certificates(content).map(Self::Certificates),
            TrustFileKind::RevocationLists => lists(content).map(Self::RevocationLists),
            TrustFileKind::SigningPolicy { .. } => {
                SigningPolicy::parse(content).map(|policy| Self::SigningPolicy(Arc::new(policy)))
            }
        }
    }
}

impl TrustBuilder {
    /// Takes a file by its name (`HASH.0`, `HASH.signing_policy`, `HASH.r0`, or plain names such as
    /// `ca.pem`, `ca.signing_policy`, `ca.crl`). Files that mean nothing here are ignored, and so is what
    /// is there already under another name.
    pub fn add(&mut self, file: &str, content: &[u8]) {
        let Some(kind) = TrustFileKind::of(file) else {
            return;
        };
        match TrustFile::parse(kind, content) {
            Ok(parsed) => self.add_parsed(kind, &parsed),
            Err(reason) => self.refuse(file, reason),
        }
    }

    /// Takes a file that was parsed before.
    pub(crate) fn add_parsed(&mut self, kind: TrustFileKind, file: &TrustFile) {
        match file {
            TrustFile::Certificates(certificates) => {
                for certificate in certificates {
                    let name = Arc::clone(certificate.subject().canonical());
                    let same_name = self.directory.authorities.entry(name).or_default();
                    if !same_name.contains(certificate) {
                        same_name.push(certificate.clone());
                    }
                }
            }
            TrustFile::RevocationLists(lists) => {
                for list in lists {
                    let name = Arc::clone(list.issuer().canonical());
                    let same_issuer = self.directory.revocation_lists.entry(name).or_default();
                    if same_issuer.iter().all(|known| known.der() != list.der()) {
                        same_issuer.push(Arc::clone(list));
                    }
                }
            }
            TrustFile::SigningPolicy(policy) => {
                let [hashed, plain] = &mut self.directory.policies;
                let is_hashed = kind == TrustFileKind::SigningPolicy { is_hashed: true };
                let policies = if is_hashed { hashed } else { plain };
                for authority in policy.authorities() {
                    let same_authority = policies.entry(authority.clone()).or_default();
                    if !same_authority.contains(policy) {
                        same_authority.push(Arc::clone(policy));
                    }
                }
            }
        }
    }

    /// Notes that a file cannot be used.
    pub(crate) fn refuse(&mut self, file: &str, reason: String) {
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
}

fn certificates(content: &[u8]) -> Result<Vec<Certificate>, String> {
    let read = match is_der(content) {
        true => Certificate::from_der(content).map(|certificate| vec![certificate]),
        false => Certificate::all_from_pem(content),
    };
    let certificates = read.map_err(|error| format!("{error}: fetch it anew"))?;
    match certificates.is_empty() {
        true => Err("there is no certificate in it: remove it, or fetch it anew".to_owned()),
        false => Ok(certificates),
    }
}

fn lists(content: &[u8]) -> Result<Vec<Arc<RevocationList>>, String> {
    let parse = |der| match RevocationList::from_der(der) {
        Ok(list) => Ok(Arc::new(list)),
        Err(error) => Err(format!("{error}: fetch it anew (fetch-crl)")),
    };
    if is_der(content) {
        return Ok(vec![parse(content.to_vec())?]);
    }
    let lists = CertificateRevocationListDer::pem_slice_iter(content)
        .map(|section| match section {
            Ok(der) => parse(der.to_vec()),
            Err(error) => Err(format!("the PEM text is malformed: {error}")),
        })
        .collect::<Result<Vec<_>, _>>()?;
    match lists.is_empty() {
        true => Err("there is no revocation list in it: fetch it anew (fetch-crl)".to_owned()),
        false => Ok(lists),
    }
}

/// DER of a certificate or a list begins with a SEQUENCE; PEM is text, in which that byte is a digit.
fn is_der(content: &[u8]) -> bool {
    matches!(content, [0x30, 0x80..=0x84, ..])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::test_pki::{Pki, openssl, run};

    const POLICY: &[u8] = b"access_id_CA X509 /CN=Root pos_rights globus CA:sign";

    #[test]
    fn files_are_told_by_their_names() {
        let hashed = TrustFileKind::SigningPolicy { is_hashed: true };
        let plain = TrustFileKind::SigningPolicy { is_hashed: false };
        for (file, kind) in [
            ("5ca1ab1e.0", Some(TrustFileKind::Certificates)),
            ("5CA1AB1E.12", Some(TrustFileKind::Certificates)),
            ("My.CA.pem", Some(TrustFileKind::Certificates)),
            ("ca.crt", Some(TrustFileKind::Certificates)),
            ("ca.r0", Some(TrustFileKind::RevocationLists)),
            ("5ca1ab1e.r1", Some(TrustFileKind::RevocationLists)),
            ("ca.crl", Some(TrustFileKind::RevocationLists)),
            ("5ca1ab1e.signing_policy", Some(hashed)),
            ("My CA.signing_policy", Some(plain)),
            ("5ca1ab1e.namespaces", None),
            ("ca.info", None),
            ("ca.0", None),
            ("5ca1ab1e.", None),
            ("5ca1ab1e.r", None),
            ("ca.r1", None),
            ("5ca1ab1e.rx", None),
            ("pem", None),
        ] {
            assert_eq!(TrustFileKind::of(file), kind, "{file}");
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
}
