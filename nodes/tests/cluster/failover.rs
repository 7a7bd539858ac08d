//! Members that are lost, drain, or refuse.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Instant, SystemTime};

use gridhaul_nodes::cluster::MemberState;
use gridhaul_protocol::command::TransferMode;
use gridhaul_stack::Cancel;
use gridhaul_storage::{ChecksumAlgorithm, StorageError};
use gridhaul_transfer::{ChecksumRequest, DataNode, Stripes};
use rustix::io::Errno;

use crate::fake::Fake;
use crate::random::content;
use crate::site::{
    Site, TIME_LIMIT, connecting, detail, down, listening, plan, receive, send, start,
};

#[test]
fn storage_calls_move_when_a_member_is_lost_or_drains() {
    let site = Site::local(3);
    let session = site.attach();
    let storage = session.storage();
    site.write("file", b"content");
    for lost in [MemberState::Draining, down("connection refused")] {
        let serving = |site: &Site| {
            let members = site.cluster.members();
            members.iter().position(|member| member.sessions == 1)
        };
        let before = serving(&site).expect("one member");
        site.members[before].state.set(lost);
        assert_eq!(storage.stat("/file".as_ref()).expect("moved").size, 7);
        let after = serving(&site).expect("one member");
        assert_ne!(before, after);
    }
    storage.make_directory("/made".as_ref()).expect("moved");
    assert!(site.path("made").is_dir());
}

#[test]
fn the_last_member_serves_its_sessions_while_it_drains() {
    let site = Site::local(1);
    let session = site.attach();
    site.members[0].state.set(MemberState::Draining);
    assert!(session.storage().stat("/".as_ref()).is_ok());
    let error = site.cluster.attach(&site.account()).expect_err("it drains");
    assert_eq!(
        error.to_string(),
        "no data node is available: dtn0: draining"
    );
}

#[test]
fn an_attachment_ends_when_its_member_is_lost() {
    let fake = Fake::new(1);
    let site = Site::new([fake.node()]);
    let session = site.attach();
    site.members[0].state.set(down("rebooted"));
    let error = session.storage().stat("/".as_ref()).expect_err("no member");
    assert_eq!(error.errno, Errno::HOSTDOWN);
    site.members[0].state.set(MemberState::Up);
    assert!(session.storage().stat("/".as_ref()).is_ok());
    assert_eq!(fake.attached.load(Ordering::Relaxed), 2);
}

#[test]
fn a_call_is_repeated_if_it_reads_or_was_not_sent() {
    let fakes = [Fake::new(1), Fake::new(2)];
    let site = Site::new(fakes.iter().map(Fake::node));
    let session = site.attach();
    let read = || {
        let (done, cancel) = (AtomicU64::new(0), Cancel::new());
        session
            .checksum(&checksum("file"), &done, &cancel)
            .map(drop)
    };
    let change = || session.set_modified("file".as_ref(), SystemTime::UNIX_EPOCH);
    site.write("file", b"content");
    // (the member goes down, its error, whether the calls succeed)
    let cases = [
        (false, Errno::HOSTDOWN, [true, true]),
        (true, Errno::HOSTDOWN, [true, true]),
        (true, Errno::CONNRESET, [true, false]),
        (false, Errno::ACCESS, [false, false]),
    ];
    for (goes_down, errno, succeed) in cases {
        for (call, succeeds) in [&read as &dyn Fn() -> _, &change].into_iter().zip(succeed) {
            // It may have to attach anew.
            session.storage().stat("/".as_ref()).expect("a member");
            let serving = site
                .cluster
                .members()
                .iter()
                .position(|one| one.sessions == 1);
            let serving = serving.expect("one member");
            let state = goes_down.then(|| site.members[serving].state.clone());
            *fakes[serving].next_call.lock().expect("no panic") = Some((errno, state));
            let result: Result<(), StorageError> = call();
            assert_eq!(result.is_ok(), succeeds, "{errno:?} {result:?}");
            for (fake, member) in fakes.iter().zip(&site.members) {
                member.state.set(MemberState::Up);
                assert!(fake.next_call.lock().expect("no panic").is_none());
            }
        }
    }
}

#[test]
fn without_members_every_request_says_why() {
    let site = Site::local(12);
    let session = site.attach();
    for (number, member) in site.members.iter().enumerate() {
        member.state.set(match number {
            0 => MemberState::Draining,
            _ => down(&"connection refused ".repeat(100)),
        });
    }
    let expected = |text: &str| {
        assert!(
            text.contains("no data node is available: dtn0: draining; "),
            "{text}"
        );
        assert!(
            text.contains("dtn1: down for 0 s, connection refused"),
            "{text}"
        );
        assert!(text.contains("and 4 more"), "{text}");
        assert!(text.len() < 2000, "{}", text.len());
    };
    let error = site.cluster.attach(&site.account()).expect_err("no member");
    expected(&error.to_string());
    let error = session
        .listen(&listening(Stripes::One))
        .expect_err("no member");
    expected(&error.to_string());
    let peers = vec!["127.0.0.1:2000".parse().expect("an address")];
    session.connect(&connecting(peers)).expect("remembered");
    let sent = start(&session, plan(send("file"), TransferMode::Stream));
    expected(&sent.finish().result.expect_err("no member").to_string());
    site.cluster.set_members(Vec::new()).expect("no names");
    let error = site.cluster.attach(&site.account()).expect_err("no member");
    assert!(
        error.to_string().contains("the cluster has none"),
        "{error}"
    );
}

#[test]
fn another_member_is_tried_when_one_refuses() {
    let fakes = [Fake::new(1), Fake::new(2), Fake::new(3)];
    let site = Site::new(fakes.iter().map(Fake::node));
    fakes[0].refuses.store(true, Ordering::Relaxed);
    let sessions: Vec<_> = (0..6).map(|_| site.attach()).collect();
    fakes[1].fails_once_in.store(1, Ordering::Relaxed);
    for session in &sessions {
        assert_eq!(
            session
                .listen(&listening(Stripes::One))
                .expect("the third")
                .len(),
            1
        );
        let many = listening(Stripes::Many { at_most: 3 });
        assert_eq!(session.listen(&many).expect("the third").len(), 1);
    }
    fakes[2].fails_once_in.store(1, Ordering::Relaxed);
    let error = sessions[0]
        .listen(&listening(Stripes::One))
        .expect_err("all refuse");
    let text = error.to_string();
    for reason in [
        "dtn0: no account here",
        "dtn1: no free port",
        "dtn2: no free port",
    ] {
        // Members that the session is attached to refuse to listen, others to be attached to.
        let attach = reason.replace("no free port", "no account here");
        assert!(text.contains(reason) || text.contains(&attach), "{text}");
    }
}

#[test]
fn a_member_that_drains_finishes_its_transfers() {
    let site = Site::local(2);
    let (receiver, sender) = (site.attach(), site.attach());
    let bytes = content(1, 1_000_000);
    site.write("from", &bytes);
    let peers = receiver.listen(&listening(Stripes::One)).expect("a port");
    let received = start(&receiver, plan(receive("to"), TransferMode::Extended));
    for member in &site.members {
        member.state.set(MemberState::Draining);
    }
    let drained = receiver.storage().stat("/".as_ref());
    assert!(drained.is_ok());
    let outside = Site::local(1);
    let source = outside.cluster.attach(&site.account()).expect("attached");
    source.connect(&connecting(peers)).expect("a stack");
    start(&source, plan(send("from"), TransferMode::Extended)).succeed();
    let outcome = received.succeed();
    assert_eq!(site.read("to"), bytes);
    assert_eq!(detail(&outcome, "failed-node"), Vec::<String>::new());
    assert!(
        sender.listen(&listening(Stripes::One)).is_err(),
        "no new ones"
    );
}

#[test]
fn a_member_that_drains_loses_its_sessions() {
    let fakes = [Fake::new(1), Fake::new(2)];
    let site = Site::new(fakes.iter().map(Fake::node));
    let session = site.attach();
    let before = usize::from(fakes[1].sessions() == 1);
    session.listen(&listening(Stripes::One)).expect("a port");
    site.members[before].state.set(MemberState::Draining);
    assert!(session.storage().stat("/".as_ref()).is_ok());
    assert_eq!(fakes[before].sessions(), 1, "it has the data port");
    start(&session, plan(receive("to"), TransferMode::Extended)).succeed();
    session
        .listen(&listening(Stripes::One))
        .expect("another one");
    let deadline = Instant::now() + TIME_LIMIT;
    // The thread of the transfer may not have ended.
    while fakes[before].sessions() > 0 && Instant::now() < deadline {
        thread::yield_now();
    }
    let sessions = fakes.each_ref().map(Fake::sessions);
    assert_eq!((sessions[before], sessions[1 - before]), (0, 1));
}

#[test]
fn a_failure_names_its_member() {
    let fakes = [Fake::new(1)];
    let site = Site::new(fakes.iter().map(Fake::node));
    let session = site.attach();
    session.listen(&listening(Stripes::One)).expect("a port");
    fakes[0].fails_once_in.store(1, Ordering::Relaxed);
    let failed = start(&session, plan(receive("to"), TransferMode::Extended)).finish();
    assert!(failed.result.is_err());
    assert_eq!(detail(&failed, "failed-node"), ["dtn0"]);
    assert_eq!(detail(&failed, "node"), ["dtn0"]);
}

fn checksum(path: &str) -> ChecksumRequest {
    ChecksumRequest {
        path: path.into(),
        algorithm: ChecksumAlgorithm::Crc32c,
        offset: 0,
        length: None,
    }
}
