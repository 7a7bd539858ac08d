//! Direct I/O with both engines, on the file system of temporary files and on tmpfs.

use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::fs::FileExt as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use gridhaul_direct::test_files::{
    HEAD, SCRATCH_BYTES, TestFile, expect_head, pattern, places, receive_memory, send_memory,
    with_operation,
};
use gridhaul_protocol::stack::StackSpec;
use gridhaul_splice::Splice;
use gridhaul_stack::{Body, Cancel, Channel, ChannelError, Received, Registry, SocketOptions};
use proptest::prelude::*;
use tempfile::TempDir;

const STACKS: [&str; 2] = ["splice:direct=1", "splice:direct=threads"];

/// Both ends of a connection.
fn pair(stack: &str) -> (Box<dyn Channel>, Box<dyn Channel>) {
    let mut registry = Registry::new();
    registry.register(Splice);
    let stack = registry.build(&StackSpec::parse(stack).unwrap()).unwrap();
    assert!(stack.wants_direct());
    let sockets = SocketOptions::default();
    let localhost = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let mut listener = stack.listen(localhost, &sockets).unwrap();
    with_operation(&Cancel::new(), |operation| {
        let one = stack.connect(listener.address(), &sockets, operation);
        let other = listener.accept(operation).unwrap();
        (one.unwrap(), other.establish(operation).unwrap())
    })
}

/// Directories on a disk and on tmpfs.
fn directories() -> impl Iterator<Item = TempDir> {
    let places = places().into_iter();
    places.map(|place| tempfile::tempdir_in(place).unwrap())
}

const PAGE: usize = 4096;

/// Lengths and offsets within a block, of whole blocks, and of many.
fn bytes() -> impl Strategy<Value = usize> {
    prop_oneof![
        0..10_000_usize,
        (0..100_usize).prop_map(|blocks| blocks * 4096),
        0..700_000_usize,
    ]
}

#[test]
fn ranges_are_received_and_bytes_around_them_do_not_change() {
    for stack in STACKS {
        for directory in directories() {
            let path = directory.path().join("received");
            let mut config = ProptestConfig::with_cases(40);
            config.failure_persistence = None;
            proptest!(config, |(size in bytes(), offset in bytes(), length in 1..700_000_usize)| {
                let (mut sender, mut receiver) = pair(stack);
                let mut expected = vec![0xee; size];
                let file = TestFile::new(&path, &expected);
                let content = pattern(length);
                let (received, moved) = thread::scope(|scope| {
                    scope.spawn(|| send_memory(&mut *sender, &content));
                    file.receive(&mut *receiver, offset, length)
                });
                prop_assert_eq!(received.unwrap(), length as u64);
                prop_assert_eq!(moved, length as u64);
                expected.resize(size.max(offset + length), 0);
                expected[offset..offset + length].copy_from_slice(&content);
                prop_assert!(file.content() == expected);
            });
        }
    }
}

#[test]
fn ranges_are_sent_unchanged_and_short_files_are_detected() {
    for stack in STACKS {
        for directory in directories() {
            let path = directory.path().join("sent");
            let mut config = ProptestConfig::with_cases(40);
            config.failure_persistence = None;
            proptest!(config, |(size in bytes(), offset in bytes(), length in 1..700_000_usize)| {
                let (mut sender, mut receiver) = pair(stack);
                let content = pattern(size);
                let file = TestFile::new(&path, &content);
                let there = &content[offset.min(size)..(offset + length).min(size)];
                let (sent, moved) = thread::scope(|scope| {
                    scope.spawn(|| {
                        expect_head(&mut *receiver);
                        assert!(receive_memory(&mut *receiver, there.len()) == there);
                    });
                    file.send(&mut *sender, offset, length)
                });
                prop_assert_eq!(moved, there.len() as u64);
                if there.len() == length {
                    sent.unwrap();
                } else {
                    let end = size as u64;
                    prop_assert!(
                        matches!(sent, Err(ChannelError::FileTooShort { end: e }) if e == end),
                        "{:?}", sent
                    );
                }
            });
        }
    }
}

/// The channels of a MODE E transfer write blocks that may start and end within a page.
#[test]
fn channels_share_a_file_and_its_pages() {
    const BLOCK_BYTES: usize = 50_001;
    const BLOCKS: usize = 80;
    const CHANNELS: usize = 4;
    let content = pattern(BLOCK_BYTES * BLOCKS - 123);
    for stack in STACKS {
        for directory in directories() {
            let file = TestFile::new(&directory.path().join("shared"), &[]);
            thread::scope(|scope| {
                for channel in 0..CHANNELS {
                    let (mut sender, mut receiver) = pair(stack);
                    let chunks = content.chunks(BLOCK_BYTES).enumerate();
                    let blocks = chunks.skip(channel).step_by(CHANNELS);
                    let (to_send, file) = (blocks.clone(), &file);
                    scope.spawn(move || {
                        to_send.for_each(|(_, block)| send_memory(&mut *sender, block));
                    });
                    scope.spawn(move || {
                        for (index, block) in blocks {
                            let offset = index * BLOCK_BYTES;
                            let (received, _) = file.receive(&mut *receiver, offset, block.len());
                            assert_eq!(received.unwrap(), block.len() as u64);
                        }
                    });
                }
            });
            assert!(file.content() == content, "{stack}");
            // The content of the page cache is on the disk: a direct read returns the same bytes.
            let (mut sender, mut receiver) = pair(stack);
            thread::scope(|scope| {
                scope.spawn(|| file.send(&mut *sender, 0, content.len()).0.unwrap());
                expect_head(&mut *receiver);
                assert!(receive_memory(&mut *receiver, content.len()) == content);
            });
        }
    }
}

/// The bytes of a slow peer are written to the file, and a cancelled call has counted them.
#[test]
fn a_slow_peers_bytes_are_written_and_a_cancelled_call_counts_them() {
    const LENGTH: usize = 300_005;
    let content = pattern(LENGTH);
    for stack in STACKS {
        let directory = tempfile::tempdir().unwrap();
        let file = TestFile::new(&directory.path().join("slow"), &[]);
        let (mut sender, mut receiver) = pair(stack);
        let (cancel, moved) = (Cancel::new(), AtomicU64::new(0));
        let received = thread::scope(|scope| {
            let receiving = scope.spawn(|| {
                let mut scratch = vec![0; SCRATCH_BYTES];
                let range = file.range(3, 1 << 40, &mut scratch, &moved);
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
        assert!(
            matches!(received, Err(ChannelError::Cancelled)),
            "{received:?}"
        );
        assert_eq!(moved.into_inner(), LENGTH as u64);
        assert!(file.content()[3..] == content);
    }
}

#[test]
fn a_stream_that_ends_leaves_a_file_of_its_length() {
    for stack in STACKS {
        for length in [0, 1, 4096, 300_000] {
            let directory = tempfile::tempdir().unwrap();
            let file = TestFile::new(&directory.path().join("short"), &[]);
            let (mut sender, mut receiver) = pair(stack);
            let content = pattern(length);
            thread::scope(|scope| {
                scope.spawn(|| {
                    send_memory(&mut *sender, &content);
                    with_operation(&Cancel::new(), |operation| sender.finish(operation)).unwrap();
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
    for stack in STACKS {
        let directory = tempfile::tempdir().unwrap();
        let Some(file) = TestFile::failing(&directory.path().join("read-only")) else {
            return;
        };
        let (mut sender, mut receiver) = pair(stack);
        thread::scope(|scope| {
            scope.spawn(|| send_memory(&mut *sender, &pattern(100_000)));
            let (received, moved) = file.receive(&mut *receiver, 0, 100_000);
            assert!(
                matches!(received, Err(ChannelError::File(_))),
                "{received:?}"
            );
            assert_eq!(moved, 0);
        });
    }
}

#[test]
fn the_method_is_reported() {
    let directory = tempfile::tempdir().unwrap();
    let mut file = TestFile::new(&directory.path().join("told"), &pattern(100_000));
    if file.direct.is_none() {
        return;
    }
    let way = |stack: &str, file: &TestFile| {
        let (mut sender, mut receiver) = pair(stack);
        thread::scope(|scope| {
            scope.spawn(|| receive_memory(&mut *receiver, HEAD.len() + 100_000));
            file.send(&mut *sender, 0, 100_000).0.unwrap();
        });
        let movement = sender.info().movement.unwrap();
        (movement.way, movement.reason.into_owned())
    };
    let (by_threads, asked) = way("splice:direct=threads", &file);
    assert_eq!(
        (by_threads, &*asked),
        ("direct (threads)", "the stack asks for it")
    );
    let (best, _) = way("splice:direct=1", &file);
    assert!(best.starts_with("direct ("), "{best}");
    file.direct = None;
    let (cached, reason) = way("splice:direct=1", &file);
    assert_eq!(cached, "sendfile");
    assert_eq!(reason, "the file could not be opened past the page cache");
}

/// A long transfer tries both ways at each end, and then keeps one.
#[test]
fn a_long_transfer_measures_which_way_costs_less() {
    const LENGTH: usize = 192 << 20;
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
    let (mut sender, mut receiver) = pair("splice:direct=auto");
    thread::scope(|scope| {
        scope.spawn(|| source.send(&mut *sender, 0, LENGTH).0.unwrap());
        expect_head(&mut *receiver);
        let (received, moved) = sink.receive(&mut *receiver, 0, LENGTH);
        assert_eq!((received.unwrap(), moved), (LENGTH as u64, LENGTH as u64));
    });
    assert!(sink.content() == source.content());
    for (channel, cached) in [(&sender, "sendfile"), (&receiver, "splice")] {
        let movement = channel.info().movement.unwrap();
        if cached == "sendfile" && !is_cold || movement.reason == "the file system is in memory" {
            eprintln!("not measured: {}", movement.reason);
            continue;
        }
        let measured = "CPU seconds per GB: O_DIRECT ";
        assert!(movement.reason.starts_with(measured), "{movement:?}");
        let ways = [cached, "direct (io_uring)", "direct (threads)"];
        assert!(ways.contains(&movement.way), "{movement:?}");
    }
}

/// For peers on this machine the kernel makes a copy and reports it, which switches zero-copy off.
#[test]
fn zero_copy_is_used_until_the_kernel_copies() {
    let content = pattern(9_000_001);
    for stack in STACKS {
        let directory = tempfile::tempdir().unwrap();
        let file = TestFile::new(&directory.path().join("lent"), &content);
        if file.direct.is_none() {
            continue;
        }
        let (mut sender, mut receiver) = pair(stack);
        for _ in 0..2 {
            let (mut scratch, moved) = (vec![0; 8 * SCRATCH_BYTES], AtomicU64::new(0));
            let range = file.range(0, content.len() as u64, &mut scratch, &moved);
            thread::scope(|scope| {
                scope.spawn(|| {
                    with_operation(&Cancel::new(), |operation| {
                        sender.send(&[], Body::File(range), operation).unwrap();
                    });
                });
                assert!(receive_memory(&mut *receiver, content.len()) == content);
            });
        }
        let details = sender.info().details;
        let told: Vec<String> = details.iter().map(ToString::to_string).collect();
        let has = |detail: &str| told.iter().any(|one| one == detail);
        assert!(has("zerocopy=the kernel copies"), "{told:?}");
        assert!(!has("zerocopy-bytes=0"), "{told:?}");
    }
}

/// Memory that the kernel sends from must not change, so a call that cannot wait resets the connection.
#[test]
fn a_cancelled_call_leaves_no_pages_in_use() {
    let content = pattern(30_000_000);
    for stack in STACKS {
        let directory = tempfile::tempdir().unwrap();
        let file = TestFile::new(&directory.path().join("lent"), &content);
        // The peer's kernel accepts few bytes, and ours at least the first piece.
        let (mut sender, mut receiver) = pair(&format!("{stack};rcvbuf=8K;sndbuf=1M"));
        let (cancel, moved) = (Cancel::new(), AtomicU64::new(0));
        let (sent, is_renewed) = thread::scope(|scope| {
            let sending = scope.spawn(|| {
                let mut scratch = vec![0; 8 * SCRATCH_BYTES];
                let range = file.range(0, content.len() as u64, &mut scratch, &moved);
                let sent = with_operation(&cancel, |operation| {
                    sender.send(&[], Body::File(range), operation)
                });
                // Queued packets keep the old pages, and the next transfer gets new ones.
                let (first, last) = (PAGE, scratch.len() - PAGE);
                let is_renewed = scratch[first..last].iter().all(|byte| *byte == 0);
                scratch.fill(0xee);
                (sent, is_renewed)
            });
            // The call fills the kernel's buffers, and waits.
            let start = Instant::now();
            while moved.load(Ordering::Acquire) == 0 {
                assert!(start.elapsed() < Duration::from_secs(60));
                thread::yield_now();
            }
            cancel.cancel();
            sending.join().unwrap()
        });
        assert!(matches!(sent, Err(ChannelError::Cancelled)), "{sent:?}");
        let details = sender.info().details;
        if let [_, bytes] = &details[..]
            && bytes.to_string() != "zerocopy-bytes=0"
        {
            assert!(is_renewed, "lent pages are used again: {details:?}");
        }
        drop(sender);
        let mut arrived = Vec::new();
        let mut buffer = vec![0; SCRATCH_BYTES];
        let end = with_operation(&Cancel::new(), |operation| {
            loop {
                match receiver.receive(&mut buffer, operation) {
                    Ok(Received::Bytes(count)) => arrived.extend_from_slice(&buffer[..count.get()]),
                    end => break end,
                }
            }
        });
        drop(end);
        assert!(arrived == content[..arrived.len()]);
    }
}
