//! `gsi`: which peers are accepted, and the bytes on the wire.

use std::io::Read;
use std::os::fd::AsFd;
use std::sync::atomic::AtomicU64;
use std::thread;
use std::time::{Duration, Instant};

use gridhaul_stack::{
    Body, Cancel, Channel, ChannelError, ConnectError, FileRange, Operation, Received,
    SocketOptions, Stack,
};

use super::pki::{ALICE, ALICE_NAME, BOB, BOB_NAME, OTHER_PKI, PKI, alice};
use super::{accept, content, listen, receive_all, send, stack, with_operation};
use crate::{Gsi, Protection};

pub(super) const PROTECTIONS: [Protection; 2] = [Protection::Clear, Protection::Private];

pub(super) type Ends = (
    Result<Box<dyn Channel>, ConnectError>,
    Result<Box<dyn Channel>, ChannelError>,
);

/// Connects one stack to another; the connector's end first.
pub(super) fn meet(connector: &Stack, acceptor: &Stack) -> Ends {
    let mut listener = listen(acceptor);
    let address = listener.address();
    thread::scope(|scope| {
        let connecting = scope.spawn(move || {
            with_operation(|operation| {
                connector.connect(address, &SocketOptions::default(), operation)
            })
        });
        let accepted = accept(&mut listener);
        (connecting.join().unwrap(), accepted)
    })
}

pub(super) fn tcp(driver: Gsi) -> Stack {
    stack("tcp,gsi", driver)
}

fn refusal(error: &ChannelError) -> &str {
    match error {
        ChannelError::Refused {
            driver: "gsi",
            reason,
        } => reason,
        other => panic!("not refused: {other:?}"),
    }
}

/// A channel to a peer that refused us fails, at once or at its first use, and is not an empty stream.
fn expect_no_stream(connected: Result<Box<dyn Channel>, ConnectError>) {
    if let Ok(mut channel) = connected {
        receive_all(&mut *channel).unwrap_err();
    }
}

#[test]
fn the_same_user_is_accepted_and_the_channel_carries_data() {
    for protection in PROTECTIONS {
        let stack = tcp(alice(protection));
        let (connector, acceptor) = meet(&stack, &stack);
        let (mut connector, mut acceptor) = (connector.unwrap(), acceptor.unwrap());
        // With PROT C the transform returns the transport's channel.
        let is_bare = format!("{acceptor:?}").starts_with("TcpChannel");
        assert_eq!(is_bare, protection == Protection::Clear);
        thread::scope(|scope| {
            scope.spawn(move || {
                send(&mut *connector, &content(1_000_000));
                with_operation(|operation| connector.finish(operation)).unwrap();
            });
            assert!(receive_all(&mut *acceptor).unwrap() == content(1_000_000));
        });
    }
}

#[test]
fn a_connecting_peer_with_another_identity_is_refused() {
    for protection in PROTECTIONS {
        let bob = PKI.driver(&BOB, ALICE_NAME, protection);
        let (connected, accepted) = meet(&tcp(bob), &tcp(alice(protection)));
        let error = accepted.unwrap_err();
        let words = format!(
            "The peer authenticated as {BOB_NAME}. Expected the peer to authenticate as {ALICE_NAME}"
        );
        assert_eq!(refusal(&error), words);
        expect_no_stream(connected);
    }
}

#[test]
fn a_listening_peer_with_another_identity_is_refused() {
    for protection in PROTECTIONS {
        let bob = PKI.driver(&BOB, ALICE_NAME, protection);
        let (connected, accepted) = meet(&tcp(alice(protection)), &tcp(bob));
        match connected {
            Err(ConnectError::Channel(error)) => assert!(refusal(&error).contains(BOB_NAME)),
            other => panic!("{other:?}"),
        }
        accepted.unwrap_err();
    }
}

#[test]
fn two_users_meet_when_each_expects_the_other() {
    for protection in PROTECTIONS {
        let alice = PKI.driver(&ALICE, BOB_NAME, protection);
        let bob = PKI.driver(&BOB, ALICE_NAME, protection);
        let (connector, acceptor) = meet(&tcp(alice), &tcp(bob));
        connector.unwrap();
        acceptor.unwrap();
    }
}

#[test]
fn one_host_with_two_subjects_is_one_host() {
    let old = PKI.issue("old", "/DC=test/CN=host a", &["dtn1.example.org"]);
    let new = PKI.issue("new", "/DC=test/CN=host b", &["*.example.org"]);
    let own = |credential, name| PKI.driver(credential, name, Protection::Private);
    let (connector, acceptor) = meet(
        &tcp(own(&old, "/DC=test/CN=host a")),
        &tcp(own(&new, "/DC=test/CN=host b")),
    );
    connector.unwrap();
    acceptor.unwrap();
    // If the client names another identity, exactly that one is expected.
    let asked = PKI.driver(&old, "/DC=test/CN=host c", Protection::Private);
    let (connector, _) = meet(&tcp(asked), &tcp(own(&new, "/DC=test/CN=host b")));
    connector.unwrap_err();
}

#[test]
fn a_certificate_of_an_unknown_authority_is_not_accepted() {
    let stranger = OTHER_PKI.issue("alice", ALICE_NAME, &[]);
    for protection in PROTECTIONS {
        // The peer trusts us, but we do not trust the peer.
        let mut trusting = PKI.driver(&stranger, ALICE_NAME, protection);
        for we_connect in [false, true] {
            let ours = tcp(alice(protection));
            let theirs = tcp(trusting.clone());
            let error = if we_connect {
                match meet(&ours, &theirs) {
                    (Err(ConnectError::Channel(error)), Err(told)) => {
                        // The peer received the alert of RFC 8446 6.2.
                        assert!(matches!(told, ChannelError::Protocol { .. }), "{told:?}");
                        error
                    }
                    other => panic!("{other:?}"),
                }
            } else {
                let (connected, accepted) = meet(&theirs, &ours);
                expect_no_stream(connected);
                accepted.unwrap_err()
            };
            assert!(matches!(error, ChannelError::Protocol { .. }), "{error:?}");
            assert!(error.to_string().contains(ALICE_NAME), "{error}");
        }
        trusting = OTHER_PKI.driver(&stranger, ALICE_NAME, protection);
        let (connected, accepted) = meet(&tcp(alice(protection)), &tcp(trusting));
        connected.unwrap_err();
        accepted.unwrap_err();
    }
}

/// Sends `words` to a listener of `gsi`, ends the stream, and returns the result.
fn answer_to(words: &[u8], protection: Protection) -> ChannelError {
    let mut listener = listen(&tcp(alice(protection)));
    let mut stranger = with_operation(|operation| {
        stack("tcp", Gsi::without_session()).connect(
            listener.address(),
            &SocketOptions::default(),
            operation,
        )
    })
    .unwrap();
    send(&mut *stranger, words);
    with_operation(|operation| stranger.finish(operation)).unwrap();
    accept(&mut listener).unwrap_err()
}

#[test]
fn peers_without_tls_are_refused() {
    for protection in PROTECTIONS {
        for (words, expected) in [
            (
                &b"GET / HTTP/1.0\r\n\r\n"[..],
                "does not begin a TLS handshake",
            ),
            // A block of MODE E, from a peer that has DCAU off.
            (&[0; 17], "DCAU"),
            (b"", "before the handshake was done"),
            (b"\x16\x03", "before the handshake was done"),
            (
                b"\x16\x03\x01\x00\x10short",
                "before the handshake was done",
            ),
            (b"\x16\x03\x01\xff\xff", "longer than TLS allows"),
            (b"\x16\x03\x01\x00\x04\xff\xff\xff\xff", ""),
            (b"\x15\x03\x01\x00\x02\x02\x28", ""),
        ] {
            let error = answer_to(words, protection);
            assert!(matches!(
                error,
                ChannelError::Protocol { driver: "gsi", .. }
            ));
            assert!(error.to_string().contains(expected), "{error}");
        }
    }
}

#[test]
fn a_silent_peer_is_waited_for_no_longer_than_the_deadline() {
    for protection in PROTECTIONS {
        let mut listener = listen(&tcp(alice(protection)));
        let _silent = with_operation(|operation| {
            stack("tcp", Gsi::without_session()).connect(
                listener.address(),
                &SocketOptions::default(),
                operation,
            )
        });
        let incoming = with_operation(|operation| listener.accept(operation)).unwrap();
        let outcome = incoming.establish(&Operation {
            deadline: Some(Instant::now() + Duration::from_millis(20)),
            cancel: &Cancel::new(),
        });
        assert!(matches!(outcome, Err(ChannelError::DeadlineExceeded)));
    }
}

#[test]
fn cleartext_after_the_handshake_is_not_consumed_by_it() {
    let connector = stack("memory,gsi", alice(Protection::Clear));
    // So slow that data arrives before the last message of the handshake is read.
    let acceptor = stack("memory,fault:delay=3ms,gsi", alice(Protection::Clear));
    let mut listener = listen(&acceptor);
    let address = listener.address();
    thread::scope(|scope| {
        scope.spawn(move || {
            with_operation(|operation| {
                let sockets = SocketOptions::default();
                let mut channel = connector.connect(address, &sockets, operation).unwrap();
                send(&mut *channel, b"in clear");
            });
        });
        let mut channel = accept(&mut listener).unwrap();
        assert_eq!(receive_all(&mut *channel).unwrap(), b"in clear");
    });
}

#[test]
fn a_stream_truncated_within_a_record_has_no_end() {
    let sender = stack(
        "tcp,fault:fail-send-after=100K,gsi",
        alice(Protection::Private),
    );
    let receiver = tcp(alice(Protection::Private));
    for scratch in [0, 1 << 10, 1 << 20] {
        let (connector, acceptor) = meet(&sender, &receiver);
        let (mut connector, mut acceptor) = (connector.unwrap(), acceptor.unwrap());
        let body = content(200_000);
        let cut = with_operation(|operation| connector.send(&[], Body::Memory(&body), operation));
        cut.unwrap_err();
        drop(connector);
        let moved = AtomicU64::new(0);
        let file = tempfile::tempfile().unwrap();
        let error = with_operation(|operation| match scratch {
            0 => receive_all(&mut *acceptor).map(drop),
            _ => {
                let mut scratch = vec![0; scratch];
                let range = FileRange::new(file.as_fd(), 0, 1 << 40, &mut scratch, &moved);
                acceptor.receive_into(range, operation).map(drop)
            }
        })
        .unwrap_err();
        assert_eq!(
            error.to_string(),
            "gsi: the connection ended in the middle of a TLS record"
        );
        if scratch > 0 {
            // Complete records are in the file.
            let mut written = Vec::new();
            (&file).read_to_end(&mut written).unwrap();
            assert!(written.len() > 80_000 && written == body[..written.len()]);
            assert_eq!(moved.into_inner(), written.len() as u64);
        }
        let again = with_operation(|operation| acceptor.receive(&mut [0; 9], operation));
        assert!(!matches!(again, Ok(Received::EndOfStream)), "{again:?}");
    }
}

#[test]
fn without_a_session_there_are_no_channels() {
    let (connected, accepted) = meet(&tcp(Gsi::without_session()), &tcp(Gsi::without_session()));
    for words in [
        connected.unwrap_err().to_string(),
        accepted.unwrap_err().to_string(),
    ] {
        assert!(words.contains("AUTH GSSAPI"), "{words}");
    }
}
