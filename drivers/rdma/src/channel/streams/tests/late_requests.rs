//! Files whose requests the kernel accepts late.

use std::fs::File;
use std::os::fd::AsFd as _;
use std::os::unix::fs::FileExt as _;
use std::sync::atomic::AtomicU64;

use gridhaul_direct::test_files::pattern;
use gridhaul_direct::{IoQueue, Request};

use super::super::writing::Writing;
use super::*;
use crate::files::DiskRange;
use crate::memory::RingMemory;

/// Not a multiple of a block, and several rings long.
const LENGTH: usize = (3 << 20) + 5;

/// A kernel that accepts requests only when they were submitted several times (io_uring_enter(2), EAGAIN), over a real queue.
struct LateQueue<'a> {
    queue: &'a mut dyn IoQueue,
    refused: Vec<(usize, Request)>,
    polls: usize,
}

impl<'a> LateQueue<'a> {
    fn over(queue: &'a mut dyn IoQueue) -> Self {
        Self {
            queue,
            refused: Vec::new(),
            polls: 0,
        }
    }

    fn accept(&mut self) {
        for (slot, request) in self.refused.drain(..) {
            self.queue.submit(slot, request);
        }
    }
}

impl IoQueue for LateQueue<'_> {
    fn slots(&self) -> usize {
        self.queue.slots()
    }

    fn submit(&mut self, slot: usize, request: Request) {
        self.refused.push((slot, request));
    }

    fn poll(&mut self) {
        const POLLS_UNTIL_ACCEPTED: usize = 4;
        self.polls += 1;
        if self.polls.is_multiple_of(POLLS_UNTIL_ACCEPTED) {
            self.accept();
        }
        self.queue.poll();
    }

    fn wait(&mut self, slot: usize) {
        self.accept();
        self.queue.wait(slot);
    }

    fn result(&mut self, slot: usize) -> Option<Result<usize, Errno>> {
        self.queue.result(slot)
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.queue.descriptor()
    }

    fn retry_in(&self) -> Option<Duration> {
        (!self.refused.is_empty()).then_some(Duration::from_millis(1))
    }
}

fn send(streams: &mut Streams, file: &File, operation: &Operation<'_>) {
    let (mut scratch, moved) = ([0], AtomicU64::new(0));
    let range = FileRange::new(file.as_fd(), 0, LENGTH as u64, &mut scratch, &moved);
    streams.align(&range, operation).unwrap();
    let ring_bytes = streams.opened.exchange.sender.ring_length().get();
    let plan = streams
        .plan(&range, Call::Read, ring_bytes)
        .expect("a long range");
    let mut disk = DiskRange::new(&range, &plan);
    let memory = RingMemory::of(streams.opened.outgoing.memory());
    let mut engine = streams.files.take_engine(&plan);
    let sent = engine.with_memory(plan.files, memory, plan.requests, range.length, |queue| {
        streams.read_ahead(&mut disk, &mut LateQueue::over(queue), operation)
    });
    sent.unwrap().unwrap();
    streams.finish(operation).unwrap();
    assert_eq!(moved.into_inner(), LENGTH as u64);
}

fn receive(streams: &mut Streams, file: &File, operation: &Operation<'_>) {
    let (mut scratch, moved) = ([0], AtomicU64::new(0));
    let range = FileRange::new(file.as_fd(), 0, LENGTH as u64, &mut scratch, &moved);
    let receiver = &streams.opened.exchange.receiver;
    let ring_bytes = receiver.ring_bytes();
    let plan = streams
        .plan(&range, Call::Write, ring_bytes)
        .expect("a long range");
    let receiver = &streams.opened.exchange.receiver;
    let mut writing = Writing::new(DiskRange::new(&range, &plan), receiver);
    let memory = RingMemory::of(streams.incoming());
    let mut engine = streams.files.take_engine(&plan);
    let received = engine.with_memory(plan.files, memory, plan.requests, range.length, |queue| {
        streams.write_behind(&mut writing, &mut LateQueue::over(queue), operation)
    });
    received.unwrap().unwrap();
    assert_eq!(moved.into_inner(), LENGTH as u64);
}

/// Requests that were not accepted are not in flight, so their completion wakes no thread.
#[test]
fn requests_that_the_kernel_accepts_late_delay_a_transfer_but_do_not_stop_it() {
    let cancel = Cancel::new();
    let operation = Operation {
        deadline: Some(Instant::now() + Duration::from_secs(60)),
        cancel: &cancel,
    };
    let ends = [(); 2].map(|()| {
        settings([
            ("provider", "soft"),
            ("slab", "256K"),
            ("direct", "threads"),
        ])
    });
    let local = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let [mut one, mut other] = connected(local, &ends, Flow::Out, &operation);
    let [from, to] = [(); 2].map(|()| tempfile::tempfile().unwrap());
    from.write_all_at(&pattern(LENGTH), 0).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| send(&mut one, &from, &operation));
        receive(&mut other, &to, &operation);
    });
    let mut content = vec![0; LENGTH];
    to.read_exact_at(&mut content, 0).unwrap();
    assert!(content == pattern(LENGTH));
}
