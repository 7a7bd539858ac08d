//! Deadlines and cancellation.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use super::ends::ENDLESS;
use super::{Part, Subject, TimeLimit, file_of, wait_until_asleep};
use crate::{
    AcceptError, Body, Cancel, Channel, ChannelError, ConnectError, Operation, Received, Side,
    StackListener,
};

/// The calls that may block on an established channel.
#[derive(Debug, Clone, Copy)]
enum Call {
    Send,
    SendFile,
    Receive,
    ReceiveInto,
}

const CALLS: [Call; 4] = [Call::Send, Call::SendFile, Call::Receive, Call::ReceiveInto];

/// The most threads that a call may wake one after the other until it ends.
const WAKES: u32 = 4;

/// Each call ends at its deadline, and not before.
pub fn deadline_ends_every_call(subject: &Subject) {
    let ends_in_time = |call: &mut dyn FnMut(&Operation<'_>) -> ChannelError| {
        let cancel = Cancel::new();
        let deadline = Instant::now() + Duration::from_millis(30);
        let error = call(&Operation {
            deadline: Some(deadline),
            cancel: &cancel,
        });
        let late = Instant::now().checked_duration_since(deadline);
        assert!(matches!(error, ChannelError::DeadlineExceeded), "{error:?}");
        assert!(late.expect("not before the deadline") < Duration::from_secs(1));
    };
    let mut listener = subject.listen();
    ends_in_time(&mut |operation| accept(&mut listener, operation));
    for call in CALLS {
        let (mut channel, _peer) = subject.pair(Side::Connector);
        ends_in_time(&mut |operation| block(&mut *channel, call, operation));
    }
}

/// A call after its deadline or after a cancellation fails without any effect, even if it would not have to wait.
pub fn fails_at_once_after_the_deadline(subject: &Subject) {
    let thrown = Cancel::new();
    thrown.cancel();
    let cancelled = Operation {
        deadline: None,
        cancel: &thrown,
    };
    let waiting = Cancel::new();
    let late = Operation {
        deadline: Some(Instant::now()),
        cancel: &waiting,
    };
    for operation in [cancelled, late] {
        let is_right = |error: ChannelError| match operation.deadline {
            Some(_) => matches!(error, ChannelError::DeadlineExceeded),
            None => matches!(error, ChannelError::Cancelled),
        };
        let mut listener = subject.listen();
        assert!(is_right(accept(&mut listener, &operation)));
        let address = listener.address();
        match subject.stack.connect(address, &subject.sockets, &operation) {
            Err(ConnectError::Channel(error)) => assert!(is_right(error)),
            other => panic!("{other:?}"),
        }
        let (mut channel, mut peer) = subject.pair(Side::Connector);
        super::send(&mut *peer, b"something to receive");
        for call in CALLS {
            assert!(is_right(block(&mut *channel, call, &operation)), "{call:?}");
        }
        assert!(is_right(channel.finish(&operation).unwrap_err()));
    }
}

/// A sleeping call ends within 100 ms of its cancellation by another thread, plus the time to wake a few threads.
pub fn cancel_ends_an_idle_call(subject: &Subject) {
    cancels_in_time("accept", || {
        let mut listener = subject.listen();
        time_to_cancel(move |operation| accept(&mut listener, operation))
    });
    for call in CALLS {
        cancels_in_time(&format!("{call:?}"), || {
            let (mut channel, _peer) = subject.pair(Side::Connector);
            time_to_cancel(move |operation| block(&mut *channel, call, operation))
        });
    }
}

/// A call that never has to wait ends within a second of its cancellation, in one of three attempts: the machine may stall for
/// that long.
pub fn cancel_ends_a_busy_call(subject: &Subject) {
    let mut times = Vec::new();
    let is_in_time = (0..3).any(|_| {
        times.push(time_to_cancel_a_busy_call(subject));
        times
            .last()
            .is_some_and(|time| *time < Duration::from_secs(1))
    });
    assert!(is_in_time, "{times:?}");
}

fn time_to_cancel_a_busy_call(subject: &Subject) -> Duration {
    let (mut sender, mut receiver) = subject.pair(Side::Connector);
    let moved = AtomicU64::new(0);
    let cancel = Cancel::new();
    thread::scope(|scope| {
        let sending = scope.spawn(|| {
            let operation = Operation {
                deadline: TimeLimit::new().operation().deadline,
                cancel: &cancel,
            };
            // Small pieces, so that the receiver always keeps up.
            let outcome = send_holes(&mut *sender, 32, &moved, &operation);
            drop(sender);
            (Instant::now(), outcome)
        });
        scope.spawn(|| {
            let time_limit = TimeLimit::new();
            let mut buffer = vec![0; 1 << 16];
            while let Ok(Received::Bytes(_)) =
                receiver.receive(&mut buffer, &time_limit.operation())
            {}
        });
        let time_limit = TimeLimit::new();
        while moved.load(Ordering::Acquire) < 10_000 {
            time_limit.operation().check().unwrap();
            thread::yield_now();
        }
        let thrown = Instant::now();
        cancel.cancel();
        let (ended, outcome) = sending.join().unwrap();
        assert!(
            matches!(outcome, Err(ChannelError::Cancelled)),
            "{outcome:?}"
        );
        ended.saturating_duration_since(thrown)
    })
}

/// Runs a measurement five times, in up to three attempts (see the documentation of `conformance` on busy machines). The time
/// that the machine needs to wake a thread is added to the limits.
fn cancels_in_time(what: &str, measure: impl Fn() -> Duration) {
    let is_in_time = (0..3).any(|_| {
        let mut times = [(); 5].map(|()| measure());
        let mut wakes = [(); 5].map(|()| time_to_wake());
        times.sort_unstable();
        wakes.sort_unstable();
        let allowed = |limit, wake| limit + WAKES * wake;
        assert!(
            times[4] < allowed(Duration::from_secs(1), wakes[4]),
            "{what}: {times:?}, and any thread: {wakes:?}"
        );
        times[2] < allowed(Duration::from_millis(100), wakes[2])
    });
    assert!(is_in_time, "{what}: more than 100 ms, three times");
}

/// The time that a sleeping thread takes to continue after it is woken.
fn time_to_wake() -> Duration {
    thread::scope(|scope| {
        let (tell, told) = mpsc::channel();
        let (wake, woken) = mpsc::channel();
        let sleeper = scope.spawn(move || {
            tell.send(rustix::thread::gettid()).unwrap();
            woken.recv().unwrap();
            Instant::now()
        });
        wait_until_asleep(told.recv().unwrap());
        let thrown = Instant::now();
        wake.send(()).unwrap();
        let ended = sleeper.join().unwrap();
        ended.saturating_duration_since(thrown)
    })
}

/// The time that a sleeping call on another thread takes to end after its cancellation.
fn time_to_cancel(call: impl FnOnce(&Operation<'_>) -> ChannelError + Send) -> Duration {
    let cancel = Cancel::new();
    thread::scope(|scope| {
        let (tell, told) = mpsc::channel();
        let cancel = &cancel;
        let blocked = scope.spawn(move || {
            tell.send(rustix::thread::gettid()).unwrap();
            let error = call(&Operation {
                deadline: None,
                cancel,
            });
            (Instant::now(), error)
        });
        wait_until_asleep(told.recv().unwrap());
        let thrown = Instant::now();
        cancel.cancel();
        let (ended, error) = blocked.join().unwrap();
        assert!(matches!(error, ChannelError::Cancelled), "{error:?}");
        ended.saturating_duration_since(thrown)
    })
}

fn accept(listener: &mut StackListener, operation: &Operation<'_>) -> ChannelError {
    match listener.accept(operation) {
        Err(AcceptError::Listener(error)) => error,
        other => panic!("{other:?}"),
    }
}

/// Makes a call on a channel whose peer neither sends nor receives.
fn block(channel: &mut dyn Channel, call: Call, operation: &Operation<'_>) -> ChannelError {
    let moved = AtomicU64::new(0);
    let outcome = match call {
        Call::Send => channel.send(&[], Body::Memory(&vec![0; ENDLESS]), operation),
        Call::SendFile => send_holes(channel, 1 << 16, &moved, operation),
        Call::Receive => channel.receive(&mut [0; 100], operation).map(|_| ()),
        Call::ReceiveInto => {
            let file = file_of(&[]);
            let part = Part {
                file: &file,
                offset: 0,
                length: 100,
                scratch: 100,
                moved: &moved,
            };
            part.receive(channel, operation).map(|_| ())
        }
    };
    outcome.expect_err("the peer neither sends nor receives")
}

/// Sends a sparse file that is longer than all buffers.
fn send_holes(
    channel: &mut dyn Channel,
    scratch: usize,
    moved: &AtomicU64,
    operation: &Operation<'_>,
) -> Result<(), ChannelError> {
    let file = file_of(&[]);
    let part = Part {
        file: &file,
        offset: 0,
        length: 1 << 40,
        scratch,
        moved,
    };
    rustix::fs::ftruncate(&file, part.length).unwrap();
    part.send(channel, &[], operation)
}
