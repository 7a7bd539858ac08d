//! Files whose disk lets calls wait.

use std::os::fd::AsFd as _;
use std::sync::atomic::AtomicU64;

use gridhaul_direct::test_files::{TestFile, pattern};
use gridhaul_stack::WriteLock;

use super::*;

/// Several requests, and not a multiple of a block.
const LENGTH: usize = (5 << 20) + 12_345;

/// Rings that are shorter than the file.
fn stacks() -> [Settings; 2] {
    [(); 2].map(|()| settings([("provider", "soft"), ("slab", "256K")]))
}

fn files(streams: &Streams) -> String {
    let detail = streams.files.detail();
    detail.map(|detail| detail.to_string()).unwrap_or_default()
}

/// Requests through the page cache are in flight then, and not before. The bytes are the same.
#[test]
fn files_are_moved_with_requests_in_flight_once_calls_have_waited() {
    let cancel = Cancel::new();
    let operation = Operation {
        deadline: Some(Instant::now() + Duration::from_secs(60)),
        cancel: &cancel,
    };
    let local = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let directory = tempfile::tempdir().unwrap();
    let content = pattern(LENGTH);
    let source = TestFile::new(&directory.path().join("from"), &content);
    for has_waited in [false, true] {
        let sink = TestFile::new(&directory.path().join("to"), &[]);
        let [mut sender, mut receiver] = connected(local, &stacks(), Flow::Both, &operation);
        if has_waited {
            sender.files.expect_waits();
            receiver.files.expect_waits();
        }
        let [sent, received] = [AtomicU64::new(0), AtomicU64::new(0)];
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut scratch = [0];
                let range = source.range(0, LENGTH as u64, &mut scratch, &sent);
                sender.align(&range, &operation).unwrap();
                sender.send_file(&range, &operation).unwrap();
                sender.finish(&operation).unwrap();
            });
            let mut scratch = [0];
            let range = sink.range(0, LENGTH as u64, &mut scratch, &received);
            let count = receiver.receive_into(&range, &operation).unwrap();
            assert_eq!(count, LENGTH as u64);
        });
        assert!(sink.content() == content);
        for moved in [sent, received] {
            assert_eq!(moved.into_inner(), LENGTH as u64);
        }
        for (streams, call) in [(&sender, Call::Read), (&receiver, Call::Write)] {
            let (told, most) = (files(streams), streams.files.most_in_flight());
            if has_waited {
                assert!(told.ends_with("; calls wait for the disk"), "{told}");
                assert!(most > 0, "{call:?}: {told}");
            } else if !streams.files.expects_waits(call) {
                assert_eq!(most, 0, "{call:?}: {told}");
            }
        }
        if has_waited {
            // The ring was empty, so the first ones were submitted before any of them was looked at.
            assert!(sender.files.most_in_flight() > 1);
        }
    }
}

/// Bytes that have arrived in the ring and were not written, as another thread sees it.
fn bytes_to_take(watch: &dyn Watch) -> u64 {
    let details = watch.details();
    let held = details.iter().find(|one| one.name == "ring-bytes-to-take");
    match held.expect("it is shown").value {
        DetailValue::Holding(bytes) => bytes,
        ref other => panic!("{other:?}"),
    }
}

/// Bytes still arrive while another channel has its turn at the file, as they do while a disk stalls.
#[test]
fn a_write_that_waits_does_not_keep_the_thread_from_its_queue_pairs() {
    let cancel = Cancel::new();
    let operation = Operation {
        deadline: Some(Instant::now() + Duration::from_secs(60)),
        cancel: &cancel,
    };
    let local = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let directory = tempfile::tempdir().unwrap();
    let sink = TestFile::new(&directory.path().join("to"), &[]);
    let [mut sender, mut receiver] = connected(local, &stacks(), Flow::Both, &operation);
    receiver.files.expect_waits();
    let watch = receiver.meter();
    let ring_bytes = sender.opened.exchange.sender.ring_length().get();
    let ring_bytes = usize::try_from(ring_bytes).unwrap();
    let content = pattern(LENGTH);
    let moved = AtomicU64::new(0);
    let turn = WriteLock::acquire(sink.file.as_fd());
    thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut scratch = [0];
            let range = sink.range(0, LENGTH as u64, &mut scratch, &moved);
            receiver.receive_into(&range, &operation).unwrap()
        });
        let mut sent = 0;
        // The first bytes are enough to be written. A thread that waited for that would take nothing of the rest.
        for until in [ring_bytes / 2, ring_bytes] {
            sender
                .send_memory(&content[sent..until], &operation)
                .unwrap();
            sender.flush(&operation).unwrap();
            sent = until;
            while bytes_to_take(&*watch) < until as u64 {
                operation.check().unwrap();
                thread::yield_now();
            }
        }
        assert_eq!(moved.load(Ordering::Relaxed), 0);
        drop(turn);
        sender.send_memory(&content[sent..], &operation).unwrap();
        sender.finish(&operation).unwrap();
        assert_eq!(writer.join().unwrap(), LENGTH as u64);
    });
    assert!(sink.content() == content);
}
