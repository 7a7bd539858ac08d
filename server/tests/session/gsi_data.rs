//! Data channels that are authenticated and protected: `DCAU`, `PROT` and `DCSC`.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::{Duration, Instant};

use gridhaul_gsi::{ChannelSecurity, Gsi, Protection};
use gridhaul_protocol::command::Base64;
use gridhaul_protocol::stack::StackSpec;
use gridhaul_security::credential::Credential;
use gridhaul_security::tls::TlsVersions;
use gridhaul_security::trust::TrustStore;
use gridhaul_server::config::Seconds;
use gridhaul_stack::{
    Body, Cancel, Channel, ConnectError, Operation, Received, Registry, SocketOptions, Stack,
};
use gridhaul_tcp::Tcp;

use crate::client::Client;
use crate::gsi::{authenticate, initiator, logged_in, served, served_with};
use crate::pki::Pki;
use crate::served::Served;

const ALICE: &str = "/DC=test/CN=Alice Smith 12345";

/// A client's end of data channels.
struct Data {
    stack: Stack,
    cancel: Cancel,
}

impl Data {
    fn of(name: &str, protection: Protection) -> Self {
        let pki = Pki::shared();
        Self::new(pki.credential(name), pki.trust(), ALICE, protection)
    }

    fn new(
        credential: Arc<Credential>,
        trust: Arc<TrustStore>,
        expected: &str,
        protection: Protection,
    ) -> Self {
        let mut registry = Registry::new();
        registry.register(Tcp);
        registry.register(Gsi::new(ChannelSecurity {
            credential,
            trust,
            anchors: Vec::new(),
            expected: expected.to_owned(),
            protection,
            versions: TlsVersions::default(),
        }));
        let stack = StackSpec::parse("tcp,gsi").expect("a stack");
        Self {
            stack: registry.build(&stack).expect("built"),
            cancel: Cancel::new(),
        }
    }

    fn operation(&self) -> Operation<'_> {
        Operation {
            deadline: Some(Instant::now() + Duration::from_secs(20)),
            cancel: &self.cancel,
        }
    }

    fn connect(&self, address: SocketAddr) -> Result<Box<dyn Channel>, ConnectError> {
        let sockets = SocketOptions::default();
        self.stack.connect(address, &sockets, &self.operation())
    }

    fn receive_all(&self, mut channel: Box<dyn Channel>) -> Vec<u8> {
        let mut content = Vec::new();
        let mut buffer = [0; 4096];
        while let Received::Bytes(count) = channel
            .receive(&mut buffer, &self.operation())
            .expect("received")
        {
            content.extend_from_slice(&buffer[..count.get()]);
        }
        content
    }

    fn send_all(&self, mut channel: Box<dyn Channel>, content: &[u8]) {
        let operation = self.operation();
        channel
            .send(&[], Body::Memory(content), &operation)
            .and_then(|()| channel.finish(&operation))
            .expect("sent");
    }
}

fn passive(client: &mut Client) -> SocketAddr {
    client.send("PASV");
    let reply = client.reply();
    client.data_address(&reply)
}

fn get(client: &mut Client, data: &Data, path: &str) -> Vec<u8> {
    let address = passive(client);
    client.send(&format!("RETR {path}"));
    let channel = data.connect(address).expect("connected");
    client.expect_reply(150);
    let content = data.receive_all(channel);
    client.expect_reply(226);
    content
}

fn put(client: &mut Client, data: &Data, path: &str, content: &[u8]) {
    let address = passive(client);
    client.send(&format!("STOR {path}"));
    let channel = data.connect(address).expect("connected");
    client.expect_reply(150);
    data.send_all(channel, content);
    client.expect_reply(226);
}

#[test]
fn data_is_authenticated_until_the_client_wants_it_otherwise() {
    let served = served();
    served.write("file", "content");
    let mut alice = logged_in(&served, "alice");
    let data = Data::of("alice", Protection::Clear);
    assert_eq!(get(&mut alice, &data, "file"), b"content");
    put(&mut alice, &data, "stored", b"more");
    assert_eq!(served.read("stored"), b"more");
    alice.expect("DCAU N", 200);
    assert_eq!(alice.get("RETR file"), b"content");
    alice.expect("DCAU A", 200);
    assert_eq!(get(&mut alice, &data, "file"), b"content");
}

#[test]
fn data_is_private_with_prot_p_and_prot_s() {
    let served = served();
    let content = vec![7; 300_000];
    let mut alice = logged_in(&served, "alice");
    let data = Data::of("alice", Protection::Private);
    assert_eq!(alice.expect("PBSZ 1048576", 200), "200 PBSZ=1048576\r\n");
    for letter in ["P", "S"] {
        let text = alice.expect(&format!("PROT {letter}"), 200);
        assert_eq!(text, format!("200 Protection level set to {letter}.\r\n"));
        put(&mut alice, &data, "file", &content);
        assert_eq!(get(&mut alice, &data, "file"), content);
    }
    alice.expect("PROT E", 536);
}

#[test]
fn somebody_else_gets_no_data() {
    let served = served_with(|settings| settings.data_timeout = Some(Seconds(2)));
    served.write("file", "content");
    let mut alice = logged_in(&served, "alice");
    let address = passive(&mut alice);
    alice.send("RETR file");
    let bob = Data::of("bob", Protection::Clear);
    // The connection may look whole to bob until he asks for data.
    if let Ok(mut channel) = bob.connect(address) {
        let received = channel.receive(&mut [0; 100], &bob.operation());
        assert!(!matches!(received, Ok(Received::Bytes(_))), "{received:?}");
    }
    let mut reply = alice.reply();
    while reply.is_preliminary() {
        reply = alice.reply();
    }
    assert!(reply.is_error(), "{reply:?}");
    alice.expect("NOOP", 200);
}

#[test]
fn dcau_s_names_who_must_come() {
    let served = served();
    served.write("file", "content");
    let mut alice = logged_in(&served, "alice");
    alice.expect("DCAU S /DC=test/CN=bob", 200);
    let bob = Data::of("bob", Protection::Clear);
    assert_eq!(get(&mut alice, &bob, "file"), b"content");
}

#[test]
fn the_server_connects_as_the_user_to_any_host() {
    let served = served();
    served.write("file", "content");
    let mut alice = logged_in(&served, "alice");
    alice.expect("DCAU N", 200);
    let listener = TcpListener::bind("127.0.0.7:0").expect("bound");
    let port = listener.local_addr().expect("bound").port();
    let line = format!("PORT 127,0,0,7,{},{}", port >> 8, port & 0xff);
    alice.expect(&line, 200);
    alice.send("RETR file");
    let (mut connection, _) = listener.accept().expect("accepted");
    alice.expect_reply(150);
    let mut content = Vec::new();
    std::io::Read::read_to_end(&mut connection, &mut content).expect("received");
    assert_eq!(content, b"content");
    alice.expect_reply(226);
}

#[test]
fn without_a_delegated_credential_the_client_hears_what_to_do() {
    let served = served();
    served.write("file", "content");
    let mut client = served.greeted();
    authenticate(
        &mut client,
        initiator(Pki::shared().credential("alice"), false),
    );
    client.expect("USER :globus-mapping:", 331);
    client.expect("PASS ", 230);
    for line in ["PASV", "PORT 127,0,0,1,4,5"] {
        let text = client.expect(line, 535);
        assert!(text.contains("no credential was delegated"), "{text}");
        assert!(text.contains("DCAU N"), "{text}");
    }
    client.expect("RETR file", 425);
    client.expect("DCAU N", 200);
    assert_eq!(client.get("RETR file"), b"content");
}

#[test]
fn dcsc_brings_a_credential_that_nobody_else_knows() {
    let served = Served::new();
    served.write("file", "content");
    let mut client = served.anonymous();
    client.expect("DCAU A", 504);
    let pem = Pki::shared().pem("self");
    client.expect(&format!("DCSC p {}", Base64::encode(&pem)), 250);
    client.expect("DCAU A", 200);
    let credential = Pki::shared().credential("self");
    let trust = TrustStore::default().with_anchors(credential.chain());
    let data = Data::new(
        credential,
        Arc::new(trust),
        "/C=XX/CN=Self",
        Protection::Clear,
    );
    assert_eq!(get(&mut client, &data, "file"), b"content");
    client.expect("DCSC D", 250);
    client.expect("PASV", 535);
    client.expect("DCAU N", 200);
    assert_eq!(client.get("RETR file"), b"content");
}

#[test]
fn a_credential_that_has_expired_is_named() {
    let served = served();
    let mut alice = logged_in(&served, "alice");
    let pem = Pki::shared().pem("expired");
    alice.expect(&format!("DCSC P {}", Base64::encode(&pem)), 250);
    let text = alice.expect("PASV", 535);
    assert!(text.contains("has expired"), "{text}");
    alice.expect("DCSC D", 250);
    alice.expect("PASV", 227);
}

#[test]
fn dcsc_takes_whole_credentials_only() {
    let served = served();
    let mut alice = logged_in(&served, "alice");
    alice.expect("DCSC P !", 501);
    alice.expect("DCSC P A", 501);
    let text = alice.expect("DCSC P QUJD", 500);
    assert!(
        text.starts_with("500-Credential import failed.\r\n"),
        "{text}"
    );
    alice.expect("DCSC Z x", 504);
    alice.expect("DCSC D", 250);
}

#[test]
fn the_client_may_say_where_gsi_is_in_the_stack() {
    let served = served();
    served.write("file", "content");
    let mut alice = logged_in(&served, "alice");
    let data = Data::of("alice", Protection::Clear);
    for stack in ["tcp", "tcp,gsi", "default"] {
        alice.expect(&format!("SITE SETNETSTACK {stack}"), 250);
        assert_eq!(get(&mut alice, &data, "file"), b"content");
    }
    let text = alice.expect("SITE SETNETSTACK gsi,tcp", 500);
    assert!(text.contains("gsi"), "{text}");
    alice.expect("SITE SETNETSTACK mydriver:opt=1,gsi", 500);
    alice.expect("SITE SETNETSTACK tcp,gsi", 250);
    alice.expect("DCAU N", 200);
    assert_eq!(alice.get("RETR file"), b"content");
}

#[test]
fn an_identity_reaches_no_service_that_only_the_server_reaches() {
    let served = served();
    served.write("file", "content");
    let mut alice = logged_in(&served, "alice");
    alice.expect("DCAU N", 200);
    for command in [
        "PORT 169,254,169,254,80,80",
        "EPRT |2|fe80::1|5000|",
        "PORT 0,0,0,0,80,80",
        "PORT 239,1,1,1,80,80",
        "RADR 169,254,169,254,80,80",
    ] {
        let text = alice.expect(command, 501);
        assert!(text.starts_with("501 Illegal PORT command: "), "{text}");
    }
    // Other hosts, and the machine that the client is on.
    for command in [
        "PORT 198,51,100,1,80,80",
        "PORT 127,0,0,2,80,80",
        "EPRT |2|::1|5000|",
    ] {
        alice.expect(command, 200);
    }
    assert_eq!(alice.get("RETR file"), b"content");
}

#[test]
fn the_place_and_the_options_of_gsi_are_the_servers_unless_the_client_says_where() {
    let served = served_with(|settings| settings.stack = Some("tcp,gsi:ktls=off".to_owned()));
    served.write("file", "content");
    let mut alice = logged_in(&served, "alice");
    let data = Data::of("alice", Protection::Clear);
    for stack in ["tcp", "tcp,gsi"] {
        alice.expect(&format!("SITE SETNETSTACK {stack}"), 250);
        assert_eq!(get(&mut alice, &data, "file"), b"content");
    }
    let text = alice.expect("SITE GETNETSTACK", 250);
    assert!(text.contains("stack=tcp,gsi:ktls=off\r\n"), "{text}");
}

#[test]
fn the_administrator_may_demand_encryption_and_authentication() {
    let served = served_with(|settings| {
        settings.encrypt_data = Some(true);
        settings.require_dcau = Some(true);
    });
    served.write("file", "content");
    let mut alice = logged_in(&served, "alice");
    alice.expect("DCAU N", 534);
    let text = alice.expect("PASV", 534);
    assert!(
        text.starts_with("534 Data connection auth error : Encryption is required."),
        "{text}"
    );
    alice.expect("PROT P", 200);
    let data = Data::of("alice", Protection::Private);
    assert_eq!(get(&mut alice, &data, "file"), b"content");
}

#[test]
fn changing_the_security_of_data_closes_the_data_port() {
    let served = served();
    served.write("file", "content");
    let mut alice = logged_in(&served, "alice");
    for line in ["DCAU N", "DCAU A", "PROT P", "PROT C", "DCSC D"] {
        alice.send("PASV");
        alice.expect_reply(227);
        alice.expect(line, if line == "DCSC D" { 250 } else { 200 });
        alice.expect("RETR file", 425);
    }
    // Saying again what holds already changes nothing.
    let address = passive(&mut alice);
    alice.expect("DCAU A", 200);
    alice.expect("PROT C", 200);
    alice.send("RETR file");
    let data = Data::of("alice", Protection::Clear);
    let channel = data.connect(address).expect("connected");
    alice.expect_reply(150);
    assert_eq!(data.receive_all(channel), b"content");
    alice.expect_reply(226);
}

#[test]
fn protection_without_authentication_is_refused() {
    let served = served();
    let mut alice = logged_in(&served, "alice");
    alice.expect("PROT P", 200);
    alice.expect("DCAU N", 200);
    alice.expect("PASV", 536);
    alice.expect("PROT C", 200);
    alice.expect("PASV", 227);
}
