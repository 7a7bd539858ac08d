//! Small files that have no name until they are complete, through the data node interface.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use gridhaul_protocol::command::TransferMode;
use gridhaul_storage::ChecksumAlgorithm;
use gridhaul_transfer::{Answer, Consent, Handling, Plan, TransferError, UploadName};
use rustix::io::Errno;

use crate::site::{Settings, Site, checksum, content, image, receive, send};

/// Receives `b`, which is complete with so many bytes.
fn unnamed(bytes: u64) -> Plan {
    let consent = Consent::new(Box::new(|_| {}));
    consent.answer(Answer::CompleteWith(bytes));
    let mut plan = image(receive("b"), TransferMode::Extended, 1);
    plan.handling = Handling {
        upload: UploadName::Unnamed,
        ..plan.handling
    };
    plan.handling.demands.consent = Some(Arc::new(consent));
    plan
}

fn names(site: &Site) -> Vec<String> {
    let entries = fs::read_dir(site.directory.path()).expect("a directory");
    let names = entries.map(|entry| entry.expect("an entry").file_name());
    let mut names: Vec<_> = names
        .map(|name| name.into_string().expect("UTF-8"))
        .collect();
    names.sort();
    names
}

/// Sends `data` to a transfer with this plan.
fn transferred(to: &Site, data: &[u8], plan: Plan) -> Result<(), TransferError> {
    let from = Site::new(Settings::default());
    from.write("a", data);
    from.connect(to.listen(1));
    let receiver = to.start(plan);
    let sender = from.start(image(send("a"), TransferMode::Extended, 1));
    sender.finish().result.expect("sent");
    receiver.finish().result
}

#[test]
fn files_arrive_with_all_that_is_demanded() {
    let time = UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    for length in [0, 1, 4096, 100_000] {
        let data = content(length);
        for (old, sum) in [(false, false), (true, false), (false, true)] {
            let to = Site::new(Settings::default());
            to.write(".b.gridhaul-blocks", b"of a copy that was killed");
            if old {
                to.write("b", b"old");
            }
            let mut plan = unnamed(length as u64);
            plan.handling.demands.modified = Some(time);
            if sum {
                let adler32 = checksum(ChecksumAlgorithm::Adler32, &data);
                let demands = &mut plan.handling.demands;
                demands.checksums = vec![(ChecksumAlgorithm::Adler32, adler32)];
            }
            transferred(&to, &data, plan).expect("received");
            assert!(to.read("b") == data, "{length} {old} {sum}");
            let found = fs::metadata(to.path("b")).expect("there");
            assert_eq!(found.modified().expect("known"), time);
            assert_eq!(names(&to), ["b"]);
        }
    }
}

#[test]
fn a_file_of_another_size_leaves_nothing() {
    let to = Site::new(Settings::default());
    let storage = to.session.storage();
    let is_supported = storage.open_unnamed(Path::new("b")).is_some();
    for bytes in [9, 11] {
        transferred(&to, &content(10), unnamed(bytes)).expect_err("another size");
        assert_eq!(names(&to).is_empty(), is_supported);
    }
    to.write("b", b"old");
    transferred(&to, &content(10), unnamed(11)).expect_err("another size");
    assert_eq!(to.read("b"), b"old");
}

#[test]
fn a_file_that_appears_meanwhile_stays() {
    let to = Site::new(Settings::default());
    let data = content(10);
    let from = Site::new(Settings::default());
    from.write("first", b"first");
    from.connect(to.listen(1));
    let receiver = to.start(image(receive("first"), TransferMode::Extended, 1));
    let sender = from.start(image(send("first"), TransferMode::Extended, 1));
    sender.finish().result.expect("sent");
    receiver.finish().result.expect("received");
    from.write("a", &data);
    // It is open now, and waits for the data.
    let receiver = to.start(unnamed(10));
    receiver.wait_started();
    let had_name = to.path(".b.gridhaul-blocks").exists();
    to.write("b", b"another");
    let sender = from.start(image(send("a"), TransferMode::Extended, 1));
    sender.finish().result.expect("sent");
    match receiver.finish().result {
        // A file system without such files.
        Ok(()) => assert!(had_name && to.read("b") == data),
        Err(TransferError::Storage(error)) => {
            assert_eq!(error.errno, Errno::EXIST);
            assert!(!had_name);
            assert_eq!(to.read("b"), b"another");
        }
        Err(error) => panic!("{error}"),
    }
    assert_eq!(names(&to), ["b", "first"]);
}
