//! Transfers that the kernel cannot move, or that are interrupted.

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use gridhaul_protocol::stack::StackSpec;
use gridhaul_splice::{Auto, Splice};
use gridhaul_stack::{
    Body, Cancel, Channel, ChannelError, FileRange, Movement, Operation, Received, Registry,
    SocketOptions, Stack, StackListener, Tap,
};
use rustix::fs::{
    MemfdFlags, Mode, OFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create, open,
};
use rustix::net::SendFlags;

const LOCALHOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

fn stack(stack: &str) -> Stack {
    let mut registry = Registry::new();
    registry.register(Auto);
    registry.register(Splice);
    registry.build(&StackSpec::parse(stack).unwrap()).unwrap()
}

fn listen(driver: &str) -> StackListener {
    let sockets = SocketOptions::default();
    stack(driver).listen(LOCALHOST, &sockets).unwrap()
}

fn with_operation<T>(cancel: &Cancel, run: impl FnOnce(&Operation<'_>) -> T) -> T {
    run(&Operation {
        deadline: Some(Instant::now() + Duration::from_secs(60)),
        cancel,
    })
}

/// Both ends of a connection; the first one connected.
fn pair(driver: &str) -> (Box<dyn Channel>, Box<dyn Channel>) {
    let mut listener = listen(driver);
    with_operation(&Cancel::new(), |operation| {
        let sockets = SocketOptions::default();
        let one = stack(driver).connect(listener.address(), &sockets, operation);
        let other = listener.accept(operation).unwrap();
        (one.unwrap(), other.establish(operation).unwrap())
    })
}

fn pattern(length: usize) -> Vec<u8> {
    (0_u32..)
        .map(|index| index.wrapping_mul(0x9e37_79b9).to_be_bytes()[0])
        .take(length)
        .collect()
}

fn file_of(content: &[u8]) -> OwnedFd {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = memfd_create("ways", flags).unwrap();
    assert_eq!(rustix::io::pwrite(&file, content, 0), Ok(content.len()));
    file
}

fn content_of(file: &OwnedFd) -> Vec<u8> {
    let size = rustix::fs::fstat(file).unwrap().st_size;
    let mut content = vec![0; usize::try_from(size).unwrap()];
    assert_eq!(
        rustix::io::pread(file, &mut content[..], 0),
        Ok(content.len())
    );
    content
}

fn send_memory(channel: &mut dyn Channel, bytes: &[u8]) {
    with_operation(&Cancel::new(), |operation| {
        channel.send(&[], Body::Memory(bytes), operation).unwrap();
    });
}

fn send_file(
    channel: &mut dyn Channel,
    file: &OwnedFd,
    offset: u64,
    length: usize,
) -> Result<(), ChannelError> {
    let moved = AtomicU64::new(0);
    let mut scratch = vec![0; 1 << 16];
    let range = FileRange::new(file.as_fd(), offset, length as u64, &mut scratch, &moved);
    let sent = with_operation(&Cancel::new(), |operation| {
        channel.send(b"head", Body::File(range), operation)
    });
    if sent.is_ok() {
        assert_eq!(moved.into_inner(), length as u64);
    }
    sent
}

/// The result and the count of a receive.
fn receive_into(
    channel: &mut dyn Channel,
    file: &OwnedFd,
    length: usize,
    tap: Option<&dyn Tap>,
) -> (Result<u64, ChannelError>, u64) {
    let moved = AtomicU64::new(0);
    let mut scratch = vec![0; 1 << 16];
    let mut range = FileRange::new(file.as_fd(), 0, length as u64, &mut scratch, &moved);
    range.tap = tap;
    let received = with_operation(&Cancel::new(), |operation| {
        channel.receive_into(range, operation)
    });
    (received, moved.into_inner())
}

fn receive(channel: &mut dyn Channel, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    let mut done = 0;
    with_operation(&Cancel::new(), |operation| {
        while done < length {
            match channel.receive(&mut bytes[done..], operation) {
                Ok(Received::Bytes(count)) => done += count.get(),
                other => panic!("{other:?} after {done} of {length} bytes"),
            }
        }
    });
    bytes
}

fn movement(channel: &dyn Channel) -> (&'static str, String) {
    let Movement { way, reason } = channel.info().movement.unwrap();
    (way, reason.into_owned())
}

/// Transfers files over new channels: each gets its own bytes, and none of another's.
fn expect_clean_pipes() {
    for length in [1, 70_000, 300_000] {
        let (mut sender, mut receiver) = pair("splice");
        let content = pattern(length);
        thread::scope(|scope| {
            scope.spawn(|| send_memory(&mut *sender, &content));
            let file = file_of(&[]);
            let (received, _) = receive_into(&mut *receiver, &file, length, None);
            assert_eq!(received.unwrap(), length as u64);
            assert!(content_of(&file) == content, "{length}");
        });
    }
}

/// `sendfile` does not support files of procfs with generated content.
#[test]
fn files_without_sendfile_are_read() {
    let content = pattern(500_000);
    let memory = open(
        "/proc/self/mem",
        OFlags::RDONLY | OFlags::CLOEXEC,
        Mode::empty(),
    )
    .unwrap();
    for driver in ["splice", "auto"] {
        let (mut sender, mut receiver) = pair(driver);
        thread::scope(|scope| {
            let content = &content;
            scope.spawn(|| {
                let address = content.as_ptr().addr() as u64;
                send_file(&mut *sender, &memory, address, content.len()).unwrap();
                let (way, reason) = movement(&*sender);
                assert_eq!(way, "read");
                assert!(reason.starts_with("sendfile: "), "{reason}");
            });
            assert_eq!(receive(&mut *receiver, 4), b"head");
            assert!(receive(&mut *receiver, content.len()) == *content);
        });
    }
}

/// splice(2): "The target file is opened in append mode" is EINVAL, which is detected only after the first bytes are in the pipe.
#[test]
fn files_without_splice_are_written() {
    let content = pattern(500_000);
    let (mut sender, mut receiver) = pair("splice");
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("appended");
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::APPEND | OFlags::CLOEXEC;
    let file = open(&path, flags, Mode::RUSR | Mode::WUSR).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| send_memory(&mut *sender, &content));
        let (received, moved) = receive_into(&mut *receiver, &file, content.len(), None);
        assert_eq!(received.unwrap(), content.len() as u64);
        assert_eq!(moved, content.len() as u64);
    });
    assert!(content_of(&file) == content);
    let (way, reason) = movement(&*receiver);
    assert_eq!(way, "read");
    assert!(reason.contains("Invalid argument"), "{reason}");
    expect_clean_pipes();
}

/// A file that cannot grow simulates a full disk.
#[test]
fn a_full_disk_is_an_error_of_the_file_and_written_bytes_are_counted() {
    const ROOM: u64 = 100_000;
    let content = pattern(300_000);
    for driver in ["splice", "auto"] {
        let (mut sender, mut receiver) = pair(driver);
        let file = file_of(&[]);
        ftruncate(&file, ROOM).unwrap();
        fcntl_add_seals(&file, SealFlags::GROW).unwrap();
        thread::scope(|scope| {
            scope.spawn(|| send_memory(&mut *sender, &content));
            let (received, moved) = receive_into(&mut *receiver, &file, content.len(), None);
            assert!(
                matches!(received, Err(ChannelError::File(_))),
                "{received:?}"
            );
            assert!(moved <= ROOM);
            let written = usize::try_from(moved).unwrap();
            assert!(content_of(&file)[..written] == content[..written]);
            // The sender may be waiting for space.
            receiver.abort();
        });
        expect_clean_pipes();
    }
}

#[test]
fn a_cancelled_receive_keeps_counted_bytes_and_an_empty_pipe() {
    let content = pattern(1 << 20);
    let (mut sender, mut receiver) = pair("splice");
    let file = file_of(&[]);
    let moved = AtomicU64::new(0);
    let cancel = Cancel::new();
    let received = thread::scope(|scope| {
        let receiving = scope.spawn(|| {
            let mut scratch = vec![0; 1 << 16];
            let range = FileRange::new(file.as_fd(), 0, 1 << 40, &mut scratch, &moved);
            with_operation(&cancel, |operation| receiver.receive_into(range, operation))
        });
        send_memory(&mut *sender, &content);
        cancel.cancel();
        receiving.join().unwrap()
    });
    assert!(
        matches!(received, Err(ChannelError::Cancelled)),
        "{received:?}"
    );
    let there = content_of(&file);
    assert_eq!(there.len() as u64, moved.into_inner());
    assert!(there[..] == content[..there.len()]);
    expect_clean_pipes();
}

#[test]
fn a_closed_peer_is_noticed_in_sendfile() {
    let (mut sender, receiver) = pair("splice");
    drop(receiver);
    let file = file_of(&[]);
    ftruncate(&file, 1 << 30).unwrap();
    let sent = send_file(&mut *sender, &file, 0, 1 << 30);
    assert!(
        matches!(sent, Err(ChannelError::PeerClosed | ChannelError::Aborted)),
        "{sent:?}"
    );
}

/// `splice` returns 0 before urgent data, as at the end of a stream.
#[test]
fn urgent_data_is_not_the_end_of_the_stream() {
    let mut listener = listen("splice");
    let mut peer = TcpStream::connect(listener.address()).unwrap();
    let mut receiver = with_operation(&Cancel::new(), |operation| {
        let incoming = listener.accept(operation).unwrap();
        incoming.establish(operation).unwrap()
    });
    let content = pattern(200_000);
    let file = file_of(&[]);
    thread::scope(|scope| {
        scope.spawn(|| {
            peer.write_all(&content[..100_000]).unwrap();
            assert_eq!(rustix::net::send(&peer, b"!", SendFlags::OOB), Ok(1));
            peer.write_all(&content[100_000..]).unwrap();
            drop(peer);
        });
        let (received, _) = receive_into(&mut *receiver, &file, 1 << 20, None);
        assert_eq!(received.unwrap(), content.len() as u64);
    });
    assert!(content_of(&file) == content);
}

#[derive(Debug, Default)]
struct Seen(AtomicUsize);

impl Tap for Seen {
    fn written(&self, _: u64, bytes: &[u8]) {
        self.0.fetch_add(bytes.len(), Ordering::Relaxed);
    }
}

#[test]
fn a_tap_sees_every_byte() {
    let content = pattern(300_000);
    for driver in ["splice", "auto"] {
        let (mut sender, mut receiver) = pair(driver);
        let seen = Seen::default();
        let file = file_of(&[]);
        thread::scope(|scope| {
            scope.spawn(|| send_memory(&mut *sender, &content));
            let (received, _) = receive_into(&mut *receiver, &file, content.len(), Some(&seen));
            assert_eq!(received.unwrap(), content.len() as u64);
        });
        assert_eq!(seen.0.into_inner(), content.len());
        assert_eq!(movement(&*receiver).0, "read");
    }
}

#[test]
fn a_long_transfer_is_measured_and_reported() {
    const LENGTH: usize = 48 << 20;
    let content = pattern(1 << 20).repeat(LENGTH >> 20);
    let source = file_of(&content);
    let target = file_of(&[]);
    let (mut sender, mut receiver) = pair("auto");
    thread::scope(|scope| {
        scope.spawn(|| send_file(&mut *sender, &source, 0, LENGTH).unwrap());
        assert_eq!(receive(&mut *receiver, 4), b"head");
        let (received, moved) = receive_into(&mut *receiver, &target, LENGTH, None);
        assert_eq!(received.unwrap(), LENGTH as u64);
        assert_eq!(moved, LENGTH as u64);
    });
    assert!(content_of(&target) == content);
    // The measurement for peers on this machine takes more bytes than the file has.
    for (channel, call, told) in [
        (&sender, "sendfile", "sendfile and read are being measured"),
        (&receiver, "splice", "CPU seconds per GB: splice "),
    ] {
        let (way, reason) = movement(&**channel);
        assert!(way == call || way == "read", "{way}");
        assert!(reason.starts_with(told), "{reason}");
    }
}

#[test]
fn short_ranges_go_through_memory() {
    let file = file_of(b"short");
    let (mut sender, mut receiver) = pair("auto");
    send_file(&mut *sender, &file, 0, 5).unwrap();
    assert_eq!(receive(&mut *receiver, 9), b"headshort");
    assert_eq!(movement(&*sender), ("read", "it is short".to_owned()));
}
