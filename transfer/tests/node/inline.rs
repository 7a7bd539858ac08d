//! Small files on open channels, transferred on the calling thread.

use crate::site::{Settings, Site, Started, content, image, receive, send};
use gridhaul_protocol::command::TransferMode;
use gridhaul_protocol::ranges::RangeSet;
use gridhaul_transfer::{CancelReason, Event, Placement, Plan, Task, TransferError};

/// Two sites with one open channel between them.
fn connected() -> (Site, Site) {
    let (from, to) = (
        Site::new(Settings::default()),
        Site::new(Settings::default()),
    );
    from.write("first", b"first");
    from.connect(to.listen(1));
    let receiver = to.start(image(receive("first"), TransferMode::Extended, 1));
    let sender = from.start(image(send("first"), TransferMode::Extended, 1));
    sender.finish().result.expect("sent");
    receiver.finish().result.expect("received");
    (from, to)
}

fn sending(name: &str) -> Plan {
    image(send(name), TransferMode::Extended, 1)
}

fn receiving(name: &str, bytes: u64) -> Plan {
    let task = Task::ReceiveFile {
        path: name.into(),
        placement: Placement::Replace,
        restart: RangeSet::new(),
        promised: Some(bytes),
    };
    image(task, TransferMode::Extended, 1)
}

/// The events so far: whether the transfer has started, and its result.
fn reported(transfer: &Started) -> (bool, Option<Result<(), TransferError>>) {
    let (mut has_started, mut end) = (false, None);
    for event in transfer.events.try_iter() {
        match event {
            Event::Started { reused } => has_started = reused,
            Event::Finished(outcome) => end = Some(outcome.result),
            Event::Queued { .. } => {}
        }
    }
    (has_started, end)
}

#[test]
fn small_files_are_transferred_within_the_call() {
    let (from, to) = connected();
    let mut received_here = 0;
    for length in [0, 1, 4096, 16 * 1024 - 100, 5, 4096, 0, 1000] {
        let data = content(length);
        from.write("a", &data);
        assert!(from.session.may_be_quick(&sending("a")));
        let receiver = to.start_here(receiving("b", length as u64));
        assert!(matches!(reported(&receiver), (true, None)));
        assert!(receiver.transfer.is_held());
        let sender = from.start_here(sending("a"));
        assert!(matches!(reported(&sender), (true, Some(Ok(())))));

        receiver.transfer.resume_here();
        assert!(!receiver.transfer.is_held());
        match reported(&receiver) {
            (false, Some(result)) => {
                result.expect("received");
                received_here += 1;
            }
            // On a busy machine it may arrive later.
            _ => receiver.finish().result.expect("received"),
        }
        assert!(to.read("b") == data);
    }
    assert!(received_here > 0);
}

#[test]
fn a_file_that_was_sent_ahead_is_received_before_the_reply() {
    let (from, to) = connected();
    from.write("a", b"12345");
    let receiver = to.start_here(receiving("b", 5));
    receiver.transfer.resume_if_arrived();
    assert!(receiver.transfer.is_held(), "nothing was sent");
    let sender = from.start_here(sending("a"));
    sender.finish().result.expect("sent");
    while receiver.transfer.is_held() {
        receiver.transfer.resume_if_arrived();
        std::thread::yield_now();
    }
    receiver.finish().result.expect("received");
    assert_eq!(to.read("b"), b"12345");

    // One call takes all that has arrived, so that the next file waits in memory.
    for _ in 0..2 {
        from.start_here(sending("a")).finish().result.expect("sent");
    }
    for name in ["c", "d"] {
        let receiver = to.start_here(receiving(name, 5));
        while receiver.transfer.is_held() {
            receiver.transfer.resume_if_arrived();
            std::thread::yield_now();
        }
        receiver.finish().result.expect("received");
        assert_eq!(to.read(name), b"12345");
    }
}

#[test]
fn transfers_that_would_wait_continue_on_a_worker() {
    let (from, to) = connected();
    let data = content(10_000_000);
    from.write("large", &data);
    let receiver = to.start_here(receiving("large", 1000));
    let sender = from.start_here(sending("large"));
    assert!(!sender.transfer.is_held());
    receiver.transfer.resume_here();
    sender.finish().result.expect("sent");
    receiver.finish().result.expect("received");
    assert!(to.read("large") == data);

    let receiver = to.start_here(receiving("late", 5));
    receiver.transfer.resume_here();
    assert!(matches!(reported(&receiver), (true, None)));
    from.start_here(sending("first"))
        .finish()
        .result
        .expect("sent");
    receiver.finish().result.expect("received");
    assert_eq!(to.read("late"), b"first");
    assert!(!to.session.may_be_quick(&receiving("next", 5)));
}

#[test]
fn errors_are_reported_as_from_a_worker() {
    let (from, to) = connected();
    let sender = from.start_here(sending("missing"));
    let (has_started, end) = reported(&sender);
    assert!(!has_started && matches!(end, Some(Err(TransferError::Open { .. }))));
    let receiver = to.start_here(receiving("short", 6));
    from.write("five", b"12345");
    from.connect(Vec::new());
    assert!(!from.session.may_be_quick(&sending("five")));
    receiver.transfer.cancel(CancelReason::Abort);
    assert!(!receiver.transfer.is_held());
    let error = receiver.finish().result.expect_err("cancelled");
    assert!(matches!(error, TransferError::Cancelled(_)));
}
