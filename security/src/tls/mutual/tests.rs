use std::time::{Duration, SystemTime};

use rustls::client::ResolvesClientCert;
use rustls::sign::CertifiedKey;
use rustls::time_provider::TimeProvider;
use rustls::{ClientConnection, Connection, ServerConnection};

use super::*;
use crate::credential::Credential;
use crate::test_pki::{FULL, Issued, LIMITED, Pki, USER};
use crate::tls::fixtures::{credential, trust};
use crate::trust::{TrustBuilder, TrustStore};

const DAY: Duration = Duration::from_secs(24 * 3600);

/// A site with a node, a control server and a user.
struct Site {
    pki: Pki,
    root: Issued,
    trust: Arc<TrustStore>,
    node: Arc<Credential>,
    control: Arc<Credential>,
}

/// A clock that goes wrong by days.
#[derive(Debug)]
struct Clock(SystemTime);

impl TimeProvider for Clock {
    fn current_time(&self) -> Option<UnixTime> {
        let since = self.0.duration_since(SystemTime::UNIX_EPOCH).ok()?;
        Some(UnixTime::since_unix_epoch(since))
    }
}

/// Has no certificate.
#[derive(Debug)]
struct Nothing;

impl ResolvesClientCert for Nothing {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        None
    }

    fn has_certs(&self) -> bool {
        false
    }
}

/// The two outcomes of a handshake.
struct Outcome {
    control: Result<PeerIdentity, PeerFault>,
    node: Result<PeerIdentity, PeerFault>,
}

impl Site {
    fn new() -> Self {
        let pki = Pki::new();
        let root = pki.root("/DC=test/CN=Root");
        let host = |name: &str| {
            let extensions = format!("{USER}\nsubjectAltName=DNS:{name}");
            credential(&[&pki.issue(&root, &format!("/DC=test/CN={name}"), &extensions)])
        };
        let (node, control) = (host("dtn1.example.org"), host("ctl.example.org"));
        Self {
            trust: trust(&root),
            pki,
            root,
            node,
            control,
        }
    }

    fn settings(&self, credential: &Arc<Credential>) -> HostSettings {
        let settings = TlsSettings::new(Arc::clone(credential), Arc::clone(&self.trust));
        HostSettings::try_from(&settings).expect("a host's")
    }

    /// The authority has revoked a certificate from now on.
    fn revoke(&mut self, revoked: &Issued) {
        let policy = "access_id_CA X509 '/DC=test/CN=Root'\npos_rights globus CA:sign\n\
                      cond_subjects globus '\"/DC=test/*\"'\n";
        let mut builder = TrustBuilder::default();
        builder.add("ca.pem", &self.root.pem());
        builder.add("ca.signing_policy", policy.as_bytes());
        let list = self.pki.revocation_list(&self.root, &[revoked]);
        builder.add("ca.r0", &list);
        self.trust = Arc::new(builder.build().0);
    }

    /// Settings with a certificate that this end refuses to present by itself.
    fn of_proxy(&self, proxy: &Arc<Credential>) -> HostSettings {
        let key = proxy.key().signing_key();
        HostSettings {
            certificate: HostCertificate {
                leaf: proxy.leaf().clone(),
                identity: config::identity(proxy.chain(), key),
            },
            ..self.settings(&self.node)
        }
    }

    fn acceptor(&self, credential: &Arc<Credential>) -> HostAcceptor {
        let listed = ["ctl.example.org".parse().expect("a name")].into();
        HostAcceptor::new(&self.settings(credential), &listed).expect("sound settings")
    }

    fn connector(&self, credential: &Arc<Credential>) -> HostConnector {
        let host = "dtn1.example.org".parse().expect("a name");
        HostConnector::new(&self.settings(credential), host).expect("sound settings")
    }

    /// The node's outcome for a control server with this credential, and what the peer gets to know.
    fn node_meets(&self, control: &Arc<Credential>) -> Outcome {
        handshake(self.connector(control), self.acceptor(&self.node))
    }
}

impl Outcome {
    fn node_refuses(&self) -> String {
        self.node.as_ref().expect_err("refused").to_string()
    }

    fn control_refuses(&self) -> String {
        self.control.as_ref().expect_err("refused").to_string()
    }
}

fn handshake(control: HostConnector, node: HostAcceptor) -> Outcome {
    let name = control.server_name();
    let client = ClientConnection::new(control.config, name).expect("sound settings");
    let server = ServerConnection::new(node.config).expect("sound settings");
    let mut ends: [Connection; 2] = [client.into(), server.into()];
    let verifiers = [control.verifier, node.verifier];
    let mut errors: [Option<rustls::Error>; 2] = [None, None];
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
    let mut outcomes = [0, 1].map(|end| match &errors[end] {
        Some(error) => Err(verifiers[end].fault(error)),
        None => verifiers[end].accepted(ends[end].alpn_protocol()),
    });
    let control = std::mem::replace(&mut outcomes[0], Err(PeerFault::NoTls));
    let [_, node] = outcomes;
    Outcome { control, node }
}

fn at(days: i32) -> Arc<dyn TimeProvider> {
    let now = SystemTime::now();
    let offset = DAY * days.unsigned_abs();
    Arc::new(Clock(if days < 0 { now - offset } else { now + offset }))
}

#[test]
fn a_control_server_and_a_node_meet_with_each_version() {
    let site = Site::new();
    for versions in [TlsVersions::Only12, TlsVersions::Only13] {
        let mut settings = site.settings(&site.control);
        settings.versions = versions;
        let host = "dtn1.example.org".parse().expect("a name");
        let control = HostConnector::new(&settings, host).expect("sound settings");
        let outcome = handshake(control, site.acceptor(&site.node));
        let node = outcome.control.expect("accepted");
        assert_eq!(node.hosts, ["dtn1.example.org"]);
        let control = outcome.node.expect("accepted");
        assert_eq!(control.subject.one_line(), "/DC=test/CN=ctl.example.org");
    }
}

#[test]
fn a_node_with_the_certificate_of_another_host_is_refused_by_name() {
    let site = Site::new();
    let outcome = handshake(site.connector(&site.control), site.acceptor(&site.control));
    let text = outcome.control_refuses();
    let begin = "presents the certificate of ctl.example.org, not of dtn1.example.org";
    assert!(text.starts_with(begin), "{text}");
    assert!(text.contains("/DC=test/CN=ctl.example.org"), "{text}");
    let told = outcome.node_refuses();
    assert!(told.contains("refuses the certificate"), "{told}");
    assert!(told.contains("access denied"), "{told}");
}

#[test]
fn only_listed_control_servers_are_served() {
    let site = Site::new();
    let outcome = site.node_meets(&site.node);
    let text = outcome.node_refuses();
    for word in ["/DC=test/CN=dtn1.example.org", "control-servers"] {
        assert!(text.contains(word), "{text}");
    }
    assert!(outcome.control_refuses().contains("access denied"));

    // By subject, and a control server with the node's own certificate.
    let meets = |listed: Vec<Principal>, control: &Arc<Credential>| {
        let acceptor = HostAcceptor::new(&site.settings(&site.node), &listed.into());
        handshake(site.connector(control), acceptor.expect("sound settings"))
    };
    let subject = "/DC=test/CN=ctl.example.org".parse().expect("a subject");
    assert!(meets(vec![subject], &site.control).node.is_ok());
    let own = Principal::of_own(site.node.leaf());
    assert!(meets(own.clone(), &site.node).node.is_ok());
    assert!(meets(own, &site.control).node.is_err());
}

#[test]
fn proxies_are_refused_at_both_ends() {
    let site = Site::new();
    let extensions = format!("{USER}\nsubjectAltName=DNS:ctl.example.org,DNS:dtn1.example.org");
    let both = site.pki.issue(&site.root, "/DC=test/CN=both", &extensions);
    for kind in [FULL, LIMITED] {
        let proxy = credential(&[&site.pki.proxy(&both, kind), &both]);
        let settings = TlsSettings::new(Arc::clone(&proxy), Arc::clone(&site.trust));
        let own = HostSettings::try_from(&settings).expect_err("a proxy");
        assert!(own.to_string().contains("--cert"), "{own}");
        let settings = site.of_proxy(&proxy);
        let host = "dtn1.example.org".parse().expect("a name");
        let control = HostConnector::new(&settings, host).expect("sound settings");
        let text = handshake(control, site.acceptor(&site.node)).node_refuses();
        assert!(
            text.starts_with("presents the proxy /DC=test/CN=both/CN="),
            "{text}"
        );
        assert!(text.contains("of /DC=test/CN=both:"), "{text}");
        let node = HostAcceptor::new(&settings, &Arc::default()).expect("sound settings");
        let outcome = handshake(site.connector(&site.control), node);
        assert!(outcome.control_refuses().contains("the proxy"));
    }
    assert!(site.node_meets(&credential(&[&both])).node.is_ok());
}

#[test]
fn authorities_and_revocation_lists_of_the_trust_directory_decide() {
    let mut site = Site::new();
    let other = site.pki.root("/DC=test/CN=Other");
    let stranger = site.pki.issue(&other, "/DC=test/CN=ctl.example.org", USER);
    let outcome = site.node_meets(&credential(&[&stranger]));
    let text = outcome.node_refuses();
    for word in [
        "/DC=test/CN=ctl.example.org",
        "was issued by /DC=test/CN=Other",
    ] {
        assert!(text.contains(word), "{text}");
    }
    let told = outcome.control_refuses();
    assert!(
        told.contains("its authority is not trusted there"),
        "{told}"
    );

    let revoked = site
        .pki
        .issue(&site.root, "/DC=test/CN=ctl.example.org", USER);
    let credential = credential(&[&revoked]);
    assert!(site.node_meets(&credential).node.is_ok());
    site.revoke(&revoked);
    let outcome = site.node_meets(&credential);
    assert!(outcome.node_refuses().contains("revoked"));
    assert!(outcome.control_refuses().contains("(revoked)"));
}

#[test]
fn clocks_that_differ_are_named() {
    let site = Site::new();
    for (days, word) in [(-1, "is not valid before"), (60, "has expired")] {
        let mut node = site.acceptor(&site.node);
        let config = Arc::get_mut(&mut node.config).expect("the only one");
        config.time_provider = at(days);
        let outcome = handshake(site.connector(&site.control), node);
        for word in [
            word,
            "/DC=test/CN=ctl.example.org",
            "ompare the clocks of both machines",
        ] {
            let text = outcome.node_refuses();
            assert!(text.contains(word), "{text}");
        }
        let told = outcome.control_refuses();
        assert!(
            told.contains("compare the clocks of both machines"),
            "{told}"
        );
    }
}

#[test]
fn a_peer_without_a_certificate_or_with_another_version_or_protocol_is_told_apart() {
    let site = Site::new();
    let meets = |change: &dyn Fn(&mut ClientConfig)| {
        let mut control = site.connector(&site.control);
        change(Arc::get_mut(&mut control.config).expect("the only one"));
        handshake(control, site.acceptor(&site.node))
    };
    let outcome = meets(&|config| config.client_auth_cert_resolver = Arc::new(Nothing));
    assert_eq!(outcome.node, Err(PeerFault::NoCertificate));
    assert_eq!(
        meets(&|config| config.alpn_protocols.clear()).node,
        Err(PeerFault::OtherProtocol)
    );
    assert_eq!(
        meets(&|config| config.alpn_protocols = vec![b"http/1.1".to_vec()]).node,
        Err(PeerFault::OtherProtocol)
    );

    let only = |versions, credential| HostSettings {
        versions,
        ..site.settings(credential)
    };
    for (ours, theirs) in [
        (TlsVersions::Only12, TlsVersions::Only13),
        (TlsVersions::Only13, TlsVersions::Only12),
    ] {
        let host = "dtn1.example.org".parse().expect("a name");
        let control = HostConnector::new(&only(theirs, &site.control), host);
        let node = HostAcceptor::new(&only(ours, &site.node), &Arc::default());
        let outcome = handshake(
            control.expect("sound settings"),
            node.expect("sound settings"),
        );
        assert_eq!(outcome.node, Err(PeerFault::Versions { own: ours }));
        assert_eq!(outcome.control, Err(PeerFault::Versions { own: theirs }));
    }
}

#[test]
fn an_alert_is_found_in_the_errors_around_it() {
    let site = Site::new();
    let own = site.node.leaf().subject();
    let alert = rustls::Error::AlertReceived(rustls::AlertDescription::AccessDenied);
    let error = std::io::Error::other(std::io::Error::other(alert));
    let fault = PeerFault::in_error(&error, own).expect("found");
    assert!(fault.to_string().contains("access denied"), "{fault}");
    let other = std::io::Error::other(rustls::Error::DecryptError);
    assert_eq!(PeerFault::in_error(&other, own), None);
}

#[test]
fn principals_are_subjects_or_hosts() {
    let subject: Principal = "/DC=org/CN=host/a.org".parse().expect("a subject");
    assert_eq!(subject, Principal::Subject("/DC=org/CN=host/a.org".into()));
    let host: Principal = "A.org".parse().expect("a host");
    assert_eq!(host, Principal::Host(HostName::Name("a.org".into())));
    assert!("a b".parse::<Principal>().is_err());
}

#[test]
fn a_peer_is_validated_again_by_the_rules_of_the_handshake() {
    let mut site = Site::new();
    let extensions = format!("{USER}\nsubjectAltName=DNS:dtn1.example.org");
    let issued = site
        .pki
        .issue(&site.root, "/DC=test/CN=dtn1.example.org", &extensions);
    let presented = [CertificateDer::from(issued.certificate.der())];
    let now = SystemTime::now();
    let as_node = |site: &Site, host: &str, now| {
        let host = host.parse().expect("a name");
        validate_node(&site.settings(&site.control), &host, &presented, now)
    };
    let listed: Arc<[Principal]> = ["dtn1.example.org".parse().expect("a name")].into();
    let as_control_server = |site: &Site, listed: &Arc<[Principal]>, now| {
        validate_control_server(&site.settings(&site.node), listed, &presented, now)
    };
    assert_eq!(as_node(&site, "dtn1.example.org", now), Ok(()));
    assert_eq!(as_control_server(&site, &listed, now), Ok(()));

    let other = as_node(&site, "dtn2.example.org", now).expect_err("another host");
    assert!(matches!(other, PeerFault::OtherHost { .. }), "{other}");
    let unlisted = as_control_server(&site, &Arc::default(), now).expect_err("not listed");
    assert!(
        matches!(unlisted, PeerFault::NotListed { .. }),
        "{unlisted}"
    );
    for fault in [
        as_node(&site, "dtn1.example.org", now + 400 * DAY).expect_err("expired"),
        as_control_server(&site, &listed, now + 400 * DAY).expect_err("expired"),
    ] {
        assert!(fault.is_end(), "{fault}");
    }
    let unlisted = as_control_server(&site, &Arc::default(), now + 400 * DAY);
    let unlisted = unlisted.expect_err("expired and not listed");
    assert!(!unlisted.is_end(), "{unlisted}");
    site.revoke(&issued);
    for fault in [
        as_node(&site, "dtn1.example.org", now).expect_err("revoked"),
        as_control_server(&site, &listed, now).expect_err("revoked"),
        // Behind the ends of the certificate and of the list.
        as_node(&site, "dtn1.example.org", now + 400 * DAY).expect_err("revoked"),
    ] {
        assert!(!fault.is_end(), "{fault}");
        assert!(fault.to_string().contains("revoked"), "{fault}");
    }
}
