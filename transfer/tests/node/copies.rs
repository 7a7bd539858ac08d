//! Copies from node to node, compared byte by byte.

use crate::site::{Settings, Site, content, image, receive, receive_rest, send, send_rest};
use gridhaul_protocol::command::{StripeLayout, TransferMode};
use gridhaul_protocol::ranges::RangeSet;
use gridhaul_transfer::{Outcome, Placement, Plan, Task};
use proptest::prelude::*;

/// Runs two plans against each other, and returns both outcomes.
fn copy(from: &Site, sending: Plan, to: &Site, receiving: Plan) -> (Outcome, Outcome) {
    let receiver = to.start(receiving);
    let sender = from.start(sending);
    (sender.finish(), receiver.finish())
}

fn expect_success((sent, received): (Outcome, Outcome)) {
    sent.result.expect("sent");
    received.result.expect("received");
    assert_eq!(sent.bytes, received.bytes);
}

#[test]
fn a_stream_works_in_both_connection_directions() {
    let (from, to) = (
        Site::new(Settings::default()),
        Site::new(Settings::default()),
    );
    let data = content(1_000_003);
    from.write("a", &data);
    from.connect(to.listen(1));
    let plans = || {
        (
            image(send("a"), TransferMode::Stream, 1),
            image(receive("b"), TransferMode::Stream, 1),
        )
    };
    let (sending, receiving) = plans();
    expect_success(copy(&from, sending, &to, receiving));
    assert!(to.read("b") == data);

    to.connect(from.listen(1));
    let (sending, receiving) = plans();
    expect_success(copy(&from, sending, &to, receiving));
    assert!(to.read("b") == data);
}

#[test]
fn channels_are_kept_for_the_next_files() {
    let (from, to) = (
        Site::new(Settings::default()),
        Site::new(Settings::default()),
    );
    from.connect(to.listen(1));
    for (round, length) in [0, 1, 65_536, 300_000, 17].into_iter().enumerate() {
        let data = content(length);
        from.write("a", &data);
        let receiver = to.start(image(receive("b"), TransferMode::Extended, 1));
        let sender = from.start(image(send("a"), TransferMode::Extended, 4));
        assert_eq!(sender.wait_started(), round > 0);
        assert_eq!(receiver.wait_started(), round > 0);
        let sent = sender.finish();
        sent.result.expect("sent");
        assert_eq!(sent.channels, 4);
        receiver.finish().result.expect("received");
        assert!(to.read("b") == data, "round {round}");
        let marked = receiver.transfer.take_received();
        assert_eq!(marked.covered(), length as u64);
    }
}

#[test]
fn blocks_of_large_files_are_larger_than_buffers() {
    let (from, to) = (
        Site::new(Settings::default()),
        Site::new(Settings::default()),
    );
    let data = content(4_000_000);
    from.write("a", &data);
    from.connect(to.listen(1));
    let (sent, received) = copy(
        &from,
        image(send("a"), TransferMode::Extended, 1),
        &to,
        image(receive("b"), TransferMode::Extended, 1),
    );
    sent.result.expect("sent");
    received.result.expect("received");
    assert!(sent.block_bytes >= 4 * 64 * 1024, "{}", sent.block_bytes);
    assert_eq!(sent.block_bytes, received.block_bytes);
    assert!(to.read("b") == data);
}

#[test]
fn parts_are_read_and_written_at_their_offsets() {
    let (from, to) = (
        Site::new(Settings::default()),
        Site::new(Settings::default()),
    );
    let data = content(10_000);
    for mode in [TransferMode::Stream, TransferMode::Extended] {
        from.write("a", &data);
        to.write("b", &[7; 600]);
        from.connect(to.listen(1));
        let sending = Task::SendFile {
            path: "a".into(),
            offset: 1_000,
            length: Some(300),
            restart: RangeSet::new(),
        };
        let receiving = Task::ReceiveFile {
            path: "b".into(),
            placement: Placement::At(100),
            restart: RangeSet::new(),
            promised: Some(300),
        };
        expect_success(copy(
            &from,
            image(sending, mode, 2),
            &to,
            image(receiving, mode, 1),
        ));
        let mut expected = vec![7; 600];
        expected[100..400].copy_from_slice(&data[1_000..1_300]);
        assert!(to.read("b") == expected);

        let appending = Task::ReceiveFile {
            path: "b".into(),
            placement: Placement::Append,
            restart: RangeSet::new(),
            promised: None,
        };
        from.connect(to.listen(1));
        expect_success(copy(
            &from,
            image(send("a"), mode, 1),
            &to,
            image(appending, mode, 1),
        ));
        expected.extend_from_slice(&data);
        assert!(to.read("b") == expected);
    }
}

#[test]
fn a_part_behind_the_end_is_empty() {
    let (from, to) = (
        Site::new(Settings::default()),
        Site::new(Settings::default()),
    );
    from.write("a", b"short");
    from.connect(to.listen(1));
    let sending = Task::SendFile {
        path: "a".into(),
        offset: 100,
        length: Some(5),
        restart: RangeSet::new(),
    };
    let plans = (
        image(sending, TransferMode::Stream, 1),
        image(receive("b"), TransferMode::Stream, 1),
    );
    expect_success(copy(&from, plans.0, &to, plans.1));
    assert!(to.read("b").is_empty());
}

#[test]
fn a_copy_succeeds_with_fewer_permits_than_channels() {
    let settings = || Settings {
        workers: 2,
        ..Settings::default()
    };
    let (from, to) = (Site::new(settings()), Site::new(settings()));
    let data = content(2_000_000);
    from.write("a", &data);
    from.connect(to.listen(3));
    let sending = image(send("a"), TransferMode::Extended, 16);
    expect_success(copy(
        &from,
        sending,
        &to,
        image(receive("b"), TransferMode::Extended, 1),
    ));
    assert!(to.read("b") == data);
}

fn ranges_within(length: u64) -> impl Strategy<Value = RangeSet> {
    prop::collection::vec((0..=length, 0..=length), 0..6)
        .prop_map(|pairs| pairs.into_iter().map(|(a, b)| a.min(b)..a.max(b)).collect())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// A restart sends exactly the missing ranges, over any number of channels and stripes.
    #[test]
    fn a_restart_completes_a_file(
        (length, present) in (0_u64..400_000).prop_flat_map(|l| (Just(l), ranges_within(l))),
        parallelism in 1_u8..6,
        stripes in 1_usize..4,
        layout_block in prop::option::of(1_u64..100_000),
        block_bytes in 100_usize..100_000,
        (ordered, sparse) in any::<(bool, bool)>(),
    ) {
        let settings = || Settings { block_bytes, ..Settings::default() };
        let (from, to) = (Site::new(settings()), Site::new(settings()));
        let data = content(usize::try_from(length).expect("small"));
        from.write("a", &data);
        let mut partial = vec![0; data.len()];
        for range in present.iter() {
            let range = usize::try_from(range.start).expect("small")
                ..usize::try_from(range.end).expect("small");
            partial[range.clone()].copy_from_slice(&data[range]);
        }
        to.write("b", &partial);

        from.connect(to.listen(stripes));
        let mut sending =
            image(send_rest("a", present.clone()), TransferMode::Extended, parallelism);
        sending.layout = layout_block
            .map_or(StripeLayout::Partitioned, |block_bytes| StripeLayout::Blocked { block_bytes });
        let mut receiving = image(receive_rest("b", present.clone()), TransferMode::Extended, 1);
        receiving.handling.ordered = ordered;
        receiving.handling.sparse = sparse;
        sending.handling.sparse = sparse;
        let receiver = to.start(receiving);
        let sent = from.start(sending).finish();
        let received = receiver.finish();
        sent.result.expect("sent");
        received.result.expect("received");
        // With an empty REST the whole file is sent.
        prop_assert_eq!(received.bytes, length - present.covered());
        prop_assert_eq!(receiver.transfer.take_received().covered(), length - present.covered());
        prop_assert!(to.read("b") == data);
    }
}
