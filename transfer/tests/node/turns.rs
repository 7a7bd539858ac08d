//! Long streams, which two movers receive in turns.

use std::fs;
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::net::TcpStream;
use std::path::Path;

use gridhaul_protocol::command::TransferMode;
use gridhaul_protocol::ranges::RangeSet;
use gridhaul_stack::ChannelError;
use gridhaul_transfer::{CancelReason, Placement, Task, TransferError};
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};

use crate::common::{Settings, Site, Started, content, image, receive};

/// Streams that are longer than this go on in turns.
const SHORT_BYTES: u64 = 16 << 20;

/// More than any machine needs before the second mover comes.
const MOST_BYTES: u64 = 1 << 30;

const CHUNK_BYTES: usize = 1 << 20;

fn site(processors: usize) -> Site {
    Site::new(Settings {
        // Pieces so small that they are always full.
        block_bytes: 4096,
        processors,
        ..Settings::default()
    })
}

/// Sends chunks until `is_enough` says so, and returns how many bytes they were.
fn send_chunks(peer: &mut TcpStream, chunk: &[u8], is_enough: impl Fn(u64) -> bool) -> u64 {
    let mut sent = 0;
    while !is_enough(sent) {
        assert!(sent < MOST_BYTES, "no second mover came");
        peer.write_all(chunk).expect("the receiver reads");
        sent += chunk.len() as u64;
    }
    sent
}

/// Begins to receive `b`, and sends until two movers do so.
fn receive_in_turns(site: &Site) -> (Started, TcpStream, u64) {
    let address = site.listen(1)[0];
    let receiver = site.start(image(receive("b"), TransferMode::Stream, 1));
    let mut peer = TcpStream::connect(address).expect("it listens");
    receiver.wait_started();
    write_where_the_file_ends(&site.path("b"));
    let chunk = content(CHUNK_BYTES);
    let sent = send_chunks(&mut peer, &chunk, |_| site.receivers() == 2);
    (receiver, peer, sent)
}

/// Has pieces land in the file in the order in which they are written: pwrite(2) appends to a file that is open for that,
/// whatever the offset.
fn write_where_the_file_ends(path: &Path) {
    let this = pidfd_open(getpid(), PidfdFlags::empty()).expect("this process");
    let open = fs::read_dir("/proc/self/fd").expect("descriptors");
    let mut open = open.map(|entry| entry.expect("a descriptor").path());
    let file = open.find(|link| fs::read_link(link).is_ok_and(|target| target == path));
    let number = file.as_ref().and_then(|link| link.file_name()?.to_str());
    let number = number.and_then(|number| number.parse().ok());
    let number = number.expect("the file is open");
    let file = pidfd_getfd(this, number, PidfdGetfdFlags::empty()).expect("the same file");
    rustix::fs::fcntl_setfl(file, OFlags::APPEND).expect("set");
}

fn expect_chunks(site: &Site, bytes: u64) {
    let (file, chunk) = (site.read("b"), content(CHUNK_BYTES));
    assert_eq!(file.len() as u64, bytes);
    let same = file
        .chunks(CHUNK_BYTES)
        .all(|piece| piece == &chunk[..piece.len()]);
    assert!(same, "a piece is in the wrong place");
}

#[test]
fn a_second_mover_comes_and_goes() {
    let site = site(2);
    let (receiver, mut peer, mut sent) = receive_in_turns(&site);
    // A peer that is slow keeps one mover busy.
    let chunk = content(CHUNK_BYTES);
    while site.receivers() == 2 {
        let next = usize::try_from(sent).expect("it fits") % CHUNK_BYTES;
        peer.write_all(&chunk[next..=next])
            .expect("the receiver reads");
        sent += 1;
    }
    drop(peer);
    let outcome = receiver.finish();
    outcome.result.expect("received");
    assert_eq!(outcome.bytes, sent);
    expect_chunks(&site, sent);
    assert_eq!(site.receivers(), 0);
}

#[test]
fn a_stream_that_ends_while_both_are_at_work_is_whole() {
    let site = site(2);
    for _ in 0..3 {
        let (receiver, peer, sent) = receive_in_turns(&site);
        drop(peer);
        receiver.finish().result.expect("received");
        expect_chunks(&site, sent);
    }
}

#[test]
fn where_no_processor_is_left_nobody_helps() {
    let site = site(1);
    let address = site.listen(1)[0];
    let receiver = site.start(image(receive("b"), TransferMode::Stream, 1));
    let mut peer = TcpStream::connect(address).expect("it listens");
    let chunk = content(CHUNK_BYTES);
    let sent = send_chunks(&mut peer, &chunk, |sent| {
        assert!(site.receivers() <= 1);
        sent >= 3 * SHORT_BYTES
    });
    drop(peer);
    receiver.finish().result.expect("received");
    expect_chunks(&site, sent);
}

#[test]
fn both_movers_end_when_the_transfer_does() {
    let site = site(2);
    let (receiver, _peer, _) = receive_in_turns(&site);
    receiver.transfer.cancel(CancelReason::Abort);
    let result = receiver.finish().result;
    let Err(TransferError::Cancelled(CancelReason::Abort)) = result else {
        panic!("{result:?}");
    };
    let (receiver, peer, _) = receive_in_turns(&site);
    // Without a linger time a close is a reset (socket(7)).
    rustix::net::sockopt::set_socket_linger(&peer, Some(std::time::Duration::ZERO)).expect("set");
    drop(peer);
    let result = receiver.finish().result;
    let Err(TransferError::Channel(ChannelError::Aborted)) = result else {
        panic!("{result:?}");
    };
    assert_eq!(site.receivers(), 0);
}

#[test]
fn nothing_is_written_behind_what_could_not_be_written() {
    let site = site(2);
    let room = 2 * SHORT_BYTES;
    let end = longest_file(&site);
    let address = site.listen(1)[0];
    let task = Task::ReceiveFile {
        path: "b".into(),
        placement: Placement::At(end - room),
        restart: RangeSet::new(),
        promised: None,
    };
    let receiver = site.start(image(task, TransferMode::Stream, 1));
    let mut peer = TcpStream::connect(address).expect("it listens");
    let chunk = content(CHUNK_BYTES);
    // The receiver goes away.
    while peer.write_all(&chunk).is_ok() {}
    let outcome = receiver.finish();
    let Err(TransferError::Channel(ChannelError::File(error))) = outcome.result else {
        panic!("{:?}", outcome.result);
    };
    assert_eq!(Errno::from_io_error(&error), Some(Errno::FBIG));
    assert_eq!(outcome.bytes, room);
    let mut file = fs::File::open(site.path("b")).expect("there");
    assert_eq!(file.metadata().expect("facts").len(), end);
    file.seek(SeekFrom::Start(end - room)).expect("a place");
    let mut tail = Vec::new();
    file.read_to_end(&mut tail).expect("read");
    assert!(tail.chunks(CHUNK_BYTES).all(|piece| piece == chunk));
}

/// How long a file can be where the site has its files.
fn longest_file(site: &Site) -> u64 {
    let file = fs::File::create(site.path("longest")).expect("made");
    let (mut fits, mut too_long) = (0, i64::MAX.unsigned_abs());
    while too_long - fits > 1 {
        let length = fits + (too_long - fits) / 2;
        match file.set_len(length) {
            Ok(()) => fits = length,
            Err(_) => too_long = length,
        }
    }
    fits
}
