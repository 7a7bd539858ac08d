//! Sessions and transfers spread over the members.

use std::sync::atomic::Ordering;
use std::thread;

use gridhaul_nodes::cluster::{Member, MemberState};
use gridhaul_protocol::command::TransferMode;
use gridhaul_transfer::{DataNode, Stripes};

use crate::fake::Fake;
use crate::random::content;
use crate::site::{
    Site, connecting, detail, down, listening, member, plan, receive, send, stack, start,
};

/// Asserts that the counts differ from their mean by at most a fifth.
fn assert_even(counts: &[usize]) {
    assert_within(counts, 20);
}

/// Asserts that the counts differ from their mean by at most so many percent.
fn assert_within(counts: &[usize], percent: usize) {
    let mean = counts.iter().sum::<usize>().div_ceil(counts.len());
    let most = (mean * percent).div_ceil(100);
    let is_near = |count: usize| count.abs_diff(mean) <= most;
    assert!(counts.iter().all(|&count| is_near(count)), "{counts:?}");
}

#[test]
fn a_burst_of_logins_spreads() {
    for count in [2, 3, 16, 64] {
        let site = Site::local(count);
        let sessions = thread::scope(|scope| {
            let logins: Vec<_> = (0..8)
                .map(|_| scope.spawn(|| (0..2 * count).map(|_| site.attach()).collect::<Vec<_>>()))
                .collect();
            let sessions = logins
                .into_iter()
                .map(|login| login.join().expect("no panic"));
            sessions.flatten().collect::<Vec<_>>()
        });
        let members = site.cluster.members();
        let counts: Vec<_> = members.iter().map(|member| member.sessions).collect();
        assert_eq!(counts.iter().sum::<usize>(), sessions.len());
        assert_even(&counts);
        drop(sessions);
        let members = site.cluster.members();
        assert!(members.iter().all(|member| member.sessions == 0));
    }
}

#[test]
fn logins_one_after_the_other_alternate() {
    let fakes = [Fake::new(1), Fake::new(2), Fake::new(3)];
    let site = Site::new(fakes.iter().map(Fake::node));
    for _ in 0..6 {
        drop(site.attach());
    }
    let attached = fakes
        .each_ref()
        .map(|fake| fake.attached.load(Ordering::Relaxed));
    assert_eq!(attached, [2, 2, 2]);
}

#[test]
fn small_transfers_spread_and_each_byte_arrives() {
    const SESSIONS: usize = 12;
    const FILES: usize = 20;
    let site = Site::local(4);
    let names = thread::scope(|scope| {
        let clients: Vec<_> = (0..SESSIONS)
            .map(|client| {
                let site = &site;
                scope.spawn(move || store_files(site, client, FILES))
            })
            .collect();
        let clients = clients.into_iter();
        let names = clients.flat_map(|client| client.join().expect("no panic"));
        names.collect::<Vec<_>>()
    });
    let counts: Vec<_> = (0..4)
        .map(|number| {
            let own = format!("dtn{number}");
            names.iter().filter(|name| **name == own).count()
        })
        .collect();
    assert_eq!(counts.iter().sum::<usize>(), SESSIONS * FILES);
    // Sessions stay on a member that is about as well off, and the measured throughput varies on a busy machine: what is certain
    // is that all members take part.
    assert_within(&counts, 90);
    assert_eq!(site.transfers(), [0; 4]);
}

/// Stores files through the cluster, and returns the names of the members that received them.
fn store_files(site: &Site, client: usize, files: usize) -> Vec<String> {
    let (receiver, sender) = (site.attach(), site.attach());
    let store = |file| {
        let (from, to) = (format!("from{client}-{file}"), format!("to{client}-{file}"));
        let bytes = content((client * files + file) as u64, 3000 + file);
        site.write(&from, &bytes);
        let mode = [TransferMode::Stream, TransferMode::Extended][file % 2];
        let peers = receiver.listen(&listening(Stripes::One));
        let peers = peers.expect("a free port");
        assert_eq!(peers.len(), 1);
        assert!(site.cluster.listens_at(peers[0]));
        sender.connect(&connecting(peers)).expect("a stack");
        let received = start(&receiver, plan(receive(&to), mode));
        let sent = start(&sender, plan(send(&from), mode));
        let outcome = received.succeed();
        sent.succeed();
        assert_eq!(site.read(&to), bytes);
        assert_eq!(outcome.bytes, bytes.len() as u64);
        let names = detail(&outcome, "node");
        assert_eq!(names.len(), 1);
        names.into_iter().next().expect("one name")
    };
    (0..files).map(store).collect()
}

#[test]
fn the_next_files_go_over_open_channels() {
    let site = Site::local(3);
    let (receiver, sender) = (site.attach(), site.attach());
    let peers = receiver.listen(&listening(Stripes::One)).expect("a port");
    sender.connect(&connecting(peers)).expect("a stack");
    let mut names = Vec::new();
    for file in 0..5 {
        let (from, to) = (format!("from{file}"), format!("to{file}"));
        site.write(&from, &content(file, 100_000));
        let received = start(&receiver, plan(receive(&to), TransferMode::Extended));
        let sent = start(&sender, plan(send(&from), TransferMode::Extended));
        names.push(detail(&received.succeed(), "node"));
        sent.succeed();
        assert_eq!(site.read(&to), content(file, 100_000));
    }
    names.dedup();
    assert_eq!(names.len(), 1, "one member has the channels");
}

#[test]
fn members_come_and_go() {
    let fakes = [Fake::new(1), Fake::new(2), Fake::new(3)];
    let mut site = Site::new(fakes[..2].iter().map(Fake::node));
    let first = site.attach();
    let joined = member(2, fakes[2].node());
    site.members.push(joined);
    site.cluster
        .set_members(site.members[1..].to_vec())
        .expect("names");
    let second = site.attach();
    let third = site.attach();
    let attached = fakes
        .each_ref()
        .map(|fake| fake.attached.load(Ordering::Relaxed));
    assert_eq!(attached, [1, 1, 1]);
    // The storage of the first session moves with its next call.
    assert!(first.storage().stat("/".as_ref()).is_ok());
    assert_eq!(
        site.cluster
            .members()
            .iter()
            .map(|one| one.sessions)
            .sum::<usize>(),
        3
    );
    drop((second, third));
    let twice = Member {
        name: "dtn1".to_owned(),
        ..site.members[2].clone()
    };
    let error = site
        .cluster
        .set_members(vec![site.members[1].clone(), twice]);
    let error = error.expect_err("two members with one name").to_string();
    assert!(error.contains("dtn1"), "{error}");
    assert_eq!(site.cluster.members().len(), 2, "nothing has changed");
}

#[test]
fn a_stack_must_be_known_to_all_usable_members() {
    let fakes = [Fake::new(1), Fake::new(2)];
    let site = Site::new(fakes.iter().map(Fake::node));
    assert!(site.cluster.check_stack(&stack()).is_ok());
    fakes[1].refuses.store(true, Ordering::Relaxed);
    let error = site
        .cluster
        .check_stack(&stack())
        .expect_err("one lacks it");
    assert!(
        error.to_string().contains("on the data node dtn1"),
        "{error}"
    );
    site.members[1].state.set(MemberState::Draining);
    assert!(site.cluster.check_stack(&stack()).is_ok());
    site.members[0].state.set(down("gone"));
    assert!(site.cluster.check_stack(&stack()).is_ok());
}

#[test]
fn the_load_is_the_sum_of_the_members_that_can_be_reached() {
    let site = Site::local(3);
    let one = site.members[0].node.load();
    site.members[2].state.set(down("gone"));
    let load = site.cluster.load();
    assert_eq!(load.senders.limit, 2 * one.senders.limit);
    assert_eq!(load.buffer_bytes_limit, 2 * one.buffer_bytes_limit);
}
