//! A node behind gRPC, used as a session uses it, over connections of this machine without TLS.

mod faulty;
mod read_only;
mod site;
mod watching;

use std::fs;
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant, SystemTime};

use gridhaul_nodes::cluster::MemberState;
use gridhaul_protocol::command::TransferMode;
use gridhaul_stack::Cancel;
use gridhaul_storage::{ChecksumAlgorithm, FileKind, StorageErrorKind};
use gridhaul_transfer::{
    BandwidthLimit, CancelReason, ChecksumRequest, DataNode as _, LineSource, Relabel, Task,
};

use site::{Remote, content, image, receive, send};

#[test]
fn files_of_a_node_are_used_as_those_of_this_machine() {
    let remote = Remote::new();
    let session = remote.attach();
    assert_eq!(session.home(), Path::new("/"));
    let storage = session.storage();
    let path = Path::new;
    storage.make_directory(path("/d")).expect("a directory");
    fs::write(remote.path("d/f"), b"Wikipedia").expect("a file");
    let metadata = storage.stat(path("/d/f")).expect("metadata");
    assert_eq!((metadata.kind, metadata.size), (FileKind::File, 9));
    let modified = SystemTime::UNIX_EPOCH + Duration::new(1_000_000_000, 123_456_789);
    session.set_modified(path("/d/f"), modified).expect("set");
    assert_eq!(
        storage.stat(path("/d/f")).expect("metadata").modified,
        modified
    );
    let request = ChecksumRequest {
        path: "/d/f".into(),
        algorithm: ChecksumAlgorithm::Adler32,
        offset: 0,
        length: None,
    };
    let done = AtomicU64::new(0);
    let found = session
        .checksum(&request, &done, &Cancel::new())
        .expect("a checksum");
    assert_eq!(found.value, "11e60398");
    session
        .relabel(path("/d/f"), Relabel::Name(path("/d/g")))
        .expect("renamed");
    session
        .relabel(path("/d/g"), Relabel::Mode(0o600))
        .expect("mode");
    let error = storage.stat(path("/d/f")).expect_err("renamed");
    assert_eq!(error.kind(), StorageErrorKind::NotFound);
    assert_eq!(
        (error.call, error.reason().as_str()),
        ("stat", "No such file or directory")
    );
    storage.remove_tree(path("/d"), &|| false).expect("removed");
    assert!(!remote.path("d").exists());
}

#[test]
fn a_large_directory_comes_in_runs() {
    let remote = Remote::new();
    let names: Vec<String> = (0..10_000)
        .map(|number| format!("file-{number:05}"))
        .collect();
    for name in &names {
        fs::write(remote.path(name), name).expect("a file");
    }
    let storage = remote.attach().storage();
    let mut list = storage.list(Path::new("/")).expect("a directory");
    let mut seen = Vec::new();
    while let Some(mut run) = list.next_run(1000).expect("a run") {
        run.entries(&mut |name, metadata| {
            assert_eq!(metadata.size, 10);
            seen.push(name.to_str().expect("ASCII").to_owned());
        })
        .expect("entries");
    }
    seen.sort();
    assert_eq!(seen, names);
}

#[test]
fn files_are_copied_between_nodes_in_both_modes() {
    for (mode, channels) in [(TransferMode::Stream, 1), (TransferMode::Extended, 4)] {
        let (from, to) = (Remote::new(), Remote::new());
        let bytes = content(20 << 20);
        fs::write(from.path("a"), &bytes).expect("a file");
        let (sender, receiver) = (from.attach(), to.attach());
        let addresses = site::listen(&*receiver, 1);
        assert!(to.node.listens_at(addresses[0]));
        site::connect(&*sender, addresses.clone());
        let receiving = site::start(&*receiver, image(receive("/b"), mode, channels));
        let sending = site::start(&*sender, image(send("/a"), mode, channels));
        let (sent, received) = (sending.finish(), receiving.finish());
        sent.result.expect("sent");
        received.result.expect("received");
        assert_eq!((sent.bytes, received.bytes), (20 << 20, 20 << 20));
        assert_eq!(receiving.running.progress().stripes, [20 << 20]);
        // A stream has no markers.
        if mode == TransferMode::Extended {
            assert_eq!(receiving.running.take_received().covered(), 20 << 20);
        }
        assert!(fs::read(to.path("b")).expect("a file") == bytes);
        receiver.release();
        assert!(!to.node.listens_at(addresses[0]));
    }
}

#[test]
fn transfers_on_several_nodes_share_a_limit() {
    const RATE: u32 = 20 << 20;
    let limit = BandwidthLimit::new(Some(RATE.into()));
    let pairs: Vec<_> = (0..2).map(|_| (Remote::new(), Remote::new())).collect();
    let bytes = content(20 << 20);
    let begun = Instant::now();
    let (mut running, mut sessions) = (Vec::new(), Vec::new());
    for (from, to) in &pairs {
        fs::write(from.path("a"), &bytes).expect("a file");
        let (sender, receiver) = (from.attach(), to.attach());
        site::connect(&*sender, site::listen(&*receiver, 1));
        let mut sent = image(send("/a"), TransferMode::Stream, 1);
        sent.handling.bandwidth = vec![Arc::clone(&limit)];
        let receive = image(receive("/b"), TransferMode::Stream, 1);
        running.push(site::start(&*receiver, receive));
        running.push(site::start(&*sender, sent));
        sessions.push((sender, receiver));
    }
    for transfer in &running {
        transfer.finish().result.expect("complete");
    }
    // Each with the whole rate would be done after a second; the first one has it for at most half a second.
    let took = begun.elapsed();
    assert!(took > Duration::from_millis(1600), "{took:?}");
}

#[test]
fn a_listing_is_made_here_and_sent_there() {
    let (from, to) = (Remote::new(), Remote::new());
    let (sender, receiver) = (from.attach(), to.attach());
    let addresses = site::listen(&*receiver, 1);
    site::connect(&*sender, addresses);
    let lines = LineSource {
        open: Arc::new(|_| {
            let lines = (0..50_000).map(|number| Ok(format!("line {number:06}\r\n").into_bytes()));
            Ok(Box::new(lines))
        }),
    };
    let receiving = site::start(&*receiver, image(receive("/b"), TransferMode::Stream, 1));
    let sending = site::start(
        &*sender,
        image(Task::SendLines(lines), TransferMode::Stream, 1),
    );
    sending.finish().result.expect("sent");
    receiving.finish().result.expect("received");
    let text = String::from_utf8(to.read("b")).expect("ASCII");
    assert_eq!(text.len(), 50_000 * 13);
    assert!(text.starts_with("line 000000\r\nline 000001\r\n"));
}

#[test]
fn a_session_that_is_dropped_leaves_nothing_on_the_node() {
    let remote = Remote::new();
    let session = remote.attach();
    let addresses = site::listen(&*session, 1);
    let running = site::start(&*session, image(receive("/b"), TransferMode::Extended, 1));
    assert_eq!(remote.service.sessions(), 1);
    drop(session);
    let error = running.finish().result.expect_err("lost");
    assert!(error.to_string().contains("has ended"), "{error}");
    site::wait_until(|| remote.service.sessions() == 0);
    site::wait_until(|| TcpStream::connect(addresses[0]).is_err());
}

#[test]
fn a_node_that_is_lost_ends_its_calls_and_transfers_and_is_used_again_when_it_is_back() {
    let remote = Remote::new();
    let session = remote.attach();
    site::listen(&*session, 1);
    let running = site::start(&*session, image(receive("/b"), TransferMode::Extended, 1));
    remote.cut();
    let error = running.finish().result.expect_err("lost").to_string();
    assert!(error.contains("data node 127.0.0.1:"), "{error}");
    let error = session.storage().stat(Path::new("/")).expect_err("lost");
    assert_eq!(error.to_string(), "System error in stat: Host is down");
    site::wait_until(|| remote.service.sessions() == 0);
    // The node is connected to again.
    site::wait_until(|| remote.node.attach(&remote.account()).is_ok());
    remote.wait_for(|state| *state == MemberState::Up);
    remote.drain();
    remote.wait_for(|state| *state == MemberState::Draining);
}

#[test]
fn a_cancelled_transfer_ends_at_once() {
    let remote = Remote::new();
    let session = remote.attach();
    site::listen(&*session, 1);
    let running = site::start(&*session, image(receive("/b"), TransferMode::Extended, 1));
    running.running.cancel(CancelReason::Abort);
    let error = running.finish().result.expect_err("cancelled");
    assert_eq!(error.to_string(), "the operation was aborted");
}

#[test]
fn an_account_that_cannot_be_opened_is_refused_with_the_reason() {
    let remote = Remote::new();
    let mut account = remote.account();
    account.root = remote.path("missing");
    let error = remote.node.attach(&account).expect_err("missing");
    assert!(error.to_string().contains("No such file"), "{error}");
}
