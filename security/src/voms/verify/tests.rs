//! Samples of voms-proxy-fake, with the results of the VOMS library.

use super::*;
use crate::trust::{ChainError, TrustBuilder};
use crate::voms::{Fqan, attribute_certificate, claims, memberships};

// Made by samples/make with voms-proxy-fake 2.1.0. The VOMS library accepts and refuses the same samples.
const PLAIN: &[u8] = include_bytes!("../samples/plain.pem");
const TARGETED: &[u8] = include_bytes!("../samples/targeted.pem");
const FOREIGN: &[u8] = include_bytes!("../samples/foreign.pem");
const CRITICAL: &[u8] = include_bytes!("../samples/critical.pem");
const NESTED: &[u8] = include_bytes!("../samples/nested.pem");

const HOST: &str = "voms.example.org";
const LSC: &str = "/DC=org/DC=example/CN=voms.example.org\n/DC=org/DC=example/CN=Example CA\n";
const MINUTE: Duration = Duration::from_secs(60);

/// The input for finding memberships, at a time at which the sample is valid.
struct Login {
    peer: Peer,
    trust: TrustStore,
    servers: VomsServers,
    own_names: Vec<String>,
    now: SystemTime,
}

impl Login {
    fn new(sample: &[u8]) -> Self {
        let chain = Certificate::all_from_pem(sample).expect("certificates");
        let now = chain[0].validity().not_before + 10 * MINUTE;
        let trust = trust();
        let peer = trust.validate(&chain, now).expect("a valid chain");
        let mut servers = VomsServers::default();
        let added = servers.add_server("testvo", HOST, LSC.as_bytes());
        added.expect("a valid file");
        Self {
            peer,
            trust,
            servers,
            own_names: vec!["host.example.org".to_owned()],
            now,
        }
    }

    fn verifier(&self) -> Verifier<'_> {
        Verifier {
            holder: &self.peer.chain[1],
            trust: &self.trust,
            servers: &self.servers,
            own_names: &self.own_names,
            now: self.now,
        }
    }

    fn attributes(&self) -> Result<Vec<String>, VomsError> {
        let (memberships, mut errors) = memberships(
            &self.peer,
            &self.trust,
            &self.servers,
            &self.own_names,
            self.now,
        );
        match errors.pop() {
            Some(error) => {
                assert_eq!(memberships, []);
                Err(error)
            }
            None => Ok(memberships
                .iter()
                .flat_map(|membership| membership.attributes.iter().map(Fqan::to_string))
                .collect()),
        }
    }
}

fn trust() -> TrustStore {
    let (store, problems) = trust_files().build();
    assert_eq!(problems, []);
    store
}

fn trust_files() -> TrustBuilder {
    let mut builder = TrustBuilder::default();
    builder.add("ca.pem", include_bytes!("../samples/ca.pem"));
    builder.add(
        "ca.signing_policy",
        include_bytes!("../samples/ca.signing_policy"),
    );
    builder
}

fn vo() -> String {
    "testvo".to_owned()
}

#[test]
fn attributes_that_the_voms_library_accepts_count() {
    let both = ["/testvo", "/testvo/sub/Role=production"];
    assert_eq!(Login::new(PLAIN).attributes().expect("valid"), both);
    let nested = Login::new(NESTED);
    assert!(nested.peer.limited);
    assert_eq!(nested.attributes().expect("valid"), both);
    let (found, _) = memberships(
        &nested.peer,
        &nested.trust,
        &nested.servers,
        &[],
        nested.now,
    );
    assert_eq!(found[0].vo, "testvo");
    assert!(found[0].expires > nested.now + 11 * 60 * MINUTE);
}

#[test]
fn a_user_without_attributes_has_none() {
    let mut login = Login::new(PLAIN);
    login.peer.chain.remove(0);
    assert_eq!(login.attributes(), Ok(Vec::new()));
    login.peer.chain.clear();
    assert_eq!(login.attributes(), Ok(Vec::new()));
}

#[test]
fn attributes_of_another_user_are_ignored() {
    let mut login = Login::new(PLAIN);
    let other = Certificate::all_from_pem(include_bytes!("../samples/voms.pem"));
    login.peer.chain[1] = other.expect("a certificate").remove(0);
    assert_eq!(login.attributes(), Err(VomsError::Holder { vo: vo() }));
}

#[test]
fn attributes_count_while_they_are_valid() {
    let mut login = Login::new(PLAIN);
    let validity = login.peer.chain[0].validity();
    // voms-proxy-fake makes attributes valid as long as the proxy.
    login.now = validity.not_before - 10 * MINUTE;
    assert_eq!(login.attributes(), Err(VomsError::NotYetValid { vo: vo() }));
    login.now = validity.not_after + 10 * MINUTE;
    assert_eq!(login.attributes(), Err(VomsError::Expired { vo: vo() }));
    login.now = validity.not_after - 10 * MINUTE;
    assert!(login.attributes().is_ok());
}

#[test]
fn attributes_for_some_hosts_count_on_these() {
    let login = Login::new(PLAIN);
    let extension = login.peer.chain[0].find_extension(&crate::voms::EXTENSION);
    let encodings = attribute_certificate::split(extension.expect("it has one"), 1);
    let encodings = encodings.expect("sound");
    let verify = |targets: &[&str]| {
        let mut certificate = AttributeCertificate::parse(encodings[0]).expect("sound");
        certificate.targets = Some(targets.iter().map(|&name| name.to_owned()).collect());
        login.verifier().verify(certificate)
    };
    assert!(verify(&["Host.Example.ORG"]).is_ok());
    assert!(verify(&["other.example.org", "host.example.org"]).is_ok());
    let target = |targets: &str| VomsError::Target {
        vo: vo(),
        targets: targets.to_owned(),
    };
    assert_eq!(verify(&["example.org"]), Err(target("example.org")));
    // voms-proxy-fake 2.1.0 omits the names that it was given.
    let nobody = Login::new(TARGETED).attributes();
    assert_eq!(nobody, Err(target("no host")));
}

#[test]
fn attributes_do_not_count_while_the_list_of_the_signers_authority_is_unusable() {
    let mut login = Login::new(PLAIN);
    let mut files = trust_files();
    files.add("ca.r0", b"");
    (login.trust, _) = files.build();
    let Err(VomsError::Chain { error, .. }) = login.attributes() else {
        panic!("the signer may have been revoked");
    };
    assert!(
        matches!(*error, ChainError::RevocationListUnusable { .. }),
        "{error}"
    );
}

#[test]
fn a_server_speaks_for_its_own_organization_alone() {
    let error = Login::new(FOREIGN).attributes().expect_err("another VO's");
    assert!(
        error.to_string().contains("/other is not one of testvo"),
        "{error}"
    );
}

#[test]
fn unknown_critical_extensions_do_not_pass() {
    let error = Login::new(CRITICAL).attributes().expect_err("unknown");
    assert!(error.to_string().contains("critical extension"), "{error}");
}

#[test]
fn the_vomsdir_must_name_the_signer() {
    let mut login = Login::new(PLAIN);
    login.servers = VomsServers::default();
    let unknown = VomsError::UnknownServer {
        vo: vo(),
        host: HOST.to_owned(),
    };
    assert_eq!(login.attributes(), Err(unknown.clone()));
    let added = login
        .servers
        .add_server("testvo", "voms2.example.org", LSC.as_bytes());
    added.expect("valid");
    assert_eq!(login.attributes(), Err(unknown));

    let signer = VomsError::Signer {
        vo: vo(),
        host: HOST.to_owned(),
        signer: "/DC=org/DC=example/CN=voms.example.org".to_owned(),
    };
    for (from, to) in [("CN=voms", "CN=somebody"), ("CN=Example", "CN=Other")] {
        let lsc = LSC.replace(from, to);
        let added = login.servers.add_server("testvo", HOST, lsc.as_bytes());
        added.expect("valid");
        assert_eq!(login.attributes(), Err(signer.clone()));
    }
    for lsc in [
        format!("/CN=old/E=x\n/CN=CA\n------ NEXT CHAIN ------\n{LSC}"),
        // Subject and issuer of each certificate, up to the root.
        format!("{LSC}{}", "/DC=org/DC=example/CN=Example CA\n".repeat(2)),
    ] {
        let added = login.servers.add_server("testvo", HOST, lsc.as_bytes());
        added.expect("valid");
        assert!(login.attributes().is_ok(), "{lsc}");
    }
}

#[test]
fn a_certificate_in_the_vomsdir_may_take_the_place_of_a_name() {
    let mut login = Login::new(PLAIN);
    login.servers = VomsServers::default();
    let certificate = include_bytes!("../samples/voms.pem");
    let added = login.servers.add_certificates("testvo", certificate);
    added.expect("a certificate");
    assert!(login.attributes().is_ok());
    login.servers = VomsServers::default();
    let added = login.servers.add_certificates("othervo", certificate);
    added.expect("a certificate");
    let result = login.attributes();
    assert!(
        matches!(result, Err(VomsError::UnknownServer { .. })),
        "{result:?}"
    );
}

#[test]
fn the_signer_must_be_trusted_too() {
    let mut login = Login::new(PLAIN);
    login.trust = TrustStore::default();
    let result = login.attributes();
    assert!(matches!(result, Err(VomsError::Chain { .. })), "{result:?}");
}

#[test]
fn every_changed_byte_is_noticed() {
    let login = Login::new(PLAIN);
    let proxy = &login.peer.chain[0];
    let extension = proxy.find_extension(&crate::voms::EXTENSION);
    let extension = extension.expect("the sample has one");
    let verifier = login.verifier();
    let verify = |bytes: &[u8]| -> Option<Result<Membership, VomsError>> {
        let encodings = attribute_certificate::split(bytes, 2).ok()?;
        let parsed = AttributeCertificate::parse(encodings.first()?).ok()?;
        Some(verifier.verify(parsed))
    };
    let verified = verify(extension).expect("sound").expect("valid");
    assert_eq!(claims(extension), Ok(vec![verified]));
    let mut signatures = 0;
    for position in 0..extension.len() {
        let mut changed = extension.to_vec();
        changed[position] ^= 1;
        let result = verify(&changed);
        assert!(!matches!(result, Some(Ok(_))), "byte {position}");
        signatures += u32::from(matches!(result, Some(Err(VomsError::Signature { .. }))));
    }
    assert!(signatures > 100, "{signatures}");
    for end in 0..extension.len() {
        assert!(verify(&extension[..end]).is_none(), "cut at {end}");
    }
}
