//! Streams whose rings change while data flows.

use std::os::unix::fs::FileExt as _;
use std::sync::Weak;
use std::sync::atomic::{AtomicBool, AtomicU64};

use gridhaul_direct::test_files::{TestFile, pattern};

use super::*;

/// How many times the streams of a channel moved to another ring.
fn ring_changes(streams: &Streams) -> u64 {
    streams.opened.exchange.meter().moves()
}

/// Both ends of a path that looks longer than it is, so that the first ring is too short.
fn ends(local: IpAddr, stacks: &[Settings; 2], operation: &Operation<'_>) -> [Streams; 2] {
    let mut ends = connected(local, stacks, Flow::Out, operation);
    for streams in &mut ends {
        let round_trip = Duration::from_millis(50);
        streams.opened.exchange.expect_round_trip(round_trip);
    }
    ends
}

/// A stream goes on until the ring has changed; every byte is the one that was sent, in either ring.
fn grow(local: IpAddr, provider: &str) {
    const BLOCK: usize = 3 << 20;
    const LEAST_BLOCKS: usize = 20;
    let cancel = Cancel::new();
    let operation = Operation {
        deadline: Some(Instant::now() + Duration::from_secs(120)),
        cancel: &cancel,
    };
    let stacks = [(); 2].map(|()| settings([("provider", provider)]));
    let [mut one, mut other] = ends(local, &stacks, &operation);
    let noise: Vec<u8> = (0..BLOCK + 256)
        .map(|place| (place.wrapping_mul(place) >> 7).to_le_bytes()[0])
        .collect();
    let block = |number: usize| &noise[number % 256..][..BLOCK];
    let has_changed = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut number = 0;
            while number < LEAST_BLOCKS || !has_changed.load(Ordering::Relaxed) {
                one.send_memory(block(number), &operation).unwrap();
                one.flush(&operation).unwrap();
                number += 1;
            }
            one.finish(&operation).unwrap();
        });
        let (mut number, mut filled) = (0, 0);
        let mut buffer = vec![0; BLOCK];
        loop {
            let count = other.receive(&mut buffer[filled..], &operation).unwrap();
            if count == 0 {
                assert_eq!(filled, 0, "whole blocks were sent");
                break;
            }
            filled += count;
            if filled == BLOCK {
                assert!(buffer == block(number), "block {number}");
                (number, filled) = (number + 1, 0);
            }
            has_changed.store(ring_changes(&other) > 0, Ordering::Relaxed);
        }
    });
    assert!(ring_changes(&one) > 0, "{:?}", one.info());
}

#[test]
fn a_ring_that_is_too_short_grows_while_data_flows() {
    grow(IpAddr::V4(Ipv4Addr::LOCALHOST), "soft");
}

#[test]
#[ignore = "needs an RDMA device, and GRIDHAUL_RDMA_ADDRESS to name its address"]
fn rings_of_devices_grow_while_data_flows() {
    let local = std::env::var("GRIDHAUL_RDMA_ADDRESS").unwrap();
    grow(local.parse().unwrap(), "verbs");
}

/// The content of a file, which is sent in blocks.
const FILE_BYTES: usize = 6 << 20;
const FILE_BLOCK: usize = (3 << 20) + 5000;

/// The offsets of a block in both files. Every other block can go past the page cache at both ends.
fn offsets(number: usize) -> [usize; 2] {
    let from = number * 12_345 % (FILE_BYTES - FILE_BLOCK - 1);
    [from, from + number % 2]
}

/// Sends blocks with a head until the peer has had enough, and the first ring is free.
fn send_blocks(
    streams: &mut Streams,
    source: &TestFile,
    is_enough: impl Fn() -> bool,
    operation: &Operation<'_>,
) {
    let first = Arc::downgrade(streams.opened.outgoing.memory());
    let mut number = 0;
    while first.strong_count() > 0 || !is_enough() {
        let (mut scratch, moved) = ([0], AtomicU64::new(0));
        let [from, _] = offsets(number);
        let range = source.range(from as u64, FILE_BLOCK as u64, &mut scratch, &moved);
        streams
            .send_memory(&number.to_le_bytes(), operation)
            .unwrap();
        streams.align(&range, operation).unwrap();
        streams.send_file(&range, operation).unwrap();
        streams.flush(operation).unwrap();
        assert_eq!(moved.into_inner(), FILE_BLOCK as u64);
        number += 1;
    }
    streams.finish(operation).unwrap();
}

/// Receives them, and calls `each` after each block.
fn receive_blocks(
    streams: &mut Streams,
    sink: &TestFile,
    each: impl Fn(&Streams, &Weak<Memory>),
    operation: &Operation<'_>,
) {
    let first = Arc::downgrade(streams.incoming());
    let content = pattern(FILE_BYTES);
    for number in 0_usize.. {
        let mut head = [0; size_of::<usize>()];
        let mut filled = 0;
        while filled < head.len() {
            match streams.receive(&mut head[filled..], operation).unwrap() {
                0 if filled == 0 => return,
                count => filled += count,
            }
        }
        assert_eq!(usize::from_le_bytes(head), number);
        let (mut scratch, moved) = ([0], AtomicU64::new(0));
        let [from, to] = offsets(number);
        let range = sink.range(to as u64, FILE_BLOCK as u64, &mut scratch, &moved);
        let received = streams.receive_into(&range, operation).unwrap();
        assert_eq!(
            (received, moved.into_inner()),
            (FILE_BLOCK as u64, FILE_BLOCK as u64)
        );
        let mut written = vec![0; FILE_BLOCK];
        sink.file.read_exact_at(&mut written, to as u64).unwrap();
        assert!(written == content[from..][..FILE_BLOCK], "block {number}");
        each(streams, &first);
    }
}

/// Requests of a disk are in flight when the stream moves. Those of the earlier ring end before it is given up, and the ring that the
/// engine has registered is given up as well.
#[test]
fn rings_grow_while_files_go_past_the_page_cache() {
    let cancel = Cancel::new();
    let local = IpAddr::V4(Ipv4Addr::LOCALHOST);
    for direct in [["1", "1"], ["threads", "threads"], ["1", "0"], ["0", "1"]] {
        let operation = Operation {
            deadline: Some(Instant::now() + Duration::from_secs(120)),
            cancel: &cancel,
        };
        let stacks = direct.map(|direct| settings([("provider", "soft"), ("direct", direct)]));
        let [mut one, mut other] = ends(local, &stacks, &operation);
        let directory = tempfile::tempdir().unwrap();
        let source = TestFile::new(&directory.path().join("from"), &pattern(FILE_BYTES));
        let sink = TestFile::new(&directory.path().join("to"), &[]);
        let is_free = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                let is_enough = || is_free.load(Ordering::Relaxed);
                send_blocks(&mut one, &source, is_enough, &operation);
            });
            let each = |streams: &Streams, first: &Weak<Memory>| {
                let is_left = ring_changes(streams) > 0 && first.strong_count() == 0;
                is_free.store(is_left, Ordering::Relaxed);
            };
            receive_blocks(&mut other, &sink, each, &operation);
        });
        for (streams, direct) in [(&one, direct[0]), (&other, direct[1])] {
            assert!(ring_changes(streams) > 0, "{:?}", streams.info());
            assert_eq!(streams.files.detail().is_some(), direct != "0");
        }
    }
}
