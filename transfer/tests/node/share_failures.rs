//! Transfers of several nodes that fail: what has arrived stays, and the nodes end.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, mpsc};

use gridhaul_protocol::block::Descriptor;
use gridhaul_protocol::command::TransferMode;
use gridhaul_protocol::ranges::RangeSet;
use gridhaul_storage::{ChecksumAlgorithm, StorageError, StorageErrorKind};
use gridhaul_transfer::{
    CancelReason, Companions, Demands, Handling, PeerError, Plan, Role, SequenceError, Share,
    ShareError, Task, TransferError, UploadName,
};
use rustix::io::Errno;

use crate::cluster::Cluster;
use crate::peers::Peer;
use crate::shares::{names, sending, uploading};
use crate::site::{Settings, Site, Started, TIME_LIMIT, content, image, receive};

const PART: &str = ".b.gridhaul-blocks";

fn fresh() -> Plan {
    uploading(RangeSet::new(), Handling::default())
}

/// Sends blocks, and the EOF of a stripe with one channel.
fn talk(peer: &mut Peer, blocks: &[(u64, &[u8])]) {
    for (offset, bytes) in blocks {
        peer.block(*offset, bytes);
    }
    peer.header(Descriptor::EOF | Descriptor::EOD, 0, 1);
}

/// Other nodes that the test plays: they end with the result that it sends.
struct Played {
    calls: mpsc::Sender<Call>,
    result: Mutex<mpsc::Receiver<Result<RangeSet, TransferError>>>,
}

#[derive(Debug, PartialEq)]
enum Call {
    Opened(PathBuf),
    Wait,
}

impl Companions for Played {
    fn opened(&self, path: &Path) {
        let _ = self.calls.send(Call::Opened(path.to_owned()));
    }

    fn wait(&self) -> Result<RangeSet, TransferError> {
        let _ = self.calls.send(Call::Wait);
        let result = self.result.lock().expect("one thread waits");
        result.recv().expect("the test sends it")
    }
}

/// The lead of two stripes, whose other one the test plays.
struct Lead {
    site: Site,
    started: Started,
    peer: Peer,
    calls: mpsc::Receiver<Call>,
    result: mpsc::Sender<Result<RangeSet, TransferError>>,
}

impl Lead {
    fn start(site: Site, plan: Plan) -> Self {
        let (call, calls) = mpsc::channel();
        let (result, results) = mpsc::channel();
        let played = Played {
            calls: call,
            result: Mutex::new(results),
        };
        let address = site.listen(1)[0];
        let started = site.start(Plan {
            share: Some(Share {
                stripes: vec![0],
                total: 2,
                role: Role::Lead(Arc::new(played)),
            }),
            ..plan
        });
        let peer = Peer::connect(address);
        Self {
            site,
            started,
            peer,
            calls,
            result,
        }
    }

    fn next_call(&self) -> Call {
        self.calls.recv_timeout(TIME_LIMIT).expect("a call")
    }

    /// Receives 0-10 in the lead's own stripe, up to the wait for the others.
    fn up_to_wait(site: Site, plan: Plan) -> Self {
        let mut lead = Self::start(site, plan);
        assert_eq!(lead.next_call(), Call::Opened(PART.into()));
        lead.started.wait_started();
        talk(&mut lead.peer, &[(0, b"0123456789")]);
        assert_eq!(lead.next_call(), Call::Wait);
        lead
    }

    /// Ends the others with this result.
    fn end_others(&self, result: Result<RangeSet, TransferError>) -> TransferError {
        self.result.send(result).expect("it waits");
        self.started.finish().result.expect_err("it fails")
    }
}

fn site() -> Site {
    Site::new(Settings::default())
}

#[test]
fn a_member_that_fails_leaves_the_file_for_a_restart_by_other_nodes() {
    for upload in [UploadName::Final, UploadName::Temporary] {
        let first = site();
        let to = Cluster::over(&first, 2, 2);
        let data = content(300_000);
        let addresses = to.listen();
        let mut plan = fresh();
        plan.handling.upload = upload;
        // The restart markers have zeros that are not written.
        plan.handling.sparse = true;
        let zeros = vec![0; 100_000];
        let reception = to.receive(&plan);
        let (mut first, mut second) = (Peer::connect(addresses[0]), Peer::connect(addresses[1]));
        talk(&mut first, &[(0, &data[..100_000])]);
        second
            .block(200_000, &zeros)
            .block(100_000, &data[100_000..150_000]);
        second.finish();
        let (error, stored) = reception.expect_failure();
        assert!(
            matches!(error, TransferError::Peer(PeerError::EndedBeforeEod)),
            "{error}"
        );
        assert_eq!(stored.to_string(), "0-150000,200000-300000");

        let data = [&data[..200_000], &zeros].concat();
        let from = Cluster::new(1, 3);
        let to = Cluster::over(&to.nodes[0], 3, 3);
        from.nodes[0].write("a", &data);
        from.connect(&to.listen());
        let mut plan = uploading(stored.clone(), Handling::default());
        plan.handling.upload = upload;
        let reception = to.receive(&plan);
        from.send(&sending(stored));
        let (_, rest) = reception.expect_success();
        assert_eq!(rest.to_string(), "150000-200000");
        assert!(to.nodes[0].read("b") == data, "{upload:?}");
        assert_eq!(names(&to), ["b"]);
    }
}

#[test]
fn a_lead_that_fails_leaves_the_file_for_a_restart() {
    let to = Cluster::new(2, 2);
    let addresses = to.listen();
    let reception = to.receive(&fresh());
    let (mut first, mut second) = (Peer::connect(addresses[0]), Peer::connect(addresses[1]));
    second.block(10, b"member");
    first.block(0, b"lead").finish();
    let (error, stored) = reception.expect_failure();
    assert!(
        matches!(error, TransferError::Peer(PeerError::EndedBeforeEod)),
        "{error}"
    );
    // The member may have been cancelled before or after its block.
    assert_eq!(stored.iter().next(), Some(0..4));
    assert_eq!(names(&to), [PART]);
    assert_eq!(&to.nodes[0].read(PART)[..4], b"lead");
}

#[test]
fn a_lead_that_cannot_open_the_file_calls_no_others() {
    let site = site();
    let plan = image(receive("missing/b"), TransferMode::Extended, 1);
    let lead = Lead::start(site, plan);
    let error = lead.started.finish().result.expect_err("no directory");
    assert!(matches!(error, TransferError::Open { .. }), "{error}");
    assert!(lead.calls.iter().next().is_none());
}

#[test]
fn a_lead_that_is_cancelled_while_it_waits_ends_at_once() {
    let lead = Lead::up_to_wait(site(), fresh());
    lead.started.transfer.cancel(CancelReason::Abort);
    // The others have not ended yet.
    let error = lead.started.finish().result.expect_err("cancelled");
    assert!(
        matches!(error, TransferError::Cancelled(CancelReason::Abort)),
        "{error}"
    );
    lead.result.send(Ok(RangeSet::new())).expect("it waits");
    assert_eq!(lead.site.read(PART), b"0123456789");
    assert!(!lead.site.path("b").exists());
}

#[test]
fn an_upload_replaces_another_one_when_all_its_nodes_have_ended() {
    let first = Cluster::new(2, 2);
    let addresses = first.listen();
    let reception = first.receive(&fresh());
    let mut peer = Peer::connect(addresses[0]);
    talk(&mut peer, &[(0, b"0123456789")]);
    reception.lead.wait_started();
    // On another node: the claim of the lead is not in its memory.
    let later = || Lead::start(first.nodes[0].beside(Settings::default()), fresh());
    let error = later().started.finish().result.expect_err("the lead runs");
    assert!(error.to_string().contains("another upload"), "{error}");

    reception
        .lead
        .transfer
        .cancel(CancelReason::ControlChannelLost);
    let error = reception.lead.finish().result.expect_err("cancelled");
    assert!(matches!(error, TransferError::Cancelled(_)), "{error}");
    // The member may still write.
    let error = later()
        .started
        .finish()
        .result
        .expect_err("the member runs");
    assert!(error.to_string().contains("another upload"), "{error}");
    let member = reception.members.state().transfers[0].clone();
    member.cancel(CancelReason::ControlChannelLost);
    let _ = reception.members.wait();
    let lead = Lead::up_to_wait(first.nodes[0].beside(Settings::default()), fresh());
    lead.result
        .send(Ok(RangeSet::from(10..11)))
        .expect("it waits");
    let error = lead.started.finish().result.expect_err("no such byte");
    assert!(matches!(error, TransferError::Storage(_)), "{error}");
}

#[test]
fn a_later_upload_on_the_same_node_replaces_a_lead_that_waits() {
    let first = Cluster::new(2, 2);
    let addresses = first.listen();
    let reception = first.receive(&fresh());
    talk(&mut Peer::connect(addresses[0]), &[(0, b"0123456789")]);
    reception.lead.wait_started();
    let later = Lead::start(first.nodes[0].again(), fresh());
    let replaced = reception.lead.finish().result.expect_err("replaced");
    assert!(
        matches!(replaced, TransferError::Cancelled(CancelReason::Replaced)),
        "{replaced}"
    );
    // The later one waits until the member has closed the file.
    assert!(later.calls.try_recv().is_err());
    reception.members.state().transfers[0].cancel(CancelReason::Replaced);
    assert_eq!(later.next_call(), Call::Opened(PART.into()));
    later.started.transfer.cancel(CancelReason::Abort);
    let error = later.started.finish().result.expect_err("cancelled");
    assert!(matches!(error, TransferError::Cancelled(_)), "{error}");
    let _ = reception.members.wait();
}

#[test]
fn too_few_bytes_of_all_nodes_are_an_error() {
    let mut plan = fresh();
    if let Task::ReceiveFile { promised, .. } = &mut plan.task {
        *promised = Some(30);
    }
    let lead = Lead::up_to_wait(site(), plan);
    fs::write(lead.site.path(PART), [1; 30]).expect("ours");
    let error = lead.end_others(Ok(RangeSet::from(20..30)));
    let TransferError::Peer(PeerError::Incomplete { missing, .. }) = error else {
        panic!("another error: {error}");
    };
    assert_eq!(missing.to_string(), "10-20");
    assert!(lead.site.path(PART).exists());
}

/// Freeing the blocks would cut the file to a size that another node may be changing.
#[test]
fn no_blocks_are_reserved_for_several_nodes() {
    let mut plan = fresh();
    if let Task::ReceiveFile { promised, .. } = &mut plan.task {
        *promised = Some(64 << 20);
    }
    let lead = Lead::up_to_wait(site(), plan);
    let blocks = fs::metadata(lead.site.path(PART)).expect("there").blocks();
    // In units of 512 bytes.
    assert!(blocks < 1 << 11, "{blocks}");
    lead.end_others(Ok(RangeSet::new()));
}

#[test]
fn a_wrong_checksum_removes_the_upload() {
    let (from, to) = (Cluster::new(2, 2), Cluster::new(2, 2));
    from.nodes[0].write("a", &content(200_000));
    to.nodes[0].write("b", b"old");
    let demands = Demands {
        checksums: vec![(ChecksumAlgorithm::Adler32, "00000001".to_owned())],
        ..Demands::default()
    };
    let handling = Handling {
        demands,
        ..Handling::default()
    };
    from.connect(&to.listen());
    let reception = to.receive(&uploading(RangeSet::new(), handling));
    from.send(&sending(RangeSet::new()));
    let (error, _) = reception.expect_failure();
    assert!(
        matches!(error, TransferError::Peer(PeerError::WrongChecksum { .. })),
        "{error}"
    );
    assert_eq!(names(&to), ["b"]);
    assert_eq!(to.nodes[0].read("b"), b"old");
}

#[test]
fn bytes_that_may_be_wrong_are_not_continued() {
    let lost = TransferError::Lost(StorageError::new("fdatasync", Errno::IO));
    let both_wrote = RangeSet::from(9..20);
    for result in [Err(lost), Ok(both_wrote)] {
        let lead = Lead::up_to_wait(site(), fresh());
        let error = lead.end_others(result);
        let expected = matches!(
            error,
            TransferError::Lost(_) | TransferError::Peer(PeerError::Overlap(_))
        );
        assert!(expected, "{error}");
        assert!(!lead.site.path(PART).exists());
    }
}

#[test]
fn a_member_makes_no_file_and_keeps_what_is_there() {
    let site = site();
    for name in ["b", PART] {
        let member = |site: &Site| {
            let address = site.listen(1)[0];
            let started = site.start(Plan {
                share: Some(Share {
                    stripes: vec![1],
                    total: 2,
                    role: Role::Member,
                }),
                ..image(receive(name), TransferMode::Extended, 1)
            });
            (started, address)
        };
        let (started, _) = member(&site);
        let error = started.finish().result.expect_err("no file");
        assert!(
            matches!(&error, TransferError::Open { error, .. } if error.kind() == StorageErrorKind::NotFound),
            "{error}"
        );
        assert!(!site.path(name).exists());

        site.write(name, b"0123456789");
        let (started, address) = member(&site);
        talk(&mut Peer::connect(address), &[(3, b"xyz")]);
        started.finish().result.expect("received");
        assert_eq!(site.read(name), b"012xyz6789");
    }
}

#[test]
fn a_share_that_no_node_can_serve_is_refused_before_the_file_is_opened() {
    let to = Cluster::new(2, 2);
    to.listen();
    let mut plan = image(receive("b"), TransferMode::Extended, 1);
    plan.handling.ordered = true;
    let (error, _) = to.receive(&plan).expect_failure();
    assert!(
        matches!(
            error,
            TransferError::Sequence(SequenceError::Share(ShareError::Ordered))
        ),
        "{error}"
    );
    assert!(names(&to).is_empty());
}
