//! Transfers of several nodes that succeed: each node serves some stripes.

use std::fs;
use std::time::{Duration, UNIX_EPOCH};

use gridhaul_protocol::command::{StripeLayout, TransferMode};
use gridhaul_protocol::ranges::RangeSet;
use gridhaul_stack::Cancel;
use gridhaul_storage::ChecksumAlgorithm;
use gridhaul_transfer::{
    ChecksumRequest, Demands, Handling, Placement, Plan, Progress, SyncPolicy, Task, UploadName,
};

use crate::cluster::Cluster;
use crate::site::{
    Settings, Site, checksum, content, image, receive, receive_rest, send, send_rest,
};

const BLOCKED: StripeLayout = StripeLayout::Blocked {
    block_bytes: 50_000,
};

pub(crate) fn sending(restart: RangeSet) -> Plan {
    Plan {
        layout: BLOCKED,
        ..image(send_rest("a", restart), TransferMode::Extended, 1)
    }
}

/// Receives `b` under a temporary name.
pub(crate) fn uploading(restart: RangeSet, handling: Handling) -> Plan {
    Plan {
        handling: Handling {
            upload: UploadName::Temporary,
            ..handling
        },
        ..image(receive_rest("b", restart), TransferMode::Extended, 1)
    }
}

pub(crate) fn names(cluster: &Cluster) -> Vec<String> {
    let entries = fs::read_dir(cluster.nodes[0].directory.path()).expect("a directory");
    let mut names: Vec<String> = entries
        .map(|entry| entry.expect("an entry").file_name())
        .map(|name| name.into_string().expect("UTF-8"))
        .collect();
    names.sort();
    names
}

/// The checksum of `b` as a node finds it, and the number of bytes that it has read for it.
fn found(site: &Site, algorithm: ChecksumAlgorithm) -> (String, u64) {
    let request = ChecksumRequest {
        path: "b".into(),
        algorithm,
        offset: 0,
        length: None,
    };
    let found = site.session.checksum(&request, &0.into(), &Cancel::new());
    let found = found.expect("a readable file");
    (found.value, found.read_bytes)
}

#[test]
fn any_number_of_nodes_sends_to_any_number() {
    let data = content(1_300_001);
    for (senders, receivers) in (1..=3).flat_map(|n| (1..=3).map(move |m| (n, m))) {
        let (from, to) = (Cluster::new(senders, 3), Cluster::new(receivers, 3));
        for (layout, parallelism, upload) in [
            (BLOCKED, 1, UploadName::Final),
            (BLOCKED, 2, UploadName::Temporary),
            (StripeLayout::Partitioned, 1, UploadName::Temporary),
            (StripeLayout::Partitioned, 2, UploadName::Final),
        ] {
            from.connect(&to.listen());
            // All but the first file use the channels again.
            for length in [1_300_001, 0, 17, 400_000] {
                let case = format!("{senders} to {receivers}, {layout:?}, {length} bytes");
                from.nodes[0].write("a", &data[..length]);
                let mut sending = image(send("a"), TransferMode::Extended, parallelism);
                sending.layout = layout;
                let mut receiving = image(receive("b"), TransferMode::Extended, 1);
                receiving.handling.upload = upload;
                let reception = to.receive(&receiving);
                let sent = from.send(&sending);
                let (received, stored) = reception.expect_success();
                for outcome in &sent {
                    outcome.result.as_ref().expect("sent");
                }
                let bytes = |outcomes: &[gridhaul_transfer::Outcome]| {
                    outcomes.iter().map(|outcome| outcome.bytes).sum::<u64>()
                };
                assert_eq!(bytes(&sent), length as u64, "{case}");
                assert_eq!(bytes(&received), length as u64, "{case}");
                assert_eq!(stored.covered(), length as u64, "{case}");
                let channels: usize = received.iter().map(|outcome| outcome.channels).sum();
                assert_eq!(channels, 3 * usize::from(parallelism), "{case}");
                assert!(to.nodes[0].read("b") == data[..length], "{case}");
                assert_eq!(names(&to), ["b"], "{case}");
            }
        }
    }
}

#[test]
fn progress_and_total_are_those_of_the_node() {
    let (from, to) = (Cluster::new(2, 3), Cluster::new(1, 3));
    from.nodes[0].write("a", &content(170_000));
    from.connect(&to.listen());
    let present = RangeSet::from(0..60_000);
    to.nodes[0].write("b", &[0; 60_000]);
    let receiving = image(
        receive_rest("b", present.clone()),
        TransferMode::Extended,
        1,
    );
    let reception = to.receive(&receiving);
    // The stripes are 0-50 and 150-170, 50-100, 100-150 kB.
    let expected = [(20_000, vec![20_000, 50_000]), (40_000, vec![40_000])];
    for (node, (_, stripes)) in expected.into_iter().enumerate() {
        let sender = from.send_from(node, &sending(present.clone()));
        sender.finish().result.expect("sent");
        let total = stripes.iter().sum();
        assert_eq!(sender.transfer.survey().total_bytes, Some(total));
        // Each stripe has one channel.
        assert_eq!(sender.transfer.channels(), stripes);
        assert_eq!(sender.transfer.progress(), Progress { stripes });
    }
    reception.expect_success();
}

#[test]
fn parts_go_to_their_offset() {
    let (from, to) = (Cluster::new(2, 2), Cluster::new(2, 2));
    let data = content(300_000);
    from.nodes[0].write("a", &data);
    to.nodes[0].write("b", &[7; 500_000]);
    from.connect(&to.listen());
    let task = Task::ReceiveFile {
        path: "b".into(),
        placement: Placement::At(100_000),
        restart: RangeSet::new(),
        promised: Some(300_000),
    };
    let reception = to.receive(&image(task, TransferMode::Extended, 1));
    from.send(&sending(RangeSet::new()));
    reception.expect_success();
    let stored = to.nodes[0].read("b");
    assert!(stored[100_000..400_000] == data);
    assert!(stored[..100_000] == [7; 100_000] && stored[400_000..] == [7; 100_000]);
}

#[test]
fn the_lead_checks_what_has_arrived_at_all_nodes() {
    let (from, to) = (Cluster::new(3, 3), Cluster::new(3, 3));
    let data = content(700_000);
    from.nodes[0].write("a", &data);
    let modified = UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    let handling = Handling {
        sync: SyncPolicy::Data,
        checksums: vec![ChecksumAlgorithm::Adler32],
        demands: Demands {
            checksums: vec![(
                ChecksumAlgorithm::Md5,
                checksum(ChecksumAlgorithm::Md5, &data),
            )],
            modified: Some(modified),
            ..Demands::default()
        },
        ..Handling::default()
    };
    let mut receiving = uploading(RangeSet::new(), handling);
    let Task::ReceiveFile { promised, .. } = &mut receiving.task else {
        unreachable!("it receives");
    };
    *promised = Some(700_000);
    // The members have another file at that name in their memory.
    to.nodes[0].write("b", b"old");
    for node in &to.nodes {
        found(node, ChecksumAlgorithm::Adler32);
    }
    from.connect(&to.listen());
    let reception = to.receive(&receiving);
    from.send(&sending(RangeSet::new()));
    let (received, _) = reception.expect_success();
    let sum = checksum(ChecksumAlgorithm::Adler32, &data);
    assert_eq!(
        received[0].checksums,
        [(ChecksumAlgorithm::Adler32, sum.clone())]
    );
    assert!(
        received[1..]
            .iter()
            .all(|member| member.checksums.is_empty())
    );
    assert!(to.nodes[0].read("b") == data);
    let facts = fs::metadata(to.nodes[0].path("b")).expect("there");
    assert_eq!(facts.modified().expect("a time"), modified);
    // The lead remembers it, and the members do not.
    let read = |node: usize| found(&to.nodes[node], ChecksumAlgorithm::Adler32);
    assert_eq!(read(0), (sum.clone(), 0));
    assert_eq!(read(1), (sum.clone(), 700_000));
    assert_eq!(read(2), (sum, 700_000));
    assert_eq!(reception.lead.transfer.survey().total_bytes, Some(700_000));
    let state = reception.members.state();
    let mut totals = state
        .transfers
        .iter()
        .map(|member| member.survey().total_bytes);
    assert!(totals.all(|total| total.is_none()));
}

#[test]
fn members_forget_the_checksums_of_a_file_that_they_write_to() {
    let (from, to) = (Cluster::new(1, 2), Cluster::new(2, 2));
    let (old, new) = (content(200_000), vec![1; 200_000]);
    let member = &to.nodes[1];
    // It arrives as a whole at the node that is a member afterwards.
    from.nodes[0].write("a", &old);
    from.nodes[0].connect(member.listen(1));
    let mut alone = image(receive("b"), TransferMode::Extended, 1);
    alone.handling.checksums = vec![ChecksumAlgorithm::Adler32];
    let receiver = member.start(alone);
    let sender = from.nodes[0].start(image(send("a"), TransferMode::Extended, 1));
    sender.finish().result.expect("sent");
    receiver.finish().result.expect("received");
    let read = || found(member, ChecksumAlgorithm::Adler32);
    assert_eq!(read(), (checksum(ChecksumAlgorithm::Adler32, &old), 0));

    from.nodes[0].write("a", &new);
    from.connect(&to.listen());
    let reception = to.receive(&image(receive("b"), TransferMode::Extended, 1));
    from.send(&sending(RangeSet::new()));
    reception.expect_success();
    assert_eq!(
        read(),
        (checksum(ChecksumAlgorithm::Adler32, &new), 200_000)
    );
}

#[test]
fn holes_stay_holes_and_the_file_has_its_length() {
    for upload in [UploadName::Final, UploadName::Temporary] {
        let (from, to) = (Cluster::new(1, 3), Cluster::new(3, 3));
        // The last stripe, and the end of the others, are zeros.
        let mut data = vec![0; 1_500_001];
        data[..70_000].copy_from_slice(&content(70_000));
        from.nodes[0].write("a", &data);
        from.connect(&to.listen());
        let mut receiving = image(receive("b"), TransferMode::Extended, 1);
        receiving.handling.sparse = true;
        receiving.handling.upload = upload;
        let reception = to.receive(&receiving);
        from.send(&sending(RangeSet::new()));
        reception.expect_success();
        assert!(to.nodes[0].read("b") == data, "{upload:?}");
    }
}

#[test]
fn a_restart_completes_the_file_on_other_nodes() {
    for upload in [UploadName::Final, UploadName::Temporary] {
        let site = Site::new(Settings::default());
        let (from, to) = (Cluster::new(1, 2), Cluster::over(&site, 2, 2));
        let data = content(900_000);
        // Shorter than announced.
        from.nodes[0].write("a", &data[..500_000]);
        from.connect(&to.listen());
        let receiving = |restart| {
            let task = Task::ReceiveFile {
                path: "b".into(),
                placement: Placement::Replace,
                restart,
                promised: Some(900_000),
            };
            let mut plan = image(task, TransferMode::Extended, 1);
            plan.handling.upload = upload;
            plan
        };
        let reception = to.receive(&receiving(RangeSet::new()));
        from.send(&sending(RangeSet::new()));
        let (error, stored) = reception.expect_failure();
        assert!(
            error.to_string().contains("500000 bytes arrived"),
            "{error}"
        );
        assert_eq!(stored.to_string(), "0-500000");

        from.nodes[0].write("a", &data);
        let (from, to) = (
            Cluster::over(&from.nodes[0], 3, 3),
            Cluster::over(&site, 3, 3),
        );
        from.connect(&to.listen());
        let reception = to.receive(&receiving(stored.clone()));
        from.send(&sending(stored));
        let (_, rest) = reception.expect_success();
        assert_eq!(rest.covered(), 400_000);
        assert!(to.nodes[0].read("b") == data, "{upload:?}");
        assert_eq!(names(&to), ["b"]);
    }
}
