//! Key updates during data transfer.

use std::io::{Read, Write};

use super::*;

/// A server that uses only rustls: another implementation of records and key updates.
struct Rustls(rustls::ServerConnection);

impl Rustls {
    /// The server, and an engine that is connected to it.
    fn established(fixture: &Fixture, versions: TlsVersions) -> (Self, TlsEngine) {
        let (user, host) = fixture.pair(versions);
        let (config, _) = config::server(&host, Records::Bulk).expect("sound settings");
        let mut server =
            Self(rustls::ServerConnection::new(config.into()).expect("sound settings"));
        let mut engine = TlsEngine::connector(&user).expect("sound settings");
        let mut answer = Vec::new();
        while engine.is_handshaking() || server.0.is_handshaking() {
            let token = output(&mut engine, &answer).expect("sound");
            server.hear(&token, 0);
            answer = server.output();
        }
        assert_eq!(output(&mut engine, &answer).expect("sound"), []);
        (server, engine)
    }

    /// Reads a message of this length.
    fn hear(&mut self, mut records: &[u8], length: usize) -> Vec<u8> {
        let mut message = vec![0; length];
        let mut heard = 0;
        while !records.is_empty() {
            self.0.read_tls(&mut records).expect("there is room");
            let state = self.0.process_new_packets().expect("sound");
            let end = heard + state.plaintext_bytes_to_read();
            let mut reader = self.0.reader();
            reader.read_exact(&mut message[heard..end]).expect("there");
            heard = end;
        }
        assert_eq!(heard, length);
        message
    }

    fn say(&mut self, message: &[u8]) -> Vec<u8> {
        self.0.set_buffer_limit(None);
        self.0.writer().write_all(message).expect("no limit");
        self.output()
    }

    fn output(&mut self) -> Vec<u8> {
        let mut output = Vec::new();
        while self.0.wants_write() {
            self.0.write_tls(&mut output).expect("a vector takes all");
        }
        output
    }
}

#[test]
fn our_key_updates_are_understood() {
    let fixture = Fixture::new();
    for versions in VERSIONS {
        let (mut server, mut engine) = Rustls::established(&fixture, versions);
        let message = message(3 << 20);
        let records = wrapped(&mut engine, &message);
        assert_eq!(server.hear(&records, message.len()), message);
    }
}

#[test]
fn key_updates_of_the_peer_are_followed_and_answered() {
    let fixture = Fixture::new();
    let (mut server, mut engine) = Rustls::established(&fixture, TlsVersions::Only13);
    for _ in 0..3 {
        server.0.refresh_traffic_keys().expect("there are keys");
        let mut records = server.output();
        records.extend(server.say(b"with new keys"));
        let (plaintext, answer) = understood(&mut engine, &records).expect("sound");
        assert_eq!(plaintext, b"with new keys");
        server.hear(&answer, 0);
        let records = wrapped(&mut engine, b"with new keys too");
        assert_eq!(server.hear(&records, 17), b"with new keys too");
    }
}

#[test]
fn key_updates_without_end_are_refused() {
    let fixture = Fixture::new();
    let (mut server, mut engine) = Rustls::established(&fixture, TlsVersions::Only13);
    let mut refused = None;
    for number in 0..100 {
        server.0.refresh_traffic_keys().expect("there are keys");
        let records = server.output();
        if let Err(error) = understood(&mut engine, &records) {
            refused = Some((number, error.to_string()));
            break;
        }
    }
    let (number, error) = refused.expect("there is a limit");
    assert!(
        number >= 16 && error.contains("without end"),
        "{number}: {error}"
    );
}
