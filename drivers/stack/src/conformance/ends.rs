//! The end of a stream, half-close and abort.

use std::sync::mpsc;
use std::thread;

use super::{
    SIDES, Subject, TimeLimit, expect_end_of_stream, finish, pattern, receive, send,
    wait_until_asleep,
};
use crate::{Body, Channel, ChannelError, Received};

/// More than a network path can buffer.
pub(super) const ENDLESS: usize = 64 << 20;

/// After one end has finished, the other end receives all bytes and the end, and may still send.
pub fn half_close(subject: &Subject) {
    for side in SIDES {
        let (mut one, mut other) = subject.pair(side);
        send(&mut *one, b"question");
        finish(&mut *one);
        assert_eq!(receive(&mut *other, 8, 8), b"question");
        expect_end_of_stream(&mut *other);
        send(&mut *other, b"answer");
        assert_eq!(receive(&mut *one, 6, 6), b"answer");
        send(&mut *other, b"more");
        finish(&mut *other);
        assert_eq!(receive(&mut *one, 4, 4), b"more");
        // Further receives return the end again.
        for channel in [&mut one, &mut other] {
            expect_end_of_stream(&mut **channel);
            expect_end_of_stream(&mut **channel);
        }
    }
}

/// Dropping a channel, finished or not, does not lose sent bytes.
pub fn drop_ends_the_stream(subject: &Subject) {
    for is_finished in [false, true] {
        for side in SIDES {
            let (mut sender, mut receiver) = subject.pair(side);
            let sending = thread::spawn(move || {
                send(&mut *sender, &pattern(0, 10_000));
                if is_finished {
                    finish(&mut *sender);
                }
            });
            assert!(receive(&mut *receiver, 10_000, 1000) == pattern(0, 10_000));
            expect_end_of_stream(&mut *receiver);
            sending.join().unwrap();
        }
    }
}

/// Sending to a peer that dropped its end fails eventually.
pub fn notices_a_closed_peer(subject: &Subject) {
    for side in SIDES {
        let (mut sender, receiver) = subject.pair(side);
        drop(receiver);
        let time_limit = TimeLimit::new();
        let outcome = (0..ENDLESS / 1000)
            .try_for_each(|_| sender.send(&[], Body::Memory(&[0; 1000]), &time_limit.operation()));
        assert!(
            matches!(
                outcome,
                Err(ChannelError::PeerClosed | ChannelError::Aborted)
            ),
            "{outcome:?}"
        );
    }
}

/// A channel that is aborted before any byte is not an empty stream for the peer.
pub fn abort_before_any_byte(subject: &Subject) {
    for side in SIDES {
        let (mut one, mut other) = subject.pair(side);
        one.abort();
        // A second abort has no effect.
        one.abort();
        expect_abort(&mut *other);
    }
}

/// After an abort bytes in flight may be lost, but the peer never sees a regular end of the stream.
pub fn abort_with_bytes_in_flight(subject: &Subject) {
    for side in SIDES {
        for then_drop in [false, true] {
            let (mut one, mut other) = subject.pair(side);
            send(&mut *one, b"not many bytes, so that they fit");
            one.abort();
            if then_drop {
                drop(one);
            }
            expect_abort(&mut *other);
        }
    }
}

/// An abort wakes a peer that waits for bytes.
pub fn abort_while_the_peer_receives(subject: &Subject) {
    for side in SIDES {
        let (mut one, mut other) = subject.pair(side);
        send(&mut *one, b"some");
        assert_eq!(receive(&mut *other, 4, 4), b"some");
        thread::scope(|scope| {
            let (tell, told) = mpsc::channel();
            scope.spawn(move || {
                tell.send(rustix::thread::gettid()).unwrap();
                expect_abort(&mut *other);
            });
            wait_until_asleep(told.recv().unwrap());
            one.abort();
        });
    }
}

/// An abort wakes a peer that waits for space to send.
pub fn abort_while_the_peer_sends(subject: &Subject) {
    let endless = vec![0; ENDLESS];
    for side in SIDES {
        let (mut one, mut other) = subject.pair(side);
        let outcome = thread::scope(|scope| {
            let (tell, told) = mpsc::channel();
            let endless = &endless;
            let sending = scope.spawn(move || {
                tell.send(rustix::thread::gettid()).unwrap();
                let time_limit = TimeLimit::new();
                other.send(b"head", Body::Memory(endless), &time_limit.operation())
            });
            wait_until_asleep(told.recv().unwrap());
            one.abort();
            sending.join().unwrap()
        });
        assert!(matches!(outcome, Err(ChannelError::Aborted)), "{outcome:?}");
    }
}

/// Receives until the channel fails. The error must be an abort, and so must that of further receives.
fn expect_abort(channel: &mut dyn Channel) {
    let time_limit = TimeLimit::new();
    let mut buffer = [0; 1000];
    let error = loop {
        match channel.receive(&mut buffer, &time_limit.operation()) {
            Ok(Received::Bytes(_)) => {}
            Ok(Received::EndOfStream) => panic!("an abort looks like the end of the stream"),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, ChannelError::Aborted), "{error:?}");
    let again = channel.receive(&mut buffer, &time_limit.operation());
    assert!(again.is_err(), "an abort was forgotten: {again:?}");
}
