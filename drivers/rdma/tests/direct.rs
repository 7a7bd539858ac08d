//! Files that are moved past the page cache, with requests in flight, on the file system of temporary files and on tmpfs.

use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use gridhaul_direct::test_files::{
    TestFile, expect_head, pattern, places, send_memory, with_operation,
};
use gridhaul_protocol::stack::StackSpec;
use gridhaul_rdma::Rdma;
use gridhaul_stack::{Cancel, Channel, ChannelError, Received, Registry, SocketOptions, Stack};
use proptest::prelude::*;
use rustix::io::Errno;
use tempfile::TempDir;

/// The options of the sender and of the receiver. Rings are short, so that ranges go around them.
const STACKS: [[&str; 2]; 8] = [
    ["slab=256K;direct=1", "direct=1"],
    ["slab=256K", "direct=auto"],
    ["slab=256K;direct=0", "direct=0"],
    ["slab=256K;direct=threads", "direct=threads"],
    ["slab=100001;message=30000;direct=1", "direct=threads"],
    ["slab=256K;qps=3;inline=0", "direct=1"],
    ["slab=256K;direct=1", "qps=1"],
    ["slab=256K;mode=get;direct=1", "direct=1"],
];

fn stack(options: &str) -> Stack {
    let mut registry = Registry::new();
    registry.register(Rdma);
    let stack = format!("rdma:provider=soft;{options}");
    registry.build(&StackSpec::parse(&stack).unwrap()).unwrap()
}

/// The connecting end, which sends, and the accepting end.
fn pair([theirs, ours]: [&str; 2]) -> (Box<dyn Channel>, Box<dyn Channel>) {
    let [theirs, ours] = [theirs, ours].map(stack);
    let sockets = SocketOptions::default();
    let localhost = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let mut listener = ours.listen(localhost, &sockets).unwrap();
    let address = listener.address();
    thread::scope(|scope| {
        let connecting = scope.spawn(|| {
            with_operation(&Cancel::new(), |operation| {
                theirs.connect(address, &sockets, operation).unwrap()
            })
        });
        let accepted = with_operation(&Cancel::new(), |operation| {
            let incoming = listener.accept(operation).unwrap();
            incoming.establish(operation).unwrap()
        });
        (connecting.join().unwrap(), accepted)
    })
}

/// Directories on a disk and on tmpfs.
fn directories() -> impl Iterator<Item = TempDir> {
    let places = places().into_iter();
    places.map(|place| tempfile::tempdir_in(place).unwrap())
}

fn detail(channel: &dyn Channel) -> String {
    let details = channel.info().details;
    let files = details.iter().find(|detail| detail.name == "files");
    files.map(ToString::to_string).unwrap_or_default()
}

/// Lengths and offsets within a block, of whole blocks, and of many.
fn bytes() -> impl Strategy<Value = usize> {
    prop_oneof![
        0..10_000_usize,
        (0..500_usize).prop_map(|blocks| blocks * 4096),
        0..2_500_000_usize,
    ]
}

fn config() -> ProptestConfig {
    ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(12)
    }
}

#[test]
fn ranges_arrive_unchanged_at_any_offset() {
    for stacks in STACKS {
        for directory in directories() {
            let [from, to] = ["from", "to"].map(|name| directory.path().join(name));
            proptest!(config(), |(
                before in bytes(),
                length in 1..2_500_000_usize,
                size in bytes(),
                other_offset in bytes(),
                is_same: bool,
            )| {
                let (mut sender, mut receiver) = pair(stacks);
                let content = pattern(before + length + 1);
                let source = TestFile::new(&from, &content);
                let mut expected = vec![0xee; size];
                let sink = TestFile::new(&to, &expected);
                let offset = if is_same { before } else { other_offset };
                // Two blocks, as a sender cuts them.
                let parts = [(0, length / 3), (length / 3, length - length / 3)];
                let parts = parts.into_iter().filter(|(_, length)| *length > 0);
                thread::scope(|scope| {
                    let to_send = parts.clone();
                    let (sender, source) = (&mut sender, &source);
                    scope.spawn(move || {
                        for (at, length) in to_send {
                            let (sent, moved) = source.send(&mut **sender, before + at, length);
                            sent.unwrap();
                            assert_eq!(moved, length as u64);
                        }
                        with_operation(&Cancel::new(), |operation| sender.finish(operation)).unwrap();
                    });
                    for (at, length) in parts {
                        expect_head(&mut *receiver);
                        let (received, moved) = sink.receive(&mut *receiver, offset + at, length);
                        assert_eq!((received.unwrap(), moved), (length as u64, length as u64));
                    }
                    let end = with_operation(&Cancel::new(), |operation| receiver.receive(&mut [0; 1], operation));
                    assert_eq!(end.unwrap(), Received::EndOfStream);
                });
                expected.resize(size.max(offset + length), 0);
                expected[offset..offset + length].copy_from_slice(&content[before..before + length]);
                prop_assert!(sink.content() == expected);
            });
        }
    }
}

#[test]
fn the_way_of_a_file_is_reported() {
    let directory = tempfile::tempdir().unwrap();
    let content = pattern(1 << 20);
    let mut source = TestFile::new(&directory.path().join("from"), &content);
    let sink = TestFile::new(&directory.path().join("to"), &[]);
    if source.direct.is_none() {
        return;
    }
    let copy = |stacks, source: &TestFile| {
        let (mut sender, mut receiver) = pair(stacks);
        thread::scope(|scope| {
            scope.spawn(|| source.send(&mut *sender, 0, content.len()).0.unwrap());
            expect_head(&mut *receiver);
            sink.receive(&mut *receiver, 0, content.len()).0.unwrap();
        });
        [detail(&*sender), detail(&*receiver)]
    };
    let by_threads = ["slab=256K;direct=threads", "direct=threads"];
    let both = copy(by_threads, &source);
    assert_eq!(both, ["files=direct (threads)"; 2].map(str::to_owned));
    for way in copy(["slab=256K;direct=1", "direct=1"], &source) {
        assert!(way.starts_with("files=direct ("), "{way}");
    }
    let never = ["slab=256K;direct=0", "qps=1;direct=0"];
    assert_eq!(copy(never, &source), ["", ""]);
    // Bytes that are not a file's begin anywhere in the ring.
    let (mut sender, mut receiver) = pair(by_threads);
    thread::scope(|scope| {
        scope.spawn(|| send_memory(&mut *sender, &content));
        sink.receive(&mut *receiver, 17, content.len()).0.unwrap();
    });
    let way = detail(&*receiver);
    assert_eq!(
        way,
        "files=page cache: its place in the ring does not suit the disk"
    );
    source.direct = None;
    let [cached, direct] = copy(by_threads, &source);
    let reason = "files=page cache: the file could not be opened past the page cache";
    assert_eq!((&*cached, &*direct), (reason, "files=direct (threads)"));
}

/// Once as many bytes are moved as the ring is long, both ends register theirs.
#[test]
fn rings_are_registered_with_io_uring() {
    const RING_BYTES: usize = 1 << 20;
    let directory = tempfile::tempdir().unwrap();
    let content = pattern(2 * RING_BYTES);
    let source = TestFile::new(&directory.path().join("from"), &content);
    let sink = TestFile::new(&directory.path().join("to"), &[]);
    if source.direct.is_none() {
        return;
    }
    let (mut sender, mut receiver) = pair(["slab=64K;slabs=16;direct=1", "direct=1"]);
    thread::scope(|scope| {
        scope.spawn(|| source.send(&mut *sender, 0, content.len()).0.unwrap());
        expect_head(&mut *receiver);
        sink.receive(&mut *receiver, 0, content.len()).0.unwrap();
    });
    assert!(sink.content() == content);
    for way in [detail(&*sender), detail(&*receiver)] {
        match &*way {
            "files=direct (io_uring, registered memory)" => {}
            // A limit on locked memory may forbid it (RLIMIT_MEMLOCK).
            "files=direct (io_uring, memory not registered)" => eprintln!("refused: {way}"),
            without => assert!(
                without.starts_with("files=direct (threads): io_uring: "),
                "{way}"
            ),
        }
    }
}

/// A long transfer tries both ways at each end, and then keeps one.
#[test]
fn a_long_transfer_measures_which_way_costs_less() {
    // Ranges are shorter where a call has waited, so a trial may need more of them.
    const LENGTH: usize = 256 << 20;
    let directory = tempfile::tempdir().unwrap();
    let source = TestFile::new(&directory.path().join("from"), &[]);
    let sink = TestFile::new(&directory.path().join("to"), &[]);
    if source.direct.is_none() {
        return;
    }
    // Without holes, which need no disk.
    let mut part = pattern(1 << 20);
    for at in (0..LENGTH).step_by(1 << 20) {
        part[..size_of::<usize>()].copy_from_slice(&at.to_ne_bytes());
        source.file.write_all_at(&part, at as u64).unwrap();
    }
    // A file that the page cache has is not measured.
    let is_cold = source.cool();
    let (mut sender, mut receiver) = pair(["slab=1M", "direct=auto"]);
    thread::scope(|scope| {
        scope.spawn(|| source.send(&mut *sender, 0, LENGTH).0.unwrap());
        expect_head(&mut *receiver);
        let (received, moved) = sink.receive(&mut *receiver, 0, LENGTH);
        assert_eq!((received.unwrap(), moved), (LENGTH as u64, LENGTH as u64));
    });
    assert!(sink.content() == source.content());
    for (channel, is_cold) in [(&*sender, is_cold), (&*receiver, true)] {
        let way = detail(channel);
        if !is_cold || way == "files=page cache: the file system is in memory" {
            eprintln!("not measured: {way}");
            continue;
        }
        let reason = channel.info().movement.unwrap().reason;
        let measured = "; files: CPU seconds per GB: O_DIRECT ";
        assert!(reason.contains(measured), "{way}: {reason}");
        let ways = [
            "files=direct (",
            // The last range of the trial.
            "files=page cache: not measured yet",
            "files=page cache: as measured",
        ];
        assert!(ways.iter().any(|one| way.starts_with(one)), "{way}");
    }
}

/// By default files go past the page cache only if that was measured, and those in memory never.
#[test]
fn short_transfers_and_files_in_memory_use_the_page_cache() {
    let content = pattern(1 << 20);
    for directory in directories() {
        let source = TestFile::new(&directory.path().join("from"), &content);
        let sink = TestFile::new(&directory.path().join("to"), &[]);
        let (mut sender, mut receiver) = pair(["slab=256K", "qps=1"]);
        thread::scope(|scope| {
            scope.spawn(|| source.send(&mut *sender, 0, content.len()).0.unwrap());
            expect_head(&mut *receiver);
            sink.receive(&mut *receiver, 0, content.len()).0.unwrap();
        });
        assert!(sink.content() == content);
        for way in [detail(&*sender), detail(&*receiver)] {
            assert!(way.starts_with("files=page cache: "), "{way}");
        }
        if directory.path().starts_with("/dev/shm") && source.direct.is_some() {
            assert_eq!(
                detail(&*receiver),
                "files=page cache: the file system is in memory"
            );
        }
    }
}

/// Channels of a transfer write to one file, in blocks that may start and end within a page.
#[test]
fn channels_share_a_file_and_its_pages() {
    const BLOCK_BYTES: usize = 150_001;
    const BLOCKS: usize = 40;
    const CHANNELS: usize = 4;
    let content = pattern(BLOCK_BYTES * BLOCKS - 123);
    for directory in directories() {
        let source = TestFile::new(&directory.path().join("from"), &content);
        let sink = TestFile::new(&directory.path().join("to"), &[]);
        thread::scope(|scope| {
            for channel in 0..CHANNELS {
                let (mut sender, mut receiver) = pair(["slab=256K;direct=1", "direct=1"]);
                let starts = (0..content.len()).step_by(BLOCK_BYTES);
                let starts = starts.skip(channel).step_by(CHANNELS);
                let blocks = starts.map(|start| (start, BLOCK_BYTES.min(content.len() - start)));
                let blocks: Vec<_> = blocks.collect();
                let (source, sink, to_send) = (&source, &sink, blocks.clone());
                scope.spawn(move || {
                    for (start, length) in to_send {
                        source.send(&mut *sender, start, length).0.unwrap();
                    }
                });
                scope.spawn(move || {
                    for (start, length) in blocks {
                        expect_head(&mut *receiver);
                        let (received, _) = sink.receive(&mut *receiver, start, length);
                        assert_eq!(received.unwrap(), length as u64);
                    }
                });
            }
        });
        assert!(sink.content() == content);
    }
}

#[test]
fn a_file_that_is_too_short_is_named_with_its_end() {
    let directory = tempfile::tempdir().unwrap();
    for size in [0, 1, 65_536, 300_001] {
        let source = TestFile::new(&directory.path().join("short"), &pattern(size));
        for stacks in STACKS {
            let (mut sender, _receiver) = pair(stacks);
            let (sent, moved) = source.send(&mut *sender, 0, 400_000);
            let end = size as u64;
            assert!(
                matches!(sent, Err(ChannelError::FileTooShort { end: at }) if at == end),
                "{stacks:?}, {size}: {sent:?}"
            );
            assert!(moved <= end);
        }
    }
}

/// The bytes of a slow peer are written to the file, also those of a part of a block, and a cancelled call has counted them.
#[test]
fn a_slow_peers_bytes_are_written_and_a_cancelled_call_counts_them() {
    const LENGTH: usize = 300_005;
    let content = pattern(LENGTH);
    for stacks in STACKS {
        let directory = tempfile::tempdir().unwrap();
        let file = TestFile::new(&directory.path().join("slow"), &[]);
        let (mut sender, mut receiver) = pair(stacks);
        let (cancel, moved) = (Cancel::new(), AtomicU64::new(0));
        let received = thread::scope(|scope| {
            let receiving = scope.spawn(|| {
                let mut scratch = vec![0; 4096];
                let range = file.range(4096, 1 << 40, &mut scratch, &moved);
                with_operation(&cancel, |operation| receiver.receive_into(range, operation))
            });
            send_memory(&mut *sender, &content);
            let start = Instant::now();
            while moved.load(Ordering::Acquire) < LENGTH as u64 {
                assert!(start.elapsed() < Duration::from_secs(60));
                thread::yield_now();
            }
            cancel.cancel();
            receiving.join().unwrap()
        });
        let is_cancelled = matches!(received, Err(ChannelError::Cancelled));
        assert!(is_cancelled, "{received:?}");
        assert_eq!(moved.into_inner(), LENGTH as u64);
        assert!(file.content()[4096..] == content);
    }
}

#[test]
fn a_stream_that_ends_leaves_a_file_of_its_length() {
    for stacks in STACKS {
        for length in [0, 1, 4096, 300_000] {
            let directory = tempfile::tempdir().unwrap();
            let file = TestFile::new(&directory.path().join("short"), &[]);
            let (mut sender, mut receiver) = pair(stacks);
            let content = pattern(length);
            thread::scope(|scope| {
                scope.spawn(|| {
                    send_memory(&mut *sender, &content);
                    with_operation(&Cancel::new(), |operation| sender.finish(operation)).unwrap();
                    drop(sender);
                });
                let (received, moved) = file.receive(&mut *receiver, 0, 1 << 40);
                assert_eq!((received.unwrap(), moved), (length as u64, length as u64));
            });
            assert!(file.content() == content);
        }
    }
}

/// A read-only descriptor simulates a failing file system.
#[test]
fn failed_writes_are_errors_of_the_file() {
    let directory = tempfile::tempdir().unwrap();
    let source = TestFile::new(&directory.path().join("from"), &pattern(1 << 20));
    let Some(file) = TestFile::failing(&directory.path().join("read-only")) else {
        return;
    };
    let (mut sender, mut receiver) = pair(["slab=256K;direct=1", "direct=1"]);
    thread::scope(|scope| {
        // It fails when the receiver does.
        scope.spawn(|| source.send(&mut *sender, 0, 1 << 20));
        expect_head(&mut *receiver);
        let (received, moved) = file.receive(&mut *receiver, 0, 1 << 20);
        let is_of_file = matches!(received, Err(ChannelError::File(_)));
        assert!(is_of_file, "{received:?}");
        assert_eq!(moved, 0);
        receiver.abort();
    });
}

/// A small file system, mounted until this is dropped.
struct Small(PathBuf);

impl Small {
    fn mount(at: PathBuf) -> Option<Self> {
        fs::create_dir(&at).unwrap();
        let mut mount = Command::new("mount");
        mount
            .args(["-t", "tmpfs", "-o", "size=1M", "tmpfs"])
            .arg(&at);
        let mounted = mount.output().is_ok_and(|output| output.status.success());
        mounted.then(|| Self(at))
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        // A lazy unmount: files on it may still be open.
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn a_full_disk_is_reported_and_only_stored_bytes_count() {
    let directory = tempfile::tempdir().unwrap();
    let Some(small) = Small::mount(directory.path().join("small")) else {
        gridhaul_skip::skipped("no small file system can be mounted");
        return;
    };
    let content = pattern(4 << 20);
    let source = TestFile::new(&directory.path().join("from"), &content);
    for stacks in STACKS {
        let file = TestFile::new(&small.0.join("to"), &[]);
        let (mut sender, mut receiver) = pair(stacks);
        thread::scope(|scope| {
            // It fails when the receiver does.
            scope.spawn(|| source.send(&mut *sender, 0, content.len()));
            expect_head(&mut *receiver);
            let (received, moved) = file.receive(&mut *receiver, 0, content.len());
            let Err(ChannelError::File(error)) = received else {
                panic!("{received:?}");
            };
            assert_eq!(Errno::from_io_error(&error), Some(Errno::NOSPC));
            let stored = usize::try_from(moved).unwrap();
            assert!(stored <= 1 << 20, "{stored}");
            assert!(file.content()[..stored] == content[..stored]);
            receiver.abort();
        });
    }
}
