//! What an administrator sees of the members, and drains.

use std::sync::atomic::Ordering;

use gridhaul_nodes::Traffic;
use gridhaul_nodes::cluster::{MemberReport, MemberState};
use gridhaul_protocol::command::TransferMode;
use gridhaul_transfer::{CancelReason, DataNode as _, Stripes};

use crate::fake::Fake;
use crate::random::content;
use crate::site::{
    Site, connecting, down, listening, local_node, member, plan, receive, send, start,
};

fn reports(site: &Site) -> Vec<MemberReport> {
    site.cluster.members()
}

#[test]
fn a_drained_member_finishes_what_it_has_and_gets_nothing_new_until_it_is_resumed() {
    let site = Site::local(2);
    let sessions = [site.attach(), site.attach()];
    let counts = |site: &Site| {
        let members = reports(site).into_iter();
        members.map(|member| member.sessions).collect::<Vec<_>>()
    };
    assert_eq!(counts(&site), [1, 1]);
    let left = site.cluster.drain("dtn0").expect("a member");
    assert_eq!((left.sessions, left.state), (1, MemberState::Up));
    let since = left.drained.expect("drained");
    // A second order changes nothing.
    let again = site.cluster.drain("dtn0").expect("a member");
    assert_eq!(again.drained, Some(since));
    for session in &sessions {
        session.storage().stat("/".as_ref()).expect("a directory");
    }
    let more: Vec<_> = (0..4).map(|_| site.attach()).collect();
    assert_eq!(counts(&site), [0, 6]);
    let error = site.cluster.drain("dtn7").expect_err("no member");
    assert_eq!(
        error.to_string(),
        "there is no data node \"dtn7\"; there are: dtn0, dtn1"
    );

    // Its name stays drained when its address changes.
    let (moved, other) = (member(0, local_node()), site.members[1].clone());
    site.cluster
        .set_members(vec![moved, other])
        .expect("other names");
    drop(more);
    let more = [site.attach(), site.attach()];
    assert_eq!(reports(&site)[0].sessions, 0);
    drop(more);
    site.cluster.drain("dtn1").expect("a member");
    let error = site.cluster.attach(&site.account()).expect_err("drained");
    assert!(
        error
            .to_string()
            .contains("dtn1: drained by an administrator"),
        "{error}"
    );
    for name in ["dtn0", "dtn1"] {
        let resumed = site.cluster.resume(name).expect("a member");
        assert_eq!(resumed.drained, None);
    }
    drop(sessions);
    let _sessions = [site.attach(), site.attach()];
    assert_eq!(counts(&site), [1, 1]);
}

#[test]
fn a_transfer_on_a_drained_member_ends_as_usual_and_is_counted() {
    let site = Site::local(1);
    let bytes = content(1, 20 << 20);
    site.write("a", &bytes);
    let (receiver, sender) = (site.attach(), site.attach());
    let addresses = receiver.listen(&listening(Stripes::One)).expect("a port");
    sender.connect(&connecting(addresses)).expect("a stack");
    // The receiver accepts nothing yet, so the sender waits.
    let sending = start(&sender, plan(send("a"), TransferMode::Stream));
    site.cluster.drain("dtn0").expect("a member");
    // The client has the address of this port.
    let receiving = start(&receiver, plan(receive("b"), TransferMode::Stream));
    let sent = sending.succeed();
    receiving.succeed();
    assert_eq!(std::fs::read(site.path("b")).expect("a file"), bytes);
    assert_eq!(sent.nodes.len(), 1);
    assert_eq!(sent.nodes[0].name, "dtn0");
    let peer = sent.nodes[0].peer.expect("a peer");
    assert!(peer.is_loopback());
    let moved = Traffic {
        received: 20 << 20,
        sent: 20 << 20,
    };
    let report = &reports(&site)[0];
    assert_eq!((report.ended_bytes, report.bytes), (moved, moved));
}

#[test]
fn the_last_error_and_the_time_of_the_state_are_known() {
    let site = Site::local(1);
    let state = &site.members[0].state;
    let began = reports(&site)[0].since;
    assert_eq!(reports(&site)[0].last_error, None);
    state.set(MemberState::Up);
    assert_eq!(reports(&site)[0].since, began);
    state.set(down("connection refused"));
    let lost = reports(&site).remove(0);
    assert!(lost.since >= began);
    state.set(down("no route to host"));
    let later = reports(&site).remove(0);
    // Another reason, but it was never up meanwhile.
    assert_eq!((later.since, later.losses), (lost.since, 1));
    state.set(MemberState::Up);
    let up = reports(&site).remove(0);
    assert_eq!(up.state, MemberState::Up);
    assert_eq!(up.last_error.expect("told").reason, "no route to host");
}

#[test]
fn a_member_that_was_removed_has_its_transfers_until_they_end() {
    let fake = Fake::new(1);
    let site = Site::new([fake.node()]);
    let session = site.attach();
    assert!(!site.cluster.has_transfers("dtn0"));
    session.listen(&listening(Stripes::One)).expect("a port");
    fake.hangs.store(true, Ordering::Relaxed);
    let received = start(&session, plan(receive("a"), TransferMode::Extended));
    // Its node has another name in the configuration.
    let renamed = member(1, fake.node());
    site.cluster.set_members(vec![renamed]).expect("one");
    assert!(site.cluster.has_transfers("dtn0"));
    assert!(!site.cluster.has_transfers("dtn1"));
    received.transfer.cancel(CancelReason::Abort);
    received.finish();
    assert!(!site.cluster.has_transfers("dtn0"));
}
