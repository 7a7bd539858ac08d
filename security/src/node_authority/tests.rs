use std::fs;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rustls::{ClientConnection, Connection, ServerConnection};

use super::*;
use crate::certificate::Certificate;
use crate::credential::{Credential, credential_pem};
use crate::host_name::hosts_of;
use crate::key::PrivateKey;
use crate::test_pki::{Pki, USER, openssl, run};
use crate::tls::{
    HostAcceptor, HostConnector, HostSettings, PinnedConnector, PinnedFault, Principal,
    pinned_server,
};
use crate::trust::ChainError;

const DAY: Duration = Duration::from_secs(86400);

fn host(name: &str) -> HostName {
    name.parse().expect(name)
}

fn authority() -> NodeAuthority {
    NodeAuthority::create(SystemTime::now()).expect("made").0
}

fn control(authority: &NodeAuthority) -> Credential {
    let text = authority.control_server(SystemTime::now()).expect("issued");
    Credential::from_pem(&text).expect("a credential")
}

fn node(authority: &NodeAuthority, name: &str) -> Vec<Certificate> {
    let key = PrivateKey::generate_ec().expect("a key");
    let request = request(&key, &host(name)).expect("a request");
    let issued = authority.node(&request, &host(name), SystemTime::now());
    issued.expect("issued")
}

#[test]
fn the_files_are_read_again_and_openssl_verifies_what_is_issued() {
    let (made, text) = NodeAuthority::create(SystemTime::now()).expect("made");
    let credential = Credential::from_pem(&text).expect("a credential");
    let read = NodeAuthority::from_credential(credential).expect("an authority");
    assert_eq!(read.fingerprint(), made.fingerprint());
    let directory = tempfile::tempdir().expect("a directory");
    let root = directory.path().join("authority.pem");
    fs::write(&root, &text).expect("written");
    let long = format!("{}.example.org", "a".repeat(60));
    for (name, alternative) in [
        ("dtn1.example.org", "DNS:dtn1.example.org"),
        ("192.0.2.1", "IP Address:192.0.2.1"),
        (&long, &*format!("DNS:{long}")),
    ] {
        let issued = node(&read, name);
        assert!(host(name).is_certified_by(&issued), "{name}");
        let file = directory.path().join("node.der");
        fs::write(&file, issued[0].der()).expect("written");
        run(
            openssl(["verify", "-x509_strict", "-purpose", "sslserver", "-CAfile"])
                .arg(&root)
                .arg(&file),
        );
        let text = run(openssl(["x509", "-noout", "-text", "-in"]).arg(&file));
        assert!(text.contains(alternative), "{text}");
    }
    let file = directory.path().join("control.pem");
    let text = read.control_server(SystemTime::now()).expect("issued");
    fs::write(&file, &text).expect("written");
    run(
        openssl(["verify", "-x509_strict", "-purpose", "sslclient", "-CAfile"])
            .arg(&root)
            .arg(&file),
    );
}

#[test]
fn each_end_knows_its_own_kind_and_the_other() {
    let authority = authority();
    let control = control(&authority);
    let as_control = NodeIdentity::new(Role::ControlServer, control.chain()).expect("its kind");
    as_control.verify(SystemTime::now()).expect("valid");
    let chain = node(&authority, "dtn1.example.org");
    let as_node = NodeIdentity::new(Role::Node, &chain).expect("its kind");
    as_node.verify(SystemTime::now()).expect("valid");
    let name = control.leaf().subject().one_line().to_owned();
    assert_eq!(*as_node.control_servers(), [Principal::Subject(name)]);
    // A node, also one on the machine of the control server, is no control server.
    for (role, chain) in [
        (Role::ControlServer, &*chain),
        (Role::Node, control.chain()),
    ] {
        let error = NodeIdentity::new(role, chain).expect_err("the other kind");
        assert!(matches!(error, IdentityError::OtherRole { .. }), "{error}");
    }
    let error = NodeIdentity::new(Role::Node, &chain[..1]).expect_err("no authority");
    assert_eq!(error, IdentityError::NoAuthority);
}

#[test]
fn a_host_certificate_of_a_site_is_no_identity_and_its_authority_is_none_of_ours() {
    let pki = Pki::new();
    let root = pki.root("/O=gridhaul node authority/CN=0123456789abcdef");
    let site = pki.root("/DC=test/CN=Root");
    let user = pki.issue(
        &site,
        "/O=gridhaul node authority/OU=data node/CN=dtn1",
        USER,
    );
    let chain = [user.certificate.clone(), site.certificate.clone()];
    let error = NodeIdentity::new(Role::Node, &chain).expect_err("another authority");
    assert_eq!(error, IdentityError::NoAuthority);
    // One with the same name verifies nothing of ours.
    let ours = authority();
    let chain = [node(&ours, "dtn1")[0].clone(), root.certificate];
    let identity = NodeIdentity::new(Role::Node, &chain).expect("the names fit");
    let error = identity
        .verify(SystemTime::now())
        .expect_err("not its issuer");
    assert!(matches!(error, IdentityError::Chain(_)), "{error}");
}

#[test]
fn a_request_is_for_the_host_that_was_invited_and_proves_its_key() {
    let authority = authority();
    let key = PrivateKey::generate_ec().expect("a key");
    let now = SystemTime::now();
    let other = request(&key, &host("ctl.example.org")).expect("a request");
    let error = authority.node(&other, &host("dtn1.example.org"), now);
    let words = error.expect_err("another host").to_string();
    assert!(words.contains("ctl.example.org"), "{words}");
    let proxy = crate::delegation::request(&key).expect("a request");
    authority
        .node(&proxy, &host("dtn1.example.org"), now)
        .expect_err("a request for a proxy");
    let mut broken = request(&key, &host("dtn1.example.org")).expect("a request");
    let last = broken.len() - 1;
    broken[last] ^= 1;
    let error = authority.node(&broken, &host("dtn1.example.org"), now);
    assert!(
        matches!(error, Err(AuthorityError::Request(_))),
        "{error:?}"
    );
    for length in 0..broken.len() {
        authority
            .node(&broken[..length], &host("dtn1.example.org"), now)
            .expect_err("cut off");
    }
}

#[test]
fn certificates_of_nodes_end_after_a_year_and_with_their_authority() {
    let now = SystemTime::now();
    let (authority, _) = NodeAuthority::create(now - DAY * 3650 + DAY).expect("made");
    let chain = node(&authority, "dtn1");
    let identity = NodeIdentity::new(Role::Node, &chain).expect("its kind");
    let end = authority.certificate().validity().not_after;
    assert_eq!(chain[0].validity().not_after, end);
    let error = identity.verify(end + DAY).expect_err("expired");
    let IdentityError::Chain(ChainError::Expired { .. }) = error else {
        panic!("{error}");
    };
    let key = PrivateKey::generate_ec().expect("a key");
    let request = request(&key, &host("dtn1")).expect("a request");
    let late = authority.node(&request, &host("dtn1"), end + DAY);
    assert_eq!(late.expect_err("expired"), AuthorityError::Expired);
    let fresh = node(&self::authority(), "dtn1");
    let year = fresh[0]
        .validity()
        .not_after
        .duration_since(now)
        .expect("later");
    assert!((DAY * 364..=DAY * 365).contains(&year), "{year:?}");
    assert_eq!(hosts_of(&fresh[0]), ["dtn1"]);
}

#[test]
fn keys_that_were_read_from_files_are_not_written_again() {
    let credential = control(&authority());
    assert!(credential_pem(credential.key(), credential.chain()).is_err());
    let identity = NodeIdentity::new(Role::ControlServer, credential.chain()).expect("its kind");
    let key = Arc::clone(credential.key()).signing_key();
    identity.settings(key).expect("a host's");
}

/// The two ends of a handshake in memory: what went wrong at each.
fn shake(ends: &mut [Connection; 2]) -> [Option<rustls::Error>; 2] {
    let mut errors = [None, None];
    // Enough for all flights and an alert.
    for turn in 0..8 {
        let (from, to) = (turn % 2, 1 - turn % 2);
        let mut flight = Vec::new();
        while ends[from].wants_write() {
            ends[from].write_tls(&mut flight).expect("to memory");
        }
        let mut rest = flight.as_slice();
        while !rest.is_empty() && errors[to].is_none() {
            ends[to].read_tls(&mut rest).expect("from memory");
            errors[to] = ends[to].process_new_packets().err();
        }
    }
    errors
}

const PROTOCOL: &[u8] = b"test";

/// What a node with a token of `authority` finds out about a server with this chain.
fn invited(
    authority: &NodeAuthority,
    chain: &[Certificate],
    credential: &Credential,
) -> Result<Vec<Certificate>, PinnedFault> {
    let key = credential.key().signing_key();
    let server = pinned_server(chain, key, PROTOCOL).expect("sound settings");
    let connector =
        PinnedConnector::new(authority.fingerprint(), PROTOCOL).expect("sound settings");
    let name = connector.server_name();
    let client = ClientConnection::new(connector.config, name).expect("sound settings");
    let server = ServerConnection::new(server).expect("sound settings");
    match shake(&mut [client.into(), server.into()]) {
        [None, _] => Ok(connector.verifier.chain().expect("verified").to_vec()),
        [Some(error), _] => Err(connector.verifier.fault(&error)),
    }
}

#[test]
fn a_node_that_knows_the_fingerprint_meets_its_control_server_only() {
    let (ours, other) = (authority(), authority());
    let (control, foreign) = (control(&ours), control(&other));
    let met = invited(&ours, control.chain(), &control).expect("its authority");
    NodeIdentity::new(Role::ControlServer, &met).expect("a control server");
    let fault = invited(&ours, foreign.chain(), &foreign).expect_err("another authority");
    assert_eq!(fault, PinnedFault::OtherAuthority);
    // The certificate of an authority is public.
    let mixed = [foreign.chain(), &control.chain()[1..]].concat();
    for chain in [&mixed[..], &[mixed[0].clone(), mixed[2].clone()]] {
        let fault = invited(&ours, chain, &foreign).expect_err("not issued by it");
        assert!(matches!(fault, PinnedFault::Chain(_)), "{fault}");
    }
    // The chain is public too; the key is not.
    let fault = invited(&ours, control.chain(), &foreign).expect_err("another key");
    assert!(matches!(fault, PinnedFault::Protocol(_)), "{fault}");
}

/// A node that is enrolled at `authority`, with its key.
fn enrolled(authority: &NodeAuthority, name: &str) -> Credential {
    let key = PrivateKey::generate_ec().expect("a key");
    let request = request(&key, &host(name)).expect("a request");
    let chain = authority.node(&request, &host(name), SystemTime::now());
    Credential::new(chain.expect("issued"), key).expect("a credential")
}

/// Whether a host with these settings gets into a node, and what both say.
fn gets_in(node: &Credential, settings: &HostSettings) -> Result<(), String> {
    let identity = NodeIdentity::new(Role::Node, node.chain()).expect("its kind");
    let own = identity.settings(node.key().signing_key()).expect("sound");
    let acceptor = HostAcceptor::new(&own, &identity.control_servers()).expect("sound");
    let connector = HostConnector::new(settings, host("dtn1.example.org")).expect("sound");
    let name = connector.server_name();
    let client = ClientConnection::new(connector.config, name).expect("sound settings");
    let server = ServerConnection::new(acceptor.config).expect("sound settings");
    let errors = shake(&mut [client.into(), server.into()]);
    let [control, node] = errors.map(|error| error.into_iter());
    let control = control.map(|error| connector.verifier.fault(&error).to_string());
    let node = node.map(|error| acceptor.verifier.fault(&error).to_string());
    let said: Vec<_> = control.chain(node).collect();
    match said.is_empty() {
        true => Ok(()),
        false => Err(said.join(" | ")),
    }
}

#[test]
fn an_enrolled_node_obeys_its_control_server_and_nothing_else() {
    let (ours, other) = (authority(), authority());
    let node = enrolled(&ours, "dtn1.example.org");
    let settings = |role, credential: &Credential| {
        let identity = NodeIdentity::new(role, credential.chain()).expect("its kind");
        identity
            .settings(credential.key().signing_key())
            .expect("sound")
    };
    gets_in(&node, &settings(Role::ControlServer, &control(&ours))).expect("its control server");
    // A second node, even one on the machine of the control server.
    let second = enrolled(&ours, "ctl.example.org");
    let said = gets_in(&node, &settings(Role::Node, &second)).expect_err("a node");
    assert!(said.contains("no control server of this node"), "{said}");
    let said = gets_in(&node, &settings(Role::ControlServer, &control(&other)));
    said.expect_err("of another authority");
    // With the trust of the first, so that the node has to refuse.
    let trusting = HostSettings {
        certificate: settings(Role::ControlServer, &control(&other)).certificate,
        ..settings(Role::ControlServer, &control(&ours))
    };
    let said = gets_in(&node, &trusting).expect_err("of another authority");
    assert!(said.contains("not accepted"), "{said}");
    // A proxy that the holder of an identity makes.
    let key = PrivateKey::generate_ec().expect("a key");
    let asked = crate::delegation::request(&key).expect("a request");
    let control = control(&ours);
    let policy = crate::proxy::ProxyPolicy::InheritAll;
    let proxy = crate::delegation::sign(&control, &asked, policy, SystemTime::now());
    let chain = [vec![proxy.expect("signed")], control.chain().to_vec()].concat();
    NodeIdentity::new(Role::ControlServer, &chain).expect_err("a proxy");
}
