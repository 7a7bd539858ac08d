use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::AsFd;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

use super::*;
use crate::{Cancel, Memory, Stack};

/// A channel with faults, and its other end, which has none.
fn pair(options: &[(&str, &str)]) -> (Box<dyn Channel>, Box<dyn Channel>) {
    let options: Vec<_> = options
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect();
    let Ok(Built::Transport(memory)) = Memory.build(&[]) else {
        panic!("memory is a transport");
    };
    let Ok(Built::Transform(faults)) = Fault.build(&options) else {
        panic!("fault is a transform");
    };
    let cancel = Cancel::new();
    let operation = Operation {
        deadline: None,
        cancel: &cancel,
    };
    let stack = Stack::new(memory, Vec::new());
    let local = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let mut listener = stack.listen(local, &Default::default()).unwrap();
    let plain = stack
        .connect(listener.address(), &Default::default(), &operation)
        .unwrap();
    let incoming = listener.accept(&operation).unwrap();
    let other = incoming.establish(&operation).unwrap();
    let faulty = faults.wrap(plain, Side::Connector, &operation).unwrap();
    (faulty, other)
}

fn with_operation<T>(run: impl FnOnce(&Operation<'_>) -> T) -> T {
    run(&Operation {
        deadline: Some(Instant::now() + Duration::from_secs(60)),
        cancel: &Cancel::new(),
    })
}

fn send(channel: &mut dyn Channel, head: &[u8], body: &[u8]) -> Result<(), ChannelError> {
    with_operation(|operation| channel.send(head, Body::Memory(body), operation))
}

fn receive(channel: &mut dyn Channel, length: usize) -> Result<Vec<u8>, ChannelError> {
    let mut buffer = vec![0; length];
    match with_operation(|operation| channel.receive(&mut buffer, operation))? {
        Received::Bytes(count) => buffer.truncate(count.get()),
        Received::EndOfStream => buffer.clear(),
    }
    Ok(buffer)
}

#[test]
fn sending_fails_after_exactly_the_given_bytes() {
    let (mut faulty, mut other) = pair(&[("fail-send-after", "10")]);
    send(&mut *faulty, b"head", b"1234").unwrap();
    let error = send(&mut *faulty, b"5", b"6789").unwrap_err();
    assert_eq!(
        error.to_string(),
        "sending fails after 10 bytes, as the driver fault was told"
    );
    assert_eq!(receive(&mut *other, 100).unwrap(), b"head123456");
    send(&mut *other, b"", b"back").unwrap();
    assert_eq!(receive(&mut *faulty, 100).unwrap(), b"back");
}

#[test]
fn sending_may_fail_within_a_file() {
    let (mut faulty, mut other) = pair(&[("fail-send-after", "6")]);
    let file = tempfile::tempfile().unwrap();
    rustix::io::pwrite(&file, b"0123456789", 0).unwrap();
    let moved = AtomicU64::new(0);
    let mut scratch = [0; 4];
    let body = Body::File(FileRange::new(file.as_fd(), 1, 9, &mut scratch, &moved));
    let outcome = with_operation(|operation| faulty.send(b"head", body, operation));
    assert!(matches!(outcome, Err(ChannelError::Network(_))));
    assert_eq!(moved.into_inner(), 2);
    assert_eq!(receive(&mut *other, 100).unwrap(), b"head12");
}

#[test]
fn receiving_fails_after_exactly_the_given_bytes() {
    let (mut faulty, mut other) = pair(&[("fail-receive-after", "3")]);
    send(&mut *other, b"", b"12345").unwrap();
    assert_eq!(receive(&mut *faulty, 100).unwrap(), b"123");
    let error = receive(&mut *faulty, 100).unwrap_err();
    assert!(matches!(error, ChannelError::Network(_)), "{error:?}");
    send(&mut *faulty, b"", b"still here").unwrap();
}

#[test]
fn both_ends_see_an_abort() {
    let (mut faulty, mut other) = pair(&[("abort-after", "8")]);
    send(&mut *faulty, b"", b"1234").unwrap();
    send(&mut *other, b"", b"5678").unwrap();
    assert_eq!(receive(&mut *other, 4).unwrap(), b"1234");
    assert_eq!(receive(&mut *faulty, 4).unwrap(), b"5678");
    for outcome in [receive(&mut *faulty, 1), receive(&mut *other, 1)] {
        assert!(matches!(outcome, Err(ChannelError::Aborted)), "{outcome:?}");
    }
}

#[test]
fn a_seed_gives_the_same_lengths_again() {
    let lengths = |seed| {
        let (mut faulty, mut other) = pair(&[("short", "50"), ("seed", seed)]);
        send(&mut *other, b"", &[0; 10_000]).unwrap();
        let receive = |_| receive(&mut *faulty, 1000).unwrap().len();
        (0..100).map(receive).collect::<Vec<_>>()
    };
    assert_eq!(lengths("1"), lengths("1"));
    assert_ne!(lengths("1"), lengths("2"));
    assert!(lengths("1").iter().all(|length| (1..=50).contains(length)));
}

#[test]
fn without_a_seed_short_is_exact() {
    let (mut faulty, mut other) = pair(&[("short", "3")]);
    send(&mut *other, b"", b"12345678").unwrap();
    for piece in ["123", "456", "78"] {
        assert_eq!(receive(&mut *faulty, 100).unwrap(), piece.as_bytes());
    }
}

#[test]
fn a_delay_goes_before_each_call() {
    let (mut faulty, mut other) = pair(&[("delay", "5ms")]);
    send(&mut *other, b"", b"1").unwrap();
    let start = Instant::now();
    send(&mut *faulty, b"", b"1").unwrap();
    receive(&mut *faulty, 1).unwrap();
    assert!(start.elapsed() >= Duration::from_millis(10));
}
