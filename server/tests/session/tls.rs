//! `AUTH TLS`: anonymous users and passwords over TLS (RFC 4217).

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

use gridhaul_protocol::reply::Reply;
use gridhaul_server::passwords::{Grant, set_password};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::client::{Client, Protection};
use crate::pki::Pki;
use crate::served::Served;

/// A server for anonymous users and for ann, with TLS.
fn served() -> (Served, tempfile::TempDir) {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("users");
    set_password(&file, "ann", b"one", &Grant::default()).expect("made");
    let served = Served::with(|settings| {
        Pki::shared().configure(settings);
        settings.gsi = None;
        settings.trust = None;
        settings.gridmap = None;
        settings.delegation_keys = None;
        settings.passwords = Some(file);
    });
    (served, directory)
}

fn connection() -> ClientConnection {
    let mut roots = RootCertStore::empty();
    let authority = CertificateDer::from(Pki::shared().authority().der().to_vec());
    roots.add(authority).expect("an authority");
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from("localhost").expect("a name");
    ClientConnection::new(Arc::new(config), name).expect("a connection")
}

/// A client whose control channel is in TLS.
fn protected(served: &Served) -> Client {
    let mut client = served.greeted();
    client.expect("AUTH TLS", 234);
    client.protect(Protection::Tls(Box::new(connection())));
    client
}

fn logged_in(served: &Served) -> Client {
    let mut client = protected(served);
    client.expect("USER ann", 331);
    client.expect("PASS one", 230);
    client.expect("TYPE I", 200);
    client
}

fn passive(client: &mut Client) -> StreamOwned<ClientConnection, TcpStream> {
    client.send("PASV");
    let reply: Reply = client.reply();
    StreamOwned::new(connection(), client.connect_data(&reply))
}

#[test]
fn passwords_and_anonymous_users_come_over_tls() {
    let (served, _directory) = served();
    let mut ann = logged_in(&served);
    ann.expect("MKD /made", 257);
    assert!(served.path("made").is_dir());
    // RFC 4217 11 would have the server go on in clear.
    ann.expect("REIN", 502);
    ann.expect("SIZE /made", 213);
    ann.expect("QUIT", 221);
    let mut anonymous = protected(&served);
    anonymous.expect("USER anonymous", 331);
    anonymous.expect("PASS x@", 230);
}

#[test]
fn what_there_is_is_told_before_login() {
    let (served, _directory) = served();
    let mut client = served.greeted();
    let features = client.expect("FEAT", 211);
    for line in [" AUTH TLS\r\n", " PBSZ\r\n", " PROT\r\n"] {
        assert!(features.contains(line), "{line}: {features}");
    }
    assert!(!features.contains("GSSAPI"), "{features}");
    client.expect("AUTH SSL", 504);
    client.expect("AUTH GSSAPI", 504);
    client.expect("PBSZ 0", 503);
}

#[test]
fn data_is_private_when_the_client_says_so() {
    let (served, _directory) = served();
    let content = vec![9; 200_000];
    served.write("file", &content);
    let mut ann = logged_in(&served);
    ann.expect("PROT P", 503);
    assert_eq!(ann.expect("PBSZ 0", 200), "200 PBSZ=0\r\n");
    // In clear as well, if the client prefers that.
    assert_eq!(ann.get("RETR file"), content);
    ann.expect("PROT P", 200);
    ann.expect("PROT S", 536);

    let mut data = passive(&mut ann);
    ann.send("RETR file");
    let mut received = Vec::new();
    data.read_to_end(&mut received).expect("a whole stream");
    assert_eq!(received, content);
    ann.expect_reply(150);
    ann.expect_reply(226);

    let mut data = passive(&mut ann);
    ann.send("STOR stored");
    data.write_all(&content).expect("sent");
    data.conn.send_close_notify();
    data.flush().expect("sent");
    // Python's ftplib takes anything but a close_notify for a failure.
    assert_eq!(data.read(&mut [0; 1]).expect("an orderly end"), 0);
    ann.expect_reply(150);
    ann.expect_reply(226);
    assert_eq!(served.read("stored"), content);
}

#[test]
fn commands_in_clear_behind_auth_are_not_taken_for_protected_ones() {
    let (served, _directory) = served();
    let mut client = served.greeted();
    client.send_bytes(b"AUTH TLS\r\nUSER anonymous\r\n");
    client.expect_reply(503);
    client.expect_reply(331);
}

#[test]
fn what_was_said_in_clear_is_forgotten() {
    let (served, _directory) = served();
    let mut client = served.greeted();
    client.expect("USER ann", 331);
    client.expect("AUTH TLS", 234);
    client.protect(Protection::Tls(Box::new(connection())));
    client.expect("PASS one", 503);
    client.expect("AUTH TLS", 503);
    client.expect("CCC", 533);
}

#[test]
fn a_handshake_that_fails_ends_the_session_only() {
    let (served, _directory) = served();
    let mut client = served.greeted();
    client.expect("AUTH TLS", 234);
    let mut connection = client.second_handle();
    connection.write_all(b"USER ann\r\n").expect("sent");
    let mut rest = Vec::new();
    // An alert may come before the end.
    let _ = connection.read_to_end(&mut rest);
    assert!(!rest.starts_with(b"331"), "{}", rest.escape_ascii());
    logged_in(&served);
}

#[test]
fn abor_is_heard_in_the_middle_of_a_transfer() {
    let (served, _directory) = served();
    let mut ann = logged_in(&served);
    let mut data = ann.passive();
    ann.expect("STOR file", 150);
    data.write_all(b"some").expect("sent");
    ann.send("ABOR");
    ann.expect_reply(426);
    ann.expect_reply(226);
    ann.expect("NOOP", 200);
}
