//! Checksums of arriving files: computed during the transfer, cached, and invalidated by changes.

use std::fs::{File, FileTimes, OpenOptions};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, UNIX_EPOCH};

use gridhaul_protocol::command::{Representation, StripeLayout, TransferMode};
use gridhaul_protocol::ranges::RangeSet;
use gridhaul_stack::Cancel;
use gridhaul_storage::{Checksum, ChecksumAlgorithm};
use gridhaul_transfer::{ChecksumRequest, Handling, Outcome, Placement, Plan, Task};

use crate::site::{Settings, Site, content, image, receive, receive_rest, send, send_rest};

/// The expected checksum.
fn expected(algorithm: ChecksumAlgorithm, bytes: &[u8]) -> String {
    let mut checksum = Checksum::new(algorithm);
    checksum.update(bytes);
    checksum.finish()
}

fn with_checksums(task: Task, mode: TransferMode, algorithms: &[ChecksumAlgorithm]) -> Plan {
    Plan {
        handling: Handling {
            checksums: algorithms.to_vec(),
            ..Handling::default()
        },
        ..image(task, mode, 1)
    }
}

/// Copies `a` to `b`.
fn copy(from: &Site, sending: Plan, to: &Site, receiving: Plan) -> Outcome {
    from.connect(to.listen(1));
    let receiver = to.start(receiving);
    let sender = from.start(sending);
    sender.finish().result.expect("sent");
    let outcome = receiver.finish();
    outcome.result.as_ref().expect("received");
    outcome
}

/// The checksum of `b`, and whether it came from the cache.
fn request(site: &Site, algorithm: ChecksumAlgorithm) -> (String, bool) {
    let whole_file = ChecksumRequest {
        path: Path::new("b").to_owned(),
        algorithm,
        offset: 0,
        length: None,
    };
    let read = AtomicU64::new(0);
    let found = site.session.checksum(&whole_file, &read, &Cancel::new());
    let found = found.expect("a readable file");
    assert_eq!(found.read_bytes, read.into_inner());
    (found.value, found.read_bytes == 0)
}

fn sites() -> (Site, Site) {
    let site = || Site::new(Settings::default());
    (site(), site())
}

#[test]
fn all_checksums_are_cached_after_the_transfer() {
    for (mode, channels, length) in [
        (TransferMode::Stream, 1, 700_001),
        (TransferMode::Extended, 1, 700_001),
        (TransferMode::Extended, 4, 3_000_017),
        (TransferMode::Extended, 4, 0),
        (TransferMode::Stream, 1, 0),
    ] {
        let (from, to) = sites();
        let data = content(length);
        from.write("a", &data);
        let sending = image(send("a"), mode, channels);
        let receiving = with_checksums(receive("b"), mode, &ChecksumAlgorithm::ALL);
        let mut arrived = copy(&from, sending, &to, receiving).checksums;
        arrived.sort_by_key(|(algorithm, _)| algorithm.name());
        let all = ChecksumAlgorithm::ALL.map(|algorithm| (algorithm, expected(algorithm, &data)));
        assert_eq!(arrived, all, "{mode:?} {channels}");
        for (algorithm, sum) in all {
            assert_eq!(request(&to, algorithm), (sum, true), "{algorithm}");
        }
        assert!(to.read("b") == data);
    }
}

#[test]
fn blocks_in_any_order_have_the_checksum_of_the_file() {
    let (from, to) = sites();
    let data = content(1_000_000);
    from.write("a", &data);
    let mut sending = image(send("a"), TransferMode::Extended, 8);
    sending.layout = StripeLayout::Blocked { block_bytes: 1000 };
    let sums = [
        ChecksumAlgorithm::Adler32,
        ChecksumAlgorithm::Crc32c,
        ChecksumAlgorithm::Sha1,
    ];
    let receiving = with_checksums(receive("b"), TransferMode::Extended, &sums);
    let arrived = copy(&from, sending, &to, receiving).checksums;
    assert_eq!(
        arrived,
        sums.map(|algorithm| (algorithm, expected(algorithm, &data)))
    );
}

#[test]
fn parts_of_files_have_no_checksums() {
    let sums = [ChecksumAlgorithm::Adler32, ChecksumAlgorithm::Md5];
    let data = content(10_000);
    let part = |placement| Task::ReceiveFile {
        path: Path::new("b").to_owned(),
        placement,
        restart: RangeSet::new(),
        promised: None,
    };
    let rest = RangeSet::from(0..4000);
    let tasks = [
        (send("a"), part(Placement::Append)),
        (send("a"), part(Placement::At(100))),
        (send_rest("a", rest.clone()), receive_rest("b", rest)),
    ];
    for (sent, received) in tasks {
        let (from, to) = sites();
        from.write("a", &data);
        to.write("b", &data);
        let sending = image(sent, TransferMode::Extended, 1);
        let receiving = with_checksums(received, TransferMode::Extended, &sums);
        assert!(copy(&from, sending, &to, receiving).checksums.is_empty());
        let now = to.read("b");
        for algorithm in sums {
            assert_eq!(request(&to, algorithm), (expected(algorithm, &now), false));
        }
    }
    let (from, to) = sites();
    from.write("a", b"one\ntwo\n");
    let text = |plan| Plan {
        representation: Representation::Ascii,
        ..plan
    };
    let sending = text(image(send("a"), TransferMode::Stream, 1));
    let receiving = text(with_checksums(receive("b"), TransferMode::Stream, &sums));
    assert!(copy(&from, sending, &to, receiving).checksums.is_empty());
    assert_eq!(to.read("b"), b"one\ntwo\n");
}

#[test]
fn a_changed_file_is_read_again() {
    type Change = fn(&Site);
    let changes: [Change; 4] = [
        |site| {
            let file = OpenOptions::new().write(true).open(site.path("b"));
            file.expect("there").write_all_at(b"!", 5).expect("written");
        },
        |site| {
            let file = OpenOptions::new().write(true).open(site.path("b"));
            file.expect("there").set_len(7).expect("cut");
        },
        |site| site.write("b", &content(5000)),
        |site| {
            let storage = site.session.storage();
            storage.truncate(Path::new("b"), 9).expect("cut");
        },
    ];
    for change in changes {
        let (from, to) = sites();
        from.write("a", &content(5000));
        let receiving = with_checksums(
            receive("b"),
            TransferMode::Stream,
            &[ChecksumAlgorithm::Adler32],
        );
        copy(
            &from,
            image(send("a"), TransferMode::Stream, 1),
            &to,
            receiving,
        );
        assert!(request(&to, ChecksumAlgorithm::Adler32).1);
        change(&to);
        let now = expected(ChecksumAlgorithm::Adler32, &to.read("b"));
        assert_eq!(request(&to, ChecksumAlgorithm::Adler32), (now, false));
    }
}

#[test]
fn setting_the_modification_time_keeps_checksums() {
    let (from, to) = sites();
    let data = content(5000);
    from.write("a", &data);
    let sums = [ChecksumAlgorithm::Adler32];
    let receiving = with_checksums(receive("b"), TransferMode::Stream, &sums);
    copy(
        &from,
        image(send("a"), TransferMode::Stream, 1),
        &to,
        receiving,
    );
    let time = UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    to.session.set_modified(Path::new("b"), time).expect("set");
    let sum = expected(ChecksumAlgorithm::Adler32, &data);
    assert_eq!(
        request(&to, ChecksumAlgorithm::Adler32),
        (sum.clone(), true)
    );
    let modified = File::open(to.path("b")).and_then(|file| file.metadata()?.modified());
    assert_eq!(modified.expect("there"), time);
    // If another program sets the time, it may have written before.
    let file = OpenOptions::new()
        .write(true)
        .open(to.path("b"))
        .expect("there");
    let other = FileTimes::new().set_modified(time + Duration::from_secs(1));
    file.set_times(other).expect("set");
    assert_eq!(request(&to, ChecksumAlgorithm::Adler32), (sum, false));
}

#[test]
fn a_requested_checksum_is_computed_with_the_next_file() {
    let (from, to) = sites();
    from.write("a", &content(300_000));
    let store = || {
        let mut receiving = image(receive("b"), TransferMode::Stream, 1);
        receiving.handling.requested_checksums = true;
        copy(
            &from,
            image(send("a"), TransferMode::Stream, 1),
            &to,
            receiving,
        );
    };
    store();
    let (sum, was_cached) = request(&to, ChecksumAlgorithm::Adler32);
    assert!(!was_cached);
    store();
    assert_eq!(request(&to, ChecksumAlgorithm::Adler32), (sum, true));
    assert!(!request(&to, ChecksumAlgorithm::Md5).1);
}
