//! Members that report uploads that they have not stored where the others see them: others answer for size and checksum.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use gridhaul_nodes::cluster::MemberState;
use gridhaul_protocol::command::TransferMode;
use gridhaul_stack::Cancel;
use gridhaul_storage::{ChecksumAlgorithm, StorageError, StorageErrorKind};
use gridhaul_transfer::{ChecksumRequest, NodeSession, Relabel, Stripes, Task};
use tempfile::TempDir;

use crate::late::late_node;
use crate::random::content;
use crate::site::{
    Site, connecting, down, listening, local_node, node_with, plan, receive, send, start,
};

/// A cluster of which the first member stores uploads where nothing else sees them, and a session that has uploaded a file to
/// that member.
struct FalseReport {
    site: Site,
    session: Arc<dyn NodeSession>,
    _private: TempDir,
}

impl FalseReport {
    fn new() -> Self {
        let private = TempDir::new().expect("a temporary directory");
        let root = private.path().to_owned();
        let site = Site::new([node_with(move |_| root.clone()), local_node()]);
        Self {
            session: uploaded(&site, "a"),
            site,
            _private: private,
        }
    }

    fn size(&self, path: &str) -> Result<u64, StorageError> {
        size(&self.session, path)
    }

    fn checksum(&self, path: &str) -> Result<String, StorageError> {
        checksum(&self.session, path)
    }
}

fn size(session: &Arc<dyn NodeSession>, path: &str) -> Result<u64, StorageError> {
    let metadata = session.storage().stat(Path::new(path));
    metadata.map(|metadata| metadata.size)
}

fn checksum(session: &Arc<dyn NodeSession>, path: &str) -> Result<String, StorageError> {
    let request = ChecksumRequest {
        path: path.into(),
        algorithm: ChecksumAlgorithm::Adler32,
        offset: 0,
        length: None,
    };
    let found = session.checksum(&request, &AtomicU64::new(0), &Cancel::new());
    found.map(|found| found.value)
}

/// A session that has uploaded a file to the first of two members. The second one is down.
fn uploaded(site: &Site, name: &str) -> Arc<dyn NodeSession> {
    site.members[1].state.set(down("not yet"));
    let session = site.attach();
    upload(&session, name, &content(1, 300_000));
    session
}

/// The bytes come from a cluster of its own.
fn upload(session: &Arc<dyn NodeSession>, name: &str, bytes: &[u8]) {
    let source = Site::local(1);
    source.write("source", bytes);
    let sender = source.attach();
    let peers = session.listen(&listening(Stripes::One)).expect("a port");
    sender.connect(&connecting(peers)).expect("a stack");
    let received = start(session, plan(receive(name), TransferMode::Stream));
    let sent = start(&sender, plan(send("source"), TransferMode::Stream));
    sent.succeed();
    received.succeed();
}

#[test]
fn a_member_does_not_answer_for_what_it_has_stored_if_there_is_another_one() {
    let report = FalseReport::new();
    // Without another member it must.
    assert_eq!(report.size("a").expect("its answer"), 300_000);
    let own = report.checksum("a").expect("its answer");
    report.site.members[1].state.set(MemberState::Up);
    let error = report.size("a").expect_err("nothing is there");
    assert_eq!(error.kind(), StorageErrorKind::NotFound);
    report.checksum("a").expect_err("nothing is there");
    // Something else is there.
    report.site.write("a", &content(2, 299_999));
    assert_eq!(report.size("a").expect("that of the other one"), 299_999);
    assert_ne!(report.checksum("a").expect("that of the other one"), own);
    // What the session has not uploaded is not asked elsewhere.
    report
        .size("b")
        .expect_err("the first member has no such file");
}

#[test]
fn a_member_does_not_answer_for_a_part_of_an_upload_that_failed() {
    let report = FalseReport::new();
    let source = Site::local(1);
    source.write("b", &content(1, 300_000));
    let (session, sender) = (&report.session, source.attach());
    let peers = session.listen(&listening(Stripes::One)).expect("a port");
    sender.connect(&connecting(peers)).expect("a stack");
    let mut promised = receive("b");
    if let Task::ReceiveFile { promised, .. } = &mut promised {
        *promised = Some(400_000);
    }
    let received = start(session, plan(promised, TransferMode::Extended));
    let sent = start(&sender, plan(send("b"), TransferMode::Extended));
    sent.succeed();
    received.finish().result.expect_err("bytes are missing");
    assert_eq!(report.size("b").expect("its answer"), 300_000);
    report.site.members[1].state.set(MemberState::Up);
    let error = report.size("b").expect_err("nothing is there");
    assert_eq!(error.kind(), StorageErrorKind::NotFound);
}

#[test]
fn an_upload_that_gets_its_name_afterwards_is_verified_under_that_name() {
    let report = FalseReport::new();
    let (a, b) = (Path::new("a"), Path::new("b"));
    let session = &report.session;
    session.relabel(a, Relabel::Name(b)).expect("renamed");
    session
        .storage()
        .rename(b, Path::new("c"))
        .expect("renamed");
    assert_eq!(report.size("c").expect("its answer"), 300_000);
    report.site.members[1].state.set(MemberState::Up);
    let error = report.size("c").expect_err("nothing is there");
    assert_eq!(error.kind(), StorageErrorKind::NotFound);
}

#[test]
fn an_upload_is_verified_after_its_directory_has_another_name() {
    let private = TempDir::new().expect("a temporary directory");
    let root = private.path().to_owned();
    let site = Site::new([node_with(move |_| root.clone()), local_node()]);
    std::fs::create_dir(private.path().join("d")).expect("made");
    let session = uploaded(&site, "d/a");
    let (from, to) = (Path::new("d"), Path::new("e"));
    session.storage().rename(from, to).expect("renamed");
    assert_eq!(size(&session, "e/a").expect("its answer"), 300_000);
    site.members[1].state.set(MemberState::Up);
    let error = size(&session, "e/a").expect_err("nothing is there");
    assert_eq!(error.kind(), StorageErrorKind::NotFound);
}

#[test]
fn a_member_that_sees_an_upload_late_opens_it_before_its_answer_counts() {
    let site = || Site::new([local_node(), late_node()]);
    {
        let site = site();
        let session = uploaded(&site, "a");
        let stored = checksum(&session, "a").expect("that of the first member");
        site.members[1].state.set(MemberState::Up);
        let second = site.members[1].node.attach(&site.account());
        let second = second.expect("attached").storage();
        let error = second.stat(Path::new("a")).expect_err("not listed yet");
        assert_eq!(error.kind(), StorageErrorKind::NotFound);
        assert_eq!(size(&session, "a").expect("the size"), 300_000);
        assert_eq!(checksum(&session, "a").expect("the checksum"), stored);
    }
    // The checksum first.
    let site = site();
    let session = uploaded(&site, "a");
    let stored = checksum(&session, "a").expect("that of the first member");
    site.members[1].state.set(MemberState::Up);
    assert_eq!(checksum(&session, "a").expect("the checksum"), stored);
    // What another member does not have after that is missing.
    std::fs::remove_file(site.path("a")).expect("removed");
    size(&session, "a").expect_err("nothing is there");
}

#[test]
fn the_next_member_answers_when_the_one_that_is_asked_is_lost() {
    let site = Site::local(3);
    let session = site.attach();
    upload(&session, "a", &content(1, 1000));
    let others = site.members.iter().zip(site.cluster.members());
    let others: Vec<_> = others
        .filter(|(_, report)| report.ended_bytes.received == 0)
        .map(|(member, _)| member)
        .collect();
    assert_eq!(others.len(), 2);
    for lost in others {
        lost.state.set(down("lost"));
        let metadata = session.storage().stat(Path::new("a")).expect("an answer");
        assert_eq!(metadata.size, 1000);
    }
}
