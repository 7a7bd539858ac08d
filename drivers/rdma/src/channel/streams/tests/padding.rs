//! Padding that arrives when a file is already being received.

use std::fs::File;
use std::os::fd::AsFd as _;
use std::os::unix::fs::FileExt as _;
use std::sync::Barrier;
use std::sync::atomic::AtomicU64;

use gridhaul_direct::test_files::pattern;

use super::super::writing::Writing;
use super::*;
use crate::files::DiskRange;
use crate::memory::RingMemory;

const HEAD: &[u8] = b"the head of a block";

const LENGTH: usize = 1 << 20;

/// The sender announces the padding after the receiver has taken out the head and looks for the content.
#[test]
fn padding_is_no_content_when_it_arrives_after_the_head_was_taken_out() {
    let cancel = Cancel::new();
    let operation = within_a_minute(&cancel);
    let ends = [(); 2].map(|()| settings([("provider", "soft"), ("direct", "threads")]));
    let local = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let [mut one, mut other] = connected(local, &ends, Flow::Out, &operation);
    let [from, to] = [(); 2].map(|()| tempfile::tempfile().unwrap());
    from.write_all_at(&pattern(LENGTH), 0).unwrap();
    let looks = Barrier::new(2);
    thread::scope(|scope| {
        scope.spawn(|| {
            one.send_memory(HEAD, &operation).unwrap();
            one.flush(&operation).unwrap();
            looks.wait();
            let (mut scratch, moved) = ([0], AtomicU64::new(0));
            let range = FileRange::new(from.as_fd(), 0, LENGTH as u64, &mut scratch, &moved);
            one.align(&range, &operation).unwrap();
            one.send_file(&range, &operation).unwrap();
            one.finish(&operation).unwrap();
        });
        let mut head = [0; HEAD.len()];
        let mut taken = 0;
        while taken < HEAD.len() {
            taken += other.receive(&mut head[taken..], &operation).unwrap();
        }
        assert_eq!(head, HEAD);
        receive(&mut other, &to, &operation, &looks);
    });
    let mut content = vec![0; LENGTH];
    to.read_exact_at(&mut content, 0).unwrap();
    assert!(content == pattern(LENGTH));
}

/// Receives the file; waits at `looks` when it has noted where the content would begin without padding.
fn receive(streams: &mut Streams, file: &File, operation: &Operation<'_>, looks: &Barrier) {
    let (mut scratch, moved) = ([0], AtomicU64::new(0));
    let range = FileRange::new(file.as_fd(), 0, LENGTH as u64, &mut scratch, &moved);
    let receiver = &streams.opened.exchange.receiver;
    let ring_bytes = receiver.ring_bytes();
    let plan = streams
        .plan(&range, Call::Write, ring_bytes)
        .expect("a long range");
    let receiver = &streams.opened.exchange.receiver;
    let mut writing = Writing::new(DiskRange::new(&range, &plan), receiver);
    looks.wait();
    let memory = RingMemory::of(streams.incoming());
    let mut engine = streams.files.take_engine(&plan);
    let received = engine.with_memory(plan.files, memory, plan.requests, range.length, |queue| {
        streams.write_behind(&mut writing, queue, operation)
    });
    received.unwrap().unwrap();
    assert_eq!(moved.into_inner(), LENGTH as u64);
}
