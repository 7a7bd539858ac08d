//! Interoperability with the `openssl` program.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};

use super::fixtures::{Fixture, credential};
use super::*;
use crate::test_pki::{FULL, Issued, openssl};

const MESSAGE: &str = "what was said\n";

/// Ends the program also if the test fails.
struct Program(Child);

impl Program {
    fn start(command: &mut Command) -> Self {
        Self(
            command
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::null())
                .spawn()
                .expect("openssl runs"),
        )
    }

    fn say(&mut self, text: &str) {
        let input = self.0.stdin.as_mut().expect("it is a pipe");
        input.write_all(text.as_bytes()).expect("it reads");
        input.flush().expect("it reads");
    }

    /// Reads lines until one has `text` in it.
    fn wait_for(&mut self, text: &str) -> String {
        let output = BufReader::new(self.0.stdout.as_mut().expect("it is a pipe"));
        output
            .lines()
            .map(|line| line.expect("text"))
            .find(|line| line.contains(text))
            .unwrap_or_else(|| panic!("openssl never says {text:?}"))
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Performs the handshake, receives data, and echoes it.
fn repeat(engine: &mut TlsEngine, mut stream: TcpStream) {
    let mut input = vec![0; 4096];
    let mut heard = Vec::new();
    let mut length = 0;
    loop {
        let mut output = Vec::new();
        engine
            .advance(&input[..length], &mut output, &mut heard)
            .expect("openssl is understood");
        stream.write_all(&output).expect("it reads");
        if heard.ends_with(b"\n") {
            break;
        }
        length = stream.read(&mut input).expect("it answers");
        assert_ne!(length, 0, "openssl gave up");
    }
    assert_eq!(heard, MESSAGE.as_bytes());
    let mut output = Vec::new();
    engine.wrap(&heard, &mut output).expect("there are keys");
    stream.write_all(&output).expect("it reads");
}

fn present(command: &mut Command, fixture: &Fixture, proxy: &Issued, user: &Issued) {
    command
        .arg("-cert")
        .arg(&proxy.certificate_file)
        .arg("-key")
        .arg(&proxy.key_file)
        .arg("-cert_chain")
        .arg(&user.certificate_file)
        .arg("-CAfile")
        .arg(&fixture.root.certificate_file)
        .args(["-verify_return_error", "-allow_proxy_certs"]);
}

const VARIANTS: [&[&str]; 6] = [
    &["-tls1_3"],
    &["-tls1_3", "-ciphersuites", "TLS_CHACHA20_POLY1305_SHA256"],
    &["-tls1_3", "-ciphersuites", "TLS_AES_128_GCM_SHA256"],
    &["-tls1_2"],
    &["-tls1_2", "-cipher", "ECDHE-ECDSA-CHACHA20-POLY1305"],
    &["-tls1_2", "-cipher", "ECDHE-ECDSA-AES128-GCM-SHA256"],
];

#[test]
fn openssl_connects_with_any_server_name_and_a_proxy() {
    let fixture = Fixture::new();
    let user = fixture.user("Alice Smith 12345");
    let proxy = fixture.pki.proxy(&user, FULL);
    let (_, host) = fixture.pair(TlsVersions::From12To13);
    // A client whose first group is unknown here is asked for another one: two ClientHellos.
    let retry: &[&str] = &["-tls1_3", "-groups", "P-521:X25519"];
    for variant in VARIANTS.into_iter().chain([retry]) {
        for name in [
            "Alice Smith 12345",
            "Robot: x",
            "Zoë",
            "123456",
            "host.test",
        ] {
            let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
            let address = listener.local_addr().expect("bound").to_string();
            let mut command = openssl(["s_client", "-quiet", "-servername", name]);
            command.args(["-connect", &address]).args(variant);
            present(&mut command, &fixture, &proxy, &user);
            let mut client = Program::start(&mut command);
            client.say(MESSAGE);
            let (stream, _) = listener.accept().expect("a connection");
            let mut engine = TlsEngine::acceptor(&host).expect("sound settings");
            repeat(&mut engine, stream);
            client.wait_for(MESSAGE.trim_end());
            let peer = engine.peer().expect("it is known");
            assert_eq!(&peer.identity, user.certificate.subject());
        }
    }
}

#[test]
fn openssl_accepts_us_and_sends_tickets() {
    let fixture = Fixture::new();
    let user = fixture.user("Alice Smith 12345");
    let proxy = fixture.pki.proxy(&user, FULL);
    let settings = fixture.settings(&credential(&[&proxy, &user, &fixture.root]));
    for variant in VARIANTS {
        let mut command = openssl(["s_server", "-accept", "127.0.0.1:0", "-naccept", "1"]);
        command.args(["-Verify", "5"]).args(variant);
        present(&mut command, &fixture, &proxy, &user);
        let mut server = Program::start(&mut command);
        let line = server.wait_for("ACCEPT");
        let address = line.trim_start_matches("ACCEPT ").trim();
        let stream = TcpStream::connect(address).expect("it listens");
        server.say(MESSAGE);
        let mut engine = TlsEngine::connector(&settings).expect("sound settings");
        repeat(&mut engine, stream);
        server.wait_for(MESSAGE.trim_end());
        let peer = engine.peer().expect("it is known");
        assert_eq!(&peer.identity, user.certificate.subject());
    }
}
