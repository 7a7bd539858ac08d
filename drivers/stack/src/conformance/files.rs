//! Ranges of files: received bytes are in the file, and failures are reported.

use std::sync::atomic::AtomicU64;
use std::thread;

use rustix::fs::{Mode, OFlags};

use super::data::EXTENTS;
use super::{
    Part, Subject, TimeLimit, content_of, expect_end_of_stream, file_of, finish, pattern, receive,
    send,
};
use crate::{ChannelError, Side};

/// The old bytes around a received range.
const BACKGROUND: u8 = 0xee;

/// A part of the stream is received into a file at any offset, and the bytes around it do not change.
pub fn receives_every_extent_into_a_file(subject: &Subject) {
    let (mut sender, mut receiver) = subject.pair(Side::Connector);
    let extents = || {
        EXTENTS
            .into_iter()
            .flat_map(|one| EXTENTS.map(|other| (one, other)))
    };
    thread::scope(|scope| {
        scope.spawn(|| {
            for (offset, length) in extents() {
                send(&mut *sender, &pattern(offset.into(), length.into()));
            }
        });
        for (offset, length) in extents() {
            let (start, end) = (
                usize::from(offset),
                usize::from(offset) + usize::from(length),
            );
            let mut expected = vec![BACKGROUND; end + 1];
            let file = file_of(&expected);
            let moved = AtomicU64::new(0);
            let part = Part {
                file: &file,
                offset: offset.into(),
                length: length.into(),
                scratch: 20_000,
                moved: &moved,
            };
            let time_limit = TimeLimit::new();
            let count = part.receive(&mut *receiver, &time_limit.operation());
            assert_eq!(count.unwrap(), u64::from(length));
            assert_eq!(moved.into_inner(), u64::from(length));
            expected[start..end].copy_from_slice(&pattern(offset.into(), length.into()));
            assert!(content_of(&file) == expected, "{offset} + {length}");
        }
    });
}

/// Bytes after the range stay in the stream.
pub fn receive_into_stops_at_its_length(subject: &Subject) {
    let (mut sender, mut receiver) = subject.pair(Side::Acceptor);
    send(&mut *sender, &pattern(0, 100));
    let file = file_of(&[]);
    let moved = AtomicU64::new(1000);
    let part = Part {
        file: &file,
        offset: 0,
        length: 60,
        scratch: 4096,
        moved: &moved,
    };
    let time_limit = TimeLimit::new();
    let count = part.receive(&mut *receiver, &time_limit.operation());
    assert_eq!(count.unwrap(), 60);
    assert_eq!(moved.into_inner(), 1060);
    assert_eq!(content_of(&file), pattern(0, 60));
    assert_eq!(receive(&mut *receiver, 40, 40), pattern(60, 40));
}

/// A stream that ends before the range is not an error; the number of bytes is returned.
pub fn receive_into_stops_at_the_end_of_the_stream(subject: &Subject) {
    for length in [0, 1, 150] {
        let (mut sender, mut receiver) = subject.pair(Side::Connector);
        send(&mut *sender, &pattern(0, length));
        finish(&mut *sender);
        let file = file_of(&[]);
        let moved = AtomicU64::new(0);
        let part = Part {
            file: &file,
            offset: 0,
            length: 1 << 62,
            scratch: 99,
            moved: &moved,
        };
        let time_limit = TimeLimit::new();
        let count = part.receive(&mut *receiver, &time_limit.operation());
        assert_eq!(count.unwrap(), length as u64);
        assert_eq!(moved.into_inner(), length as u64);
        assert_eq!(content_of(&file), pattern(0, length));
        expect_end_of_stream(&mut *receiver);
    }
}

/// After an abort within a range, `moved` bytes are in the file and correct.
pub fn counts_bytes_of_a_failed_receive(subject: &Subject) {
    let (mut sender, mut receiver) = subject.pair(Side::Connector);
    let file = file_of(&[]);
    let moved = AtomicU64::new(0);
    let outcome = thread::scope(|scope| {
        let receiving = scope.spawn(|| {
            let part = Part {
                file: &file,
                offset: 0,
                length: 1 << 62,
                scratch: 99,
                moved: &moved,
            };
            part.receive(&mut *receiver, &TimeLimit::new().operation())
        });
        send(&mut *sender, &pattern(0, 5000));
        let time_limit = TimeLimit::new();
        while moved.load(std::sync::atomic::Ordering::Acquire) < 5000 {
            time_limit.operation().check().unwrap();
            thread::yield_now();
        }
        sender.abort();
        receiving.join().unwrap()
    });
    assert!(matches!(outcome, Err(ChannelError::Aborted)), "{outcome:?}");
    assert_eq!(moved.into_inner(), 5000);
    assert_eq!(content_of(&file), pattern(0, 5000));
}

/// If a file ends before the range to be sent, the error has its actual end.
pub fn reports_the_end_of_a_short_file(subject: &Subject) {
    for (offset, length, there) in [(0, 101, 100), (40, 1 << 40, 60), (100, 1, 0), (5000, 10, 0)] {
        let (mut sender, _receiver) = subject.pair(Side::Connector);
        let file = file_of(&pattern(0, 100));
        let moved = AtomicU64::new(0);
        let part = Part {
            file: &file,
            offset,
            length,
            scratch: 64,
            moved: &moved,
        };
        let time_limit = TimeLimit::new();
        let outcome = part.send(&mut *sender, b"head", &time_limit.operation());
        assert!(
            matches!(outcome, Err(ChannelError::FileTooShort { end: 100 })),
            "{offset} + {length}: {outcome:?}"
        );
        assert!(moved.into_inner() <= there);
    }
}

/// Errors of the file are distinguished from errors of the network.
pub fn file_errors_differ_from_network_errors(subject: &Subject) {
    let (mut sender, mut receiver) = subject.pair(Side::Connector);
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = rustix::fs::open("/", flags, Mode::empty()).unwrap();
    let moved = AtomicU64::new(0);
    send(&mut *sender, &[0; 10]);
    let time_limit = TimeLimit::new();
    let part = Part {
        file: &directory,
        offset: 0,
        length: 10,
        scratch: 64,
        moved: &moved,
    };
    let outcome = part.receive(&mut *receiver, &time_limit.operation());
    assert!(matches!(outcome, Err(ChannelError::File(_))), "{outcome:?}");
    let outcome = part.send(&mut *sender, &[], &time_limit.operation());
    assert!(matches!(outcome, Err(ChannelError::File(_))), "{outcome:?}");
    assert_eq!(moved.into_inner(), 0);
}
