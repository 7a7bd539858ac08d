//! Files between two clusters over TCP on the loopback interface, each cluster with several members.

use std::sync::Arc;

use gridhaul_protocol::command::{StripeLayout, TransferMode};
use gridhaul_protocol::ranges::RangeSet;
use gridhaul_storage::{Checksum, ChecksumAlgorithm};
use gridhaul_transfer::{
    BandwidthLimit, CancelReason, Event, LineIterator, LineSource, NodeSession, Outcome, Placement,
    Plan, Stripes, Task, TransferError, UploadName,
};
use proptest::prelude::*;

use crate::late::late_node;
use crate::random::content;
use crate::site::{
    Site, Started, TIME_LIMIT, connecting, detail, listening, plan, receive, send, start,
};

/// Two clusters, with a session on each.
struct Copy {
    from: Site,
    to: Site,
    sender: Arc<dyn NodeSession>,
    receiver: Arc<dyn NodeSession>,
}

impl Copy {
    fn new(senders: usize, receivers: usize) -> Self {
        let (from, to) = (Site::local(senders), Site::local(receivers));
        let (sender, receiver) = (from.attach(), to.attach());
        Self {
            from,
            to,
            sender,
            receiver,
        }
    }

    /// `SPAS` there, `SPOR` here.
    fn open(&self, at_most: usize) -> usize {
        let stripes = Stripes::Many { at_most };
        let peers = self.receiver.listen(&listening(stripes)).expect("ports");
        let count = peers.len();
        self.sender.connect(&connecting(peers)).expect("a stack");
        count
    }

    /// Copies a file, and checks it. Returns the outcomes of the sender and the receiver.
    fn run(&self, name: &str, bytes: &[u8], order: &Order) -> (Outcome, Outcome) {
        self.from.write(name, bytes);
        let received = start(&self.receiver, order.plan(receive(name)));
        let sent = start(&self.sender, order.plan(send(name)));
        let (sent, received) = (sent.succeed(), received.succeed());
        assert!(self.to.read(name) == bytes, "{name} differs");
        assert_eq!(sent.bytes, bytes.len() as u64);
        assert_eq!(received.bytes, bytes.len() as u64);
        (sent, received)
    }
}

/// How a file is copied.
#[derive(Debug, Clone)]
struct Order {
    layout: StripeLayout,
    parallelism: u8,
    upload: UploadName,
}

impl Order {
    fn plan(&self, task: Task) -> Plan {
        let mut plan = plan(task, TransferMode::Extended);
        plan.layout = self.layout;
        plan.parallelism = self.parallelism;
        plan.handling.upload = self.upload;
        plan.handling.checksums = vec![ChecksumAlgorithm::Crc32c];
        plan
    }
}

fn order() -> impl Strategy<Value = Order> {
    let layouts = prop_oneof![
        Just(StripeLayout::Partitioned),
        (1_u64..200_000).prop_map(|block_bytes| StripeLayout::Blocked { block_bytes }),
    ];
    let uploads = prop_oneof![Just(UploadName::Final), Just(UploadName::Temporary)];
    (layouts, 1_u8..4, uploads).prop_map(|(layout, parallelism, upload)| Order {
        layout,
        parallelism,
        upload,
    })
}

fn crc32c(bytes: &[u8]) -> String {
    let mut checksum = Checksum::new(ChecksumAlgorithm::Crc32c);
    checksum.update(bytes);
    checksum.finish()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn files_of_any_size_arrive_from_any_number_of_members_at_any_other(
        (senders, receivers) in (1_usize..6, 1_usize..6),
        at_most in 1_usize..8,
        sizes in prop::collection::vec(0_usize..1_500_000, 1..4),
        order in order(),
    ) {
        let copy = Copy::new(senders, receivers);
        let stripes = copy.open(at_most);
        prop_assert_eq!(stripes, at_most.min(receivers));
        for (number, size) in sizes.into_iter().enumerate() {
            // The second file goes over the channels of the first one.
            let bytes = content(number as u64, size);
            let (sent, received) = copy.run(&format!("file{number}"), &bytes, &order);
            prop_assert_eq!((sent.stripes, received.stripes), (stripes, stripes));
            prop_assert_eq!(detail(&received, "node").len(), stripes);
            prop_assert_eq!(detail(&sent, "node").len(), stripes.min(senders));
            for (algorithm, value) in received.checksums {
                prop_assert_eq!(algorithm, ChecksumAlgorithm::Crc32c);
                prop_assert_eq!(value, crc32c(&bytes));
            }
        }
    }
}

fn blocked() -> Order {
    Order {
        layout: StripeLayout::Blocked {
            block_bytes: 65_536,
        },
        parallelism: 2,
        upload: UploadName::Temporary,
    }
}

#[test]
fn every_member_moves_its_part() {
    let copy = Copy::new(4, 4);
    assert_eq!(copy.open(64), 4);
    let bytes = content(9, 8 * 1024 * 1024);
    copy.from.write("file", &bytes);
    let order = blocked();
    let received = start(&copy.receiver, order.plan(receive("file")));
    let sent = start(&copy.sender, order.plan(send("file")));
    received.succeed();
    sent.succeed();
    assert!(copy.to.read("file") == bytes);
    for transfer in [&received.transfer, &sent.transfer] {
        let stripes = transfer.progress().stripes;
        assert_eq!(stripes, [2 * 1024 * 1024; 4]);
    }
    assert_eq!(sent.transfer.survey().total_bytes, Some(bytes.len() as u64));
    let reported = received.transfer.take_received().to_string();
    assert_eq!(reported, format!("0-{}", bytes.len()));
    // `.NAME.gridhaul-blocks` has its final name.
    let names = std::fs::read_dir(copy.to.directory.path()).expect("a directory");
    assert_eq!(names.count(), 1);
}

/// Waits until a transfer has stored something, and cancels it. Returns the stored ranges.
fn interrupt(received: &Started) -> RangeSet {
    let mut stored = RangeSet::new();
    while stored.is_empty() {
        stored.extend_from(&received.transfer.take_received());
        std::thread::yield_now();
    }
    received.transfer.cancel(CancelReason::Abort);
    loop {
        match received.events.recv_timeout(TIME_LIMIT).expect("an end") {
            Event::Finished(outcome) => {
                let error = outcome.result.expect_err("cancelled");
                assert!(matches!(
                    error,
                    TransferError::Cancelled(CancelReason::Abort)
                ));
                break;
            }
            Event::Queued { .. } | Event::Started { .. } => {}
        }
    }
    stored.extend_from(&received.transfer.take_received());
    stored
}

#[test]
fn an_interrupted_copy_continues_on_other_members() {
    let copy = Copy::new(3, 4);
    copy.open(64);
    let bytes = content(10, 24 * 1024 * 1024);
    copy.from.write("file", &bytes);
    let order = blocked();
    // Slow enough to be interrupted, also on a busy machine.
    let mut slow = order.plan(receive("file"));
    slow.handling.bandwidth = vec![BandwidthLimit::new(Some(1 << 20))];
    let received = start(&copy.receiver, slow);
    let sent = start(&copy.sender, order.plan(send("file")));
    let stored = interrupt(&received);
    // The client ends the sender as well: nothing tells it of the end of connections that were not accepted yet, and it has succeeded
    // if the buffers of the sockets had room for everything.
    sent.transfer.cancel(CancelReason::Abort);
    sent.finish();
    assert!(stored.covered() < bytes.len() as u64, "it was interrupted");
    assert!(!copy.to.path("file").exists());
    // Two of the members have gone since.
    copy.to
        .cluster
        .set_members(copy.to.members[1..3].to_vec())
        .expect("names");
    assert_eq!(copy.open(64), 2);
    let rest = |mut task: Task| {
        if let Task::ReceiveFile { restart, .. } | Task::SendFile { restart, .. } = &mut task {
            *restart = stored.clone();
        }
        order.plan(task)
    };
    let received = start(&copy.receiver, rest(receive("file")));
    let sent = start(&copy.sender, rest(send("file")));
    let outcome = received.succeed();
    sent.succeed();
    assert!(copy.to.read("file") == bytes);
    assert_eq!(outcome.bytes + stored.covered(), bytes.len() as u64);
}

#[test]
fn stripes_append_to_a_file_and_carry_listings() {
    let copy = Copy::new(3, 3);
    assert_eq!(copy.open(64), 3);
    let order = blocked();
    let more = content(11, 1_000_000);
    copy.from.write("more", &more);
    // Also to a file that does not exist.
    let mut expected = Vec::new();
    for _ in 0..3 {
        let mut append = order.plan(receive("file"));
        if let Task::ReceiveFile { placement, .. } = &mut append.task {
            *placement = Placement::Append;
        }
        let received = start(&copy.receiver, append);
        let sent = start(&copy.sender, order.plan(send("more")));
        let (sent, received) = (sent.succeed(), received.succeed());
        assert_eq!((sent.stripes, received.stripes), (3, 3));
        expected.extend_from_slice(&more);
        assert!(copy.to.read("file") == expected, "{} bytes", expected.len());
    }
    // Over the channels of the files before.
    let lines = || (0..5000).map(|number| format!("line {number}\r\n").into_bytes());
    let source = LineSource {
        open: Arc::new(move |_| Ok(Box::new(lines().map(Ok)) as LineIterator)),
    };
    let received = start(&copy.receiver, order.plan(receive("lines")));
    let sent = start(&copy.sender, order.plan(Task::SendLines(source)));
    let (sent, received) = (sent.succeed(), received.succeed());
    let all: Vec<u8> = lines().flatten().collect();
    assert!(copy.to.read("lines") == all);
    assert_eq!((sent.bytes, sent.stripes), (all.len() as u64, 3));
    assert_eq!(received.bytes, all.len() as u64);
    // An error of the storage leaves a session that can be used with another port.
    let mut append = order.plan(receive("missing/file"));
    if let Task::ReceiveFile { placement, .. } = &mut append.task {
        *placement = Placement::Append;
    }
    let error = start(&copy.receiver, append).finish().result;
    assert!(
        matches!(error, Err(TransferError::Open { .. })),
        "{error:?}"
    );
    assert_eq!(copy.open(64), 3);
    copy.run("next", &more, &order);
}

#[test]
fn stripes_append_behind_an_end_that_their_lead_sees_late() {
    let mut copy = Copy::new(2, 2);
    copy.to = Site::new([late_node(), late_node()]);
    copy.receiver = copy.to.attach();
    assert_eq!(copy.open(64), 2);
    let (old, more) = (content(1, 300_000), content(2, 200_000));
    copy.to.write("file", &old);
    copy.from.write("more", &more);
    let order = blocked();
    let mut append = order.plan(receive("file"));
    if let Task::ReceiveFile { placement, .. } = &mut append.task {
        *placement = Placement::Append;
    }
    let received = start(&copy.receiver, append);
    let sent = start(&copy.sender, order.plan(send("more")));
    sent.succeed();
    received.succeed();
    assert!(copy.to.read("file") == [old, more].concat());
}

#[test]
fn a_listing_and_small_files_need_one_member() {
    let copy = Copy::new(3, 3);
    let order = blocked();
    for number in 0..6 {
        let peers = copy
            .receiver
            .listen(&listening(Stripes::One))
            .expect("a port");
        copy.sender.connect(&connecting(peers)).expect("a stack");
        let bytes = content(number, 1000);
        let (sent, received) = copy.run(&format!("file{number}"), &bytes, &order);
        assert_eq!(detail(&sent, "node").len(), 1);
        assert_eq!(detail(&received, "node").len(), 1);
    }
}
