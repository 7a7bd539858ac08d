//! Kernel TLS.
//!
//! Most of these tests are ignored by default, because they need a kernel with TLS. `make test-rdma` runs them in a guest, and
//! `--ignored` on this kernel.

use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::atomic::AtomicU64;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use gridhaul_security::tls::TlsVersions;
use gridhaul_stack::conformance::Subject;
use gridhaul_stack::{
    Body, Channel, Driver, FileRange, Received, SocketOptions, Stack, conformance_tests,
};

use super::pki::{alice, alice_with};
use super::{accept, content, listen, receive_all, send, stack, with_operation};
use crate::Protection;
use crate::kernel::kernel_support;

conformance_tests!(
    #[ignore = "needs a kernel with TLS"]
    tls12,
    subject("tcp,gsi:ktls=on", TlsVersions::Only12)
);
conformance_tests!(
    #[ignore = "needs a kernel with TLS"]
    tls13,
    subject("tcp,gsi:ktls=on", TlsVersions::Only13)
);
conformance_tests!(
    #[ignore = "needs a kernel with TLS"]
    tls13_from_files_to_files,
    subject("splice,gsi:ktls=on", TlsVersions::Only13)
);

fn subject(spec: &str, versions: TlsVersions) -> Subject {
    Subject::new(stack(spec, alice_with(versions)))
}

const VERSIONS: [TlsVersions; 2] = [TlsVersions::Only12, TlsVersions::Only13];

const STACKS: [&str; 3] = [
    "tcp,gsi:ktls=on",
    "splice:direct=1,gsi:ktls=on",
    "tcp,gsi:ktls=off",
];

/// The end that connects, and the one that accepts.
fn meet(connector: &Stack, acceptor: &Stack) -> (Box<dyn Channel>, Box<dyn Channel>) {
    let mut listener = listen(acceptor);
    let address = listener.address();
    thread::scope(|scope| {
        let connecting = scope.spawn(move || {
            let sockets = SocketOptions::default();
            with_operation(|operation| connector.connect(address, &sockets, operation)).unwrap()
        });
        let accepted = accept(&mut listener).unwrap();
        (connecting.join().unwrap(), accepted)
    })
}

/// The reported protection of a channel's records.
fn words(channel: &dyn Channel) -> String {
    let details = channel.info().details;
    let detail = details.iter().find(|detail| detail.name == "tls-records");
    detail.expect("reported").to_string()
}

#[test]
fn unsupported_keys_are_an_error_only_if_the_stack_requires_the_kernel() {
    let support = kernel_support();
    let on = [("ktls".to_owned(), "on".to_owned())];
    let built = alice(Protection::Private).build(&on);
    assert_eq!(built.is_ok(), support.changes_keys.is_some());
    if let Err(error) = built {
        let reason = support.words.split(';').next().expect("some words");
        assert!(error.to_string().contains(reason), "{error}");
    }
    for spec in ["tcp,gsi:ktls=off", "memory:buffer=1M,gsi"] {
        let stack = stack(spec, alice(Protection::Private));
        let (connector, acceptor) = meet(&stack, &stack);
        assert_eq!(words(&*connector), "tls-records=here");
        assert_eq!(words(&*acceptor), "tls-records=here");
    }
}

#[test]
#[ignore = "needs a kernel with TLS"]
fn the_kernel_and_we_understand_each_other() {
    let file = tempfile::tempfile().unwrap();
    let body = content(1_000_000);
    rustix::io::pwrite(&file, &body, 0).unwrap();
    for version in VERSIONS {
        for sender in STACKS {
            for receiver in STACKS {
                let sender = stack(sender, alice_with(version));
                let receiver = stack(receiver, alice_with(version));
                let (mut sender, mut receiver) = meet(&sender, &receiver);
                let received = thread::scope(|scope| {
                    scope.spawn(|| {
                        let moved = AtomicU64::new(0);
                        let mut scratch = vec![0; 100_000];
                        for length in [0, 1, 16_383, 16_384, 16_385, 300_000, 1_000_000] {
                            let scratch = &mut scratch;
                            let range = FileRange {
                                direct: Some(file.as_fd()),
                                ..FileRange::new(file.as_fd(), 0, length, scratch, &moved)
                            };
                            let body = Body::File(range);
                            with_operation(|operation| sender.send(b"head", body, operation))
                                .unwrap();
                        }
                        send(&mut *sender, &body);
                        with_operation(|operation| sender.finish(operation)).unwrap();
                    });
                    receive_all(&mut *receiver).unwrap()
                });
                let mut expected = Vec::new();
                for length in [0, 1, 16_383, 16_384, 16_385, 300_000, 1_000_000] {
                    expected.extend_from_slice(b"head");
                    expected.extend_from_slice(&body[..length]);
                }
                expected.extend_from_slice(&body);
                assert!(received == expected, "{sender:?} {receiver:?}");
            }
        }
    }
}

#[test]
#[ignore = "needs a kernel with TLS"]
fn no_byte_is_lost_when_a_channel_is_closed_while_the_peer_is_slow() {
    for version in VERSIONS {
        let sender = stack("tcp:sndbuf=20K,gsi:ktls=on", alice_with(version));
        let receiver = stack("tcp:rcvbuf=20K,gsi:ktls=off", alice_with(version));
        // For one of these sizes the kernel accepts all bytes, but has no space for the last record.
        for length in (20_000..220_000).step_by(8_000) {
            let (mut sender, mut receiver) = meet(&sender, &receiver);
            assert_eq!(words(&*sender), "tls-records=by the kernel");
            assert_eq!(words(&*receiver), "tls-records=here");
            let body = content(length);
            let (ended, has_ended) = mpsc::channel();
            thread::scope(|scope| {
                scope.spawn(|| {
                    send(&mut *sender, &body);
                    drop(sender);
                    let _ = ended.send(());
                });
                // For the others the sender waits for us.
                let _ = has_ended.recv_timeout(Duration::from_millis(50));
                let received = receive_all(&mut *receiver).unwrap();
                assert_eq!(received.len(), length);
                assert!(received == body);
            });
        }
    }
}

#[test]
#[ignore = "needs a kernel with TLS"]
fn small_buffers_get_everything_in_order() {
    let sender = stack("tcp,gsi:ktls=off", alice(Protection::Private));
    let receiver = stack("tcp,gsi:ktls=on", alice(Protection::Private));
    let (mut sender, mut receiver) = meet(&sender, &receiver);
    let body = content(100_000);
    thread::scope(|scope| {
        scope.spawn(|| {
            send(&mut *sender, &body);
            drop(sender);
        });
        let mut received = Vec::new();
        for length in [1, 7, 20_000, 5, 1].into_iter().cycle() {
            let mut buffer = vec![0; length];
            match with_operation(|operation| receiver.receive(&mut buffer, operation)).unwrap() {
                Received::Bytes(count) => received.extend_from_slice(&buffer[..count.get()]),
                Received::EndOfStream => break,
            }
        }
        assert!(received == body);
    });
}

/// Forwards bytes between two ends; `tamper` may change or shorten those of the connecting end.
fn between(
    tamper: impl FnOnce(TcpStream, TcpStream) + Send,
    run: impl FnOnce(Box<dyn Channel>, Box<dyn Channel>) + Send,
) {
    let sender = stack("tcp,gsi:ktls=off", alice_with(TlsVersions::Only13));
    let receiver = stack("tcp,gsi:ktls=on", alice_with(TlsVersions::Only13));
    let mut listener = listen(&receiver);
    let target = listener.address();
    let middle = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = middle.local_addr().unwrap();
    thread::scope(|scope| {
        scope.spawn(move || {
            let (near, _) = middle.accept().unwrap();
            let far = TcpStream::connect(target).unwrap();
            let (mut from, mut to) = (far.try_clone().unwrap(), near.try_clone().unwrap());
            let back = thread::spawn(move || std::io::copy(&mut from, &mut to));
            tamper(near, far);
            let _ = back.join();
        });
        let connecting = scope.spawn(move || {
            let sockets = SocketOptions::default();
            with_operation(|operation| sender.connect(address, &sockets, operation)).unwrap()
        });
        let accepted = accept(&mut listener).unwrap();
        run(connecting.join().unwrap(), accepted);
    });
}

/// Forwards records until one is longer than those of a handshake.
fn hand_on(near: &mut TcpStream, far: &mut TcpStream) -> Vec<u8> {
    use std::io::{Read, Write};
    loop {
        let mut record = vec![0; 5];
        near.read_exact(&mut record).unwrap();
        let length = u16::from_be_bytes([record[3], record[4]]);
        record.resize(5 + usize::from(length), 0);
        near.read_exact(&mut record[5..]).unwrap();
        if record[0] == 23 && length > 10_000 {
            return record;
        }
        far.write_all(&record).unwrap();
    }
}

#[test]
#[ignore = "needs a kernel with TLS"]
fn a_changed_or_truncated_record_is_neither_data_nor_the_end() {
    use std::io::Write;
    for (is_cut, expected) in [
        (true, "the connection ended in the middle of a TLS record"),
        (
            false,
            "a record was changed, lost, repeated or cut on its way",
        ),
    ] {
        between(
            |mut near, mut far| {
                let mut record = hand_on(&mut near, &mut far);
                if is_cut {
                    record.truncate(9_000);
                } else {
                    record[9_000] ^= 1;
                }
                far.write_all(&record).unwrap();
                if is_cut {
                    far.shutdown(std::net::Shutdown::Write).unwrap();
                }
            },
            |mut sender, mut receiver| {
                send(&mut *sender, &content(16_000));
                let error = receive_all(&mut *receiver).unwrap_err();
                assert_eq!(error.to_string(), format!("gsi: {expected}"));
                drop(receiver);
                if !is_cut {
                    // The alert of RFC 8446 6.2.
                    let error = receive_all(&mut *sender).unwrap_err();
                    assert!(error.to_string().contains("BadRecordMac"), "{error}");
                }
            },
        );
    }
}
