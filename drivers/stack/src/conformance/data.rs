//! All bytes arrive in order.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use super::{
    Part, SIDES, Subject, TimeLimit, expect_end_of_stream, file_of, finish, pattern, receive, send,
};
use crate::{Body, BufferSize, Received, Side, SocketOptions};

/// Lengths and offsets around the sizes where drivers split: zero, one byte, a page, 64 KiB.
pub(super) const EXTENTS: [u16; 7] = [0, 1, 4095, 4096, 4097, 65534, 65535];

/// Many sends arrive as one stream in many receives, followed by the end.
pub fn keeps_the_order_of_bytes(subject: &Subject) {
    for side in SIDES {
        let (mut sender, mut receiver) = subject.pair(side);
        let stream = pattern(0, 300_000);
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut rest = &stream[..];
                for step in 0.. {
                    let head = (step * 7 % 40).min(rest.len());
                    let body = (step * 977 % 9001).min(rest.len() - head);
                    let (message, later) = rest.split_at(head + body);
                    let (head, body) = message.split_at(head);
                    let time_limit = TimeLimit::new();
                    sender
                        .send(head, Body::Memory(body), &time_limit.operation())
                        .unwrap();
                    rest = later;
                    if rest.is_empty() {
                        break;
                    }
                }
                finish(&mut *sender);
            });
            for (start, piece) in [(0, 1), (1000, 4096), (100_000, 100_000), (200_000, 333)] {
                let length = stream[start..].len().min(match start {
                    0 => 1000,
                    1000 => 99_000,
                    _ => 100_000,
                });
                let received = receive(&mut *receiver, length, piece);
                assert!(received == stream[start..start + length], "from {start}");
            }
            expect_end_of_stream(&mut *receiver);
        });
    }
}

/// A head and a body from memory or from a file arrive completely, for any start and end of the body.
pub fn sends_every_extent(subject: &Subject) {
    let content = pattern(1 << 40, 2 << 16);
    let file = file_of(&content);
    let (mut sender, mut receiver) = subject.pair(Side::Connector);
    thread::scope(|scope| {
        scope.spawn(|| {
            let moved = AtomicU64::new(0);
            for case in cases() {
                let time_limit = TimeLimit::new();
                let head = pattern(0, case.head);
                if case.from_file {
                    moved.store(0, Ordering::Release);
                    let part = Part {
                        file: &file,
                        offset: case.offset as u64,
                        length: case.length as u64,
                        scratch: 10_000,
                        moved: &moved,
                    };
                    part.send(&mut *sender, &head, &time_limit.operation())
                        .unwrap();
                    assert_eq!(moved.load(Ordering::Acquire), part.length);
                } else {
                    let body = Body::Memory(&content[case.offset..][..case.length]);
                    sender.send(&head, body, &time_limit.operation()).unwrap();
                }
            }
        });
        for case in cases() {
            let head = receive(&mut *receiver, case.head, case.head);
            assert_eq!(head, pattern(0, case.head), "the head of {case:?}");
            let body = receive(&mut *receiver, case.length, 50_000);
            let expected = &content[case.offset..][..case.length];
            assert!(body == expected, "the body of {case:?}");
        }
    });
}

#[derive(Debug, Clone, Copy)]
struct Case {
    head: usize,
    offset: usize,
    length: usize,
    from_file: bool,
}

fn cases() -> impl Iterator<Item = Case> {
    let offsets = EXTENTS.into_iter().map(usize::from);
    let extents = offsets.flat_map(|offset| {
        EXTENTS
            .into_iter()
            .map(move |length| (offset, usize::from(length)))
    });
    extents.flat_map(|(offset, length)| {
        [(0, false), (17, false), (0, true), (17, true)].map(|(head, from_file)| Case {
            head,
            offset,
            length,
            from_file,
        })
    })
}

/// A send may be far larger than all buffers.
pub fn sends_bodies_larger_than_every_buffer(subject: &Subject) {
    const LENGTH: usize = (2 << 20) + 1;
    let subject = Subject {
        sockets: SocketOptions {
            receive_buffer: BufferSize::Bytes(4096),
            send_buffer: BufferSize::Bytes(4096),
            ..SocketOptions::default()
        },
        ..subject.clone()
    };
    let content = pattern(0, LENGTH);
    let file = file_of(&content);
    for from_file in [false, true] {
        let (mut sender, mut receiver) = subject.pair(Side::Acceptor);
        let moved = AtomicU64::new(0);
        thread::scope(|scope| {
            scope.spawn(|| {
                let time_limit = TimeLimit::new();
                if from_file {
                    let part = Part {
                        file: &file,
                        offset: 0,
                        length: LENGTH as u64,
                        scratch: 70_001,
                        moved: &moved,
                    };
                    part.send(&mut *sender, b"head", &time_limit.operation())
                        .unwrap();
                } else {
                    let body = Body::Memory(&content);
                    sender.send(b"head", body, &time_limit.operation()).unwrap();
                }
                drop(sender);
            });
            assert_eq!(receive(&mut *receiver, 4, 4), b"head");
            assert!(receive(&mut *receiver, LENGTH, 9999) == content);
            expect_end_of_stream(&mut *receiver);
        });
        let expected = if from_file { LENGTH as u64 } else { 0 };
        assert_eq!(moved.into_inner(), expected);
    }
}

/// Both directions can be used alternately.
pub fn carries_requests_and_answers(subject: &Subject) {
    let (mut one, mut other) = subject.pair(Side::Connector);
    for turn in 0..50_u64 {
        let question = pattern(turn, 100);
        send(&mut *one, &question);
        assert_eq!(receive(&mut *other, 100, 100), question);
        let answer = pattern(turn + 1000, 10);
        send(&mut *other, &answer);
        assert_eq!(receive(&mut *one, 10, 7), answer);
    }
}

/// Empty messages are sent and received at once, and do not affect the stream.
pub fn carries_empty_messages(subject: &Subject) {
    let (mut sender, mut receiver) = subject.pair(Side::Connector);
    let file = file_of(b"content");
    let moved = AtomicU64::new(0);
    let nothing = Part {
        file: &file,
        offset: 3,
        length: 0,
        scratch: 5,
        moved: &moved,
    };
    let time_limit = TimeLimit::new();
    send(&mut *sender, &[]);
    nothing
        .send(&mut *sender, &[], &time_limit.operation())
        .unwrap();
    // An empty buffer returns at once, although the stream is empty.
    let count = nothing.receive(&mut *receiver, &time_limit.operation());
    assert_eq!(count.unwrap(), 0);
    assert_eq!(moved.load(Ordering::Acquire), 0);
    let into_nothing = receiver.receive(&mut [], &time_limit.operation());
    assert_eq!(into_nothing.unwrap(), Received::EndOfStream);
    send(&mut *sender, b"x");
    assert_eq!(receive(&mut *receiver, 1, 1), b"x");
    finish(&mut *sender);
    expect_end_of_stream(&mut *receiver);
}
