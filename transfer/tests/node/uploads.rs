//! Uploads under temporary names, through the data node interface.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::sync::{Arc, mpsc};

use gridhaul_protocol::command::TransferMode;
use gridhaul_protocol::ranges::RangeSet;
use gridhaul_stack::Cancel;
use gridhaul_storage::ChecksumAlgorithm;
use gridhaul_transfer::{
    Answer, CancelReason, ChecksumRequest, Consent, Handling, PeerError, Placement, Plan, Task,
    TransferError, UploadName,
};
use proptest::prelude::*;

use crate::site::{
    Settings, Site, Started, checksum, content, image, receive, receive_rest, send, send_rest,
};

fn atomic(task: Task, mode: TransferMode, channels: u8) -> Plan {
    Plan {
        handling: Handling {
            upload: UploadName::Temporary,
            checksums: vec![ChecksumAlgorithm::Adler32],
            ..Handling::default()
        },
        ..image(task, mode, channels)
    }
}

fn names(site: &Site) -> Vec<String> {
    let entries = fs::read_dir(site.directory.path()).expect("a directory");
    let mut names: Vec<String> = entries
        .map(|entry| entry.expect("an entry").file_name())
        .map(|name| name.into_string().expect("UTF-8"))
        .collect();
    names.sort();
    names
}

#[test]
fn files_arrive_in_all_modes_with_their_checksums() {
    for (mode, channels) in [
        (TransferMode::Stream, 1),
        (TransferMode::Extended, 1),
        (TransferMode::Extended, 4),
    ] {
        let (from, to) = (
            Site::new(Settings::default()),
            Site::new(Settings::default()),
        );
        let data = content(1_500_001);
        from.write("a", &data);
        to.write("b", b"old");
        from.connect(to.listen(1));
        let receiver = to.start(atomic(receive("b"), mode, channels));
        let sender = from.start(image(send("a"), mode, channels));
        sender.finish().result.expect("sent");
        receiver.finish().result.expect("received");
        assert!(to.read("b") == data, "{mode:?}");
        assert_eq!(names(&to), ["b"]);
        let request = ChecksumRequest {
            path: "b".into(),
            algorithm: ChecksumAlgorithm::Adler32,
            offset: 0,
            length: None,
        };
        let found = to.session.checksum(&request, &0.into(), &Cancel::new());
        assert_eq!(found.expect("there").read_bytes, 0, "it is remembered");
    }
}

/// A transfer that has received all of a file and waits for the session.
struct Asking {
    from: Site,
    to: Site,
    receiver: Started,
    consent: Arc<Consent>,
    sums: Vec<(ChecksumAlgorithm, String)>,
}

impl Asking {
    /// Over a file with the content `old`.
    fn after(data: &[u8], mode: TransferMode) -> Self {
        let (from, to) = (
            Site::new(Settings::default()),
            Site::new(Settings::default()),
        );
        from.write("a", data);
        to.write("b", b"old");
        from.connect(to.listen(1));
        let (ask, asked) = mpsc::channel();
        let consent = Arc::new(Consent::new(Box::new(move |sums| {
            ask.send(sums).expect("the test waits");
        })));
        let mut plan = atomic(receive("b"), mode, 1);
        plan.handling.demands.consent = Some(consent.clone());
        let receiver = to.start(plan);
        let sender = from.start(image(send("a"), mode, 1));
        // The sender does not wait for the consent.
        sender.finish().result.expect("sent");
        let sums = asked.recv().expect("asked");
        assert_eq!(to.read("b"), b"old");
        Self {
            from,
            to,
            receiver,
            consent,
            sums,
        }
    }
}

#[test]
fn a_file_replaces_the_old_one_with_the_consent_of_the_session() {
    for mode in [TransferMode::Stream, TransferMode::Extended] {
        for data in [content(1_500_001), Vec::new()] {
            let asking = Asking::after(&data, mode);
            let adler32 = checksum(ChecksumAlgorithm::Adler32, &data);
            assert_eq!(asking.sums, [(ChecksumAlgorithm::Adler32, adler32)]);
            asking.consent.answer(Answer::Complete);
            asking.receiver.finish().result.expect("received");
            assert!(asking.to.read("b") == data);
            assert_eq!(names(&asking.to), ["b"]);
        }
    }
}

#[test]
fn a_wrong_file_is_removed_and_one_without_an_answer_stays_for_a_restart() {
    let data = content(1_500_001);
    let asking = Asking::after(&data, TransferMode::Stream);
    asking.consent.answer(Answer::WrongChecksum {
        computed: "1".to_owned(),
        expected: "2".to_owned(),
    });
    let error = asking.receiver.finish().result.expect_err("refused");
    let is_wrong = matches!(error, TransferError::Peer(PeerError::WrongChecksum { .. }));
    assert!(is_wrong, "{error:?}");
    assert_eq!(names(&asking.to), ["b"]);
    assert_eq!(asking.to.read("b"), b"old");

    let asking = Asking::after(&data, TransferMode::Stream);
    asking
        .receiver
        .transfer
        .cancel(CancelReason::ControlChannelLost);
    let error = asking.receiver.finish().result.expect_err("cancelled");
    let expected = TransferError::Cancelled(CancelReason::ControlChannelLost);
    assert_eq!(error.to_string(), expected.to_string());
    assert_eq!(asking.to.read("b"), b"old");
    let Asking { from, to, .. } = asking;
    from.connect(to.listen(1));
    let present = RangeSet::from(0..1_000_000);
    let rest = receive_rest("b", present.clone());
    let receiver = to.start(atomic(rest, TransferMode::Stream, 1));
    let sender = from.start(image(send_rest("a", present), TransferMode::Stream, 1));
    sender.finish().result.expect("sent");
    receiver.finish().result.expect("received");
    assert!(to.read("b") == data);
}

#[test]
fn a_failed_upload_without_a_byte_leaves_nothing() {
    let site = Site::new(Settings::default());
    site.listen(1);
    let receiver = site.start(atomic(receive("b"), TransferMode::Stream, 1));
    receiver.transfer.cancel(CancelReason::Abort);
    let error = receiver.finish().result.expect_err("aborted");
    assert!(matches!(error, TransferError::Cancelled(_)), "{error}");
    assert!(names(&site).is_empty());
}

#[test]
fn an_append_to_an_existing_file_is_in_place() {
    let (from, to) = (
        Site::new(Settings::default()),
        Site::new(Settings::default()),
    );
    from.write("a", b"end");
    to.write("b", b"beginning ");
    let task = Task::ReceiveFile {
        path: "b".into(),
        placement: Placement::Append,
        restart: RangeSet::new(),
        promised: None,
    };
    from.connect(to.listen(1));
    let receiver = to.start(atomic(task, TransferMode::Extended, 1));
    let sender = from.start(image(send("a"), TransferMode::Extended, 1));
    sender.finish().result.expect("sent");
    receiver.finish().result.expect("received");
    assert_eq!(to.read("b"), b"beginning end");
}

/// Another account that could open the temporary file could read what arrives in it.
#[test]
fn an_upload_that_replaces_a_file_is_private_until_it_is_complete() {
    for (mode, part) in [
        (TransferMode::Stream, ".b.gridhaul-part"),
        (TransferMode::Extended, ".b.gridhaul-blocks"),
    ] {
        for kept in [0, 3] {
            let (from, to) = (
                Site::new(Settings::default()),
                Site::new(Settings::default()),
            );
            let rights = |name: &str| {
                let found = fs::metadata(to.path(name)).expect("there");
                found.permissions().mode() & 0o777
            };
            to.write("b", b"old content");
            fs::set_permissions(to.path("b"), Permissions::from_mode(0o640)).expect("ours");
            // Of an upload that began when there was no private file.
            to.write(part, b"");
            fs::set_permissions(to.path(part), Permissions::from_mode(0o644)).expect("ours");
            let descriptor = File::open(to.path(part)).expect("readable");
            let attempt = |begin: u64| {
                let restart = match begin {
                    0 => RangeSet::new(),
                    _ => RangeSet::from(0..begin),
                };
                from.connect(to.listen(1));
                let task = Task::ReceiveFile {
                    path: "b".into(),
                    placement: Placement::Replace,
                    restart: restart.clone(),
                    promised: Some(11),
                };
                let receiver = to.start(atomic(task, mode, 1));
                let sender = from.start(image(send_rest("a", restart), mode, 1));
                sender.finish().result.expect("sent");
                receiver.finish().result
            };
            from.write("a", b"new con");
            attempt(kept).expect_err("shorter than announced");
            assert_eq!(rights(part), 0o600, "{mode:?} from {kept}");
            from.write("a", b"new content");
            attempt(7).expect("received");
            let expected = if kept == 0 {
                b"new content"
            } else {
                b"old content"
            };
            assert_eq!(to.read("b"), expected);
            assert_eq!(rights("b"), 0o640);
            assert_eq!(descriptor.metadata().expect("open").len(), 0);
            assert_eq!(names(&to), ["b"]);
        }
    }
}

/// An attempt of an upload: up to where the sender's file reaches when it fails, in parts of the whole.
fn attempts() -> impl Strategy<Value = Vec<usize>> {
    prop::collection::vec(0..=100_usize, 0..4)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// However often an upload fails, in either mode, its restart with what has arrived completes the file, and until then
    /// the old one is there.
    #[test]
    fn restarts_complete_the_file(cuts in attempts(), blocks in any::<bool>(), old in any::<bool>()) {
        let mode = if blocks { TransferMode::Extended } else { TransferMode::Stream };
        let (from, to) = (Site::new(Settings::default()), Site::new(Settings::default()));
        let data = content(200_001);
        if old {
            to.write("b", b"old");
        }
        let mut present = RangeSet::new();
        for cut in cuts {
            // The sender's file is shorter than announced, so the upload fails at its end.
            let length = (data.len() - 1) * cut / 100;
            if (length as u64) < present.end() {
                continue;
            }
            from.write("a", &data[..length]);
            from.connect(to.listen(1));
            let task = Task::ReceiveFile {
                path: "b".into(),
                placement: Placement::Replace,
                restart: present.clone(),
                promised: Some(data.len() as u64),
            };
            let receiver = to.start(atomic(task, mode, 2));
            let sender = from.start(image(send_rest("a", present.clone()), mode, 2));
            sender.finish().result.expect("sent");
            receiver.finish().result.expect_err("incomplete");
            present = RangeSet::from(0..length as u64);
            prop_assert_eq!(to.path("b").exists(), old);
        }
        if old {
            prop_assert_eq!(to.read("b"), b"old");
        }
        from.write("a", &data);
        from.connect(to.listen(1));
        let receiver = to.start(atomic(receive_rest("b", present.clone()), mode, 2));
        let sender = from.start(image(send_rest("a", present), mode, 2));
        sender.finish().result.expect("sent");
        receiver.finish().result.expect("received");
        prop_assert!(to.read("b") == data);
        prop_assert_eq!(names(&to), ["b"]);
    }
}
