//! Transfers on several members.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use gridhaul_nodes::cluster::ClusterConfig;
use gridhaul_protocol::command::TransferMode;
use gridhaul_transfer::{
    CancelReason, Event, NodeSession, Plan, Role, Stripes, Task, TransferError, UploadName,
};

use crate::fake::{Fake, expected};
use crate::site::{
    Site, Started, TIME_LIMIT, connecting, detail, listening, plan, receive, send, start,
};

fn fakes(count: usize) -> Vec<Fake> {
    (0..count).map(|seed| Fake::new(seed as u64)).collect()
}

fn site(fakes: &[Fake]) -> Site {
    Site::new(fakes.iter().map(Fake::node))
}

fn stripes(at_most: usize) -> Stripes {
    Stripes::Many { at_most }
}

fn peers(count: u16) -> Vec<SocketAddr> {
    let address = |port| SocketAddr::from(([127, 0, 0, 1], port));
    (2000..2000 + count).map(address).collect()
}

fn extended(task: Task) -> Plan {
    plan(task, TransferMode::Extended)
}

/// The stripes of all plans of a transfer, with the role of each.
fn shares(fakes: &[Fake]) -> Vec<(Vec<usize>, &'static str)> {
    let plans = fakes.iter().flat_map(|fake| {
        let plans = fake.plans.lock().expect("no panic");
        plans.clone()
    });
    let mut shares: Vec<_> = plans
        .map(|plan| match plan.share {
            Some(share) => {
                let role = match share.role {
                    Role::Lead(_) => "lead",
                    Role::Member => "member",
                };
                (share.stripes, role)
            }
            None => (Vec::new(), "alone"),
        })
        .collect();
    shares.sort();
    shares
}

fn striped_receive(session: &Arc<dyn NodeSession>, name: &str) -> Started {
    session.listen(&listening(stripes(64))).expect("ports");
    start(session, extended(receive(name)))
}

#[test]
fn a_file_arrives_at_all_members() {
    for count in [2, 5, 64] {
        let fakes = fakes(count);
        let site = site(&fakes);
        let session = site.attach();
        let addresses = session.listen(&listening(stripes(64))).expect("ports");
        assert_eq!(addresses.len(), count);
        let received = start(&session, extended(receive("file")));
        let outcome = received.succeed();
        let content = expected("file".as_ref());
        assert_eq!(site.read("file"), content);
        assert_eq!(outcome.bytes, content.len() as u64);
        assert_eq!((outcome.stripes, outcome.channels), (count, count));
        assert_eq!(outcome.peers.len(), 1, "each once");
        assert_eq!(detail(&outcome, "node").len(), count);
        assert_eq!(received.transfer.progress().stripes.len(), count);
        let moved = received.transfer.progress().stripes.iter().sum::<u64>();
        assert_eq!(moved, outcome.bytes);
        assert_eq!(received.transfer.take_received().to_string(), "0-9700");
        assert!(received.transfer.take_received().is_empty());
        let shares = shares(&fakes);
        assert_eq!(shares.iter().filter(|(_, role)| *role == "lead").count(), 1);
        assert!(shares.contains(&(vec![0], "lead")));
        let mut all: Vec<_> = shares
            .into_iter()
            .flat_map(|(stripes, _)| stripes)
            .collect();
        all.sort_unstable();
        assert!(all.into_iter().eq(0..count));
        assert_eq!(site.transfers(), vec![0; count]);
    }
}

#[test]
fn the_number_of_stripes_is_limited() {
    let fakes = fakes(5);
    let site = site(&fakes);
    let session = site.attach();
    assert_eq!(
        session.listen(&listening(stripes(3))).expect("ports").len(),
        3
    );
    start(&session, extended(receive("file"))).succeed();
    assert_eq!(site.read("file"), expected("file".as_ref()));
}

#[test]
fn peers_are_distributed_over_the_members() {
    for (members, count) in [(2, 5), (4, 4), (5, 2), (3, 1)] {
        let fakes = fakes(members);
        let site = site(&fakes);
        let session = site.attach();
        let all = peers(count);
        session.connect(&connecting(all.clone())).expect("a stack");
        let sent = start(&session, extended(send("file")));
        let outcome = sent.succeed();
        assert_eq!(outcome.stripes, usize::from(count));
        if count == 1 {
            assert_eq!(shares(&fakes), [(vec![], "alone")]);
            continue;
        }
        let used = members.min(usize::from(count));
        let shares = shares(&fakes);
        assert_eq!(shares.len(), used);
        for (stripes, role) in &shares {
            assert_eq!(*role, "member");
            let first = stripes[0];
            let own = (first..usize::from(count)).step_by(used);
            assert!(stripes.iter().copied().eq(own), "{stripes:?}");
        }
        for fake in &fakes {
            let plans = fake.plans.lock().expect("no panic");
            if let Some(share) = plans.last().and_then(|plan| plan.share.clone()) {
                let told = fake.peers.lock().expect("no panic").last().cloned();
                let own = share.stripes.iter().map(|&stripe| all[stripe]);
                assert_eq!(told, Some(own.collect()));
            }
        }
    }
}

#[test]
fn a_listing_goes_to_one_member_with_all_peers() {
    let fakes = fakes(3);
    let site = site(&fakes);
    let session = site.attach();
    session.connect(&connecting(peers(4))).expect("a stack");
    let outcome = start(&session, plan(send("file"), TransferMode::Stream)).succeed();
    assert_eq!(outcome.stripes, 4);
    assert_eq!(shares(&fakes), [(vec![], "alone")]);
}

#[test]
fn what_one_member_has_to_do_is_refused_on_several() {
    let fakes = fakes(3);
    let site = site(&fakes);
    let session = site.attach();
    session.listen(&listening(stripes(3))).expect("ports");
    let mut ordered = extended(receive("file"));
    ordered.handling.ordered = true;
    let error = start(&session, ordered).finish();
    let error = error.result.expect_err("it needs an order");
    assert!(error.to_string().contains("send PASV or EPSV"), "{error}");
    // Storage that requires an order gets all stripes on one member.
    let config = ClusterConfig {
        spread_stripes: false,
    };
    let ordered = Site::with(config, fakes.iter().map(Fake::node));
    let session = ordered.attach();
    assert_eq!(
        session.listen(&listening(stripes(3))).expect("ports").len(),
        3
    );
    let outcome = start(&session, extended(receive("file"))).succeed();
    assert_eq!(detail(&outcome, "node").len(), 1);
}

#[test]
fn when_a_member_fails_the_others_are_cancelled_and_what_they_stored_is_known() {
    for failing in 0..3 {
        let fakes = fakes(3);
        let site = site(&fakes);
        let session = site.attach();
        session.listen(&listening(stripes(3))).expect("ports");
        // One fails at once, the others wait until they are cancelled.
        for (index, fake) in fakes.iter().enumerate() {
            if index == failing {
                fake.fails_once_in.store(1, Ordering::Relaxed);
            } else {
                fake.hangs.store(true, Ordering::Relaxed);
            }
        }
        let received = start(&session, extended(receive("file")));
        let outcome = received.finish();
        let error = outcome.result.as_ref().expect_err("one has failed");
        assert!(matches!(error, TransferError::Storage(_)), "{error}");
        assert_eq!(detail(&outcome, "failed-node"), [format!("dtn{failing}")]);
        assert!(received.events.recv_timeout(TIME_LIMIT).is_err(), "one end");
        let running = fakes
            .iter()
            .map(|fake| fake.running.load(Ordering::Relaxed));
        assert_eq!(running.sum::<usize>(), 0);
        let known = received.transfer.take_received().covered();
        assert_eq!(known, outcome.bytes);
        // The port cannot be used again.
        let next = start(&session, extended(receive("file"))).finish();
        assert!(matches!(next.result, Err(TransferError::Sequence(_))));
    }
}

#[test]
fn an_upload_with_lost_bytes_is_not_continued() {
    // The lead waits for the others, or is cancelled before.
    for lead_hangs in [false, true] {
        let fakes = fakes(3);
        let site = site(&fakes);
        let session = site.attach();
        session.listen(&listening(stripes(3))).expect("ports");
        for fake in &fakes {
            fake.loses.store(true, Ordering::Relaxed);
        }
        let mut plan = extended(receive("file"));
        plan.handling.upload = UploadName::Temporary;
        fakes[0].hangs.store(lead_hangs, Ordering::Relaxed);
        let received = start(&session, plan);
        let error = received.finish().result.expect_err("lost");
        assert!(matches!(error, TransferError::Lost(_)), "{error}");
        assert!(!site.path(".file.gridhaul-blocks").exists());
        assert!(is_lead(&fakes[0]));
    }
}

#[test]
fn a_cancellation_reaches_all_members_at_once() {
    // Also a lead that has received its stripes, and waits for the others.
    for lead_waits in [false, true] {
        let fakes = fakes(8);
        let site = site(&fakes);
        let session = site.attach();
        for fake in &fakes {
            fake.hangs.store(true, Ordering::Relaxed);
        }
        let received = striped_receive(&session, "file");
        let mut events = received.events.iter();
        let started = events.find(|event| !matches!(event, Event::Queued { .. }));
        assert!(
            matches!(started, Some(Event::Started { .. })),
            "{started:?}"
        );
        if lead_waits {
            let lead = fakes.iter().find(|fake| is_lead(fake)).expect("a lead");
            lead.hangs.store(false, Ordering::Relaxed);
            // Blocks 0, 8, 16, ... of 97.
            while received.transfer.progress().stripes[0] < 1300 {
                thread::yield_now();
            }
        }
        let began = Instant::now();
        received.transfer.cancel(CancelReason::Abort);
        let outcome = received.finish();
        assert!(
            began.elapsed() < Duration::from_millis(100),
            "{:?}",
            began.elapsed()
        );
        let error = outcome.result.expect_err("cancelled");
        assert!(matches!(
            error,
            TransferError::Cancelled(CancelReason::Abort)
        ));
    }
}

fn is_lead(fake: &Fake) -> bool {
    let plans = fake.plans.lock().expect("no panic");
    let share = plans.last().and_then(|plan| plan.share.clone());
    share.is_some_and(|share| matches!(share.role, Role::Lead(_)))
}

#[test]
fn a_transfer_that_has_not_begun_is_cancelled_at_once() {
    let fakes = fakes(2);
    let site = site(&fakes);
    let session = site.attach();
    session.connect(&connecting(peers(2))).expect("a stack");
    // Attaching to the second member lasts until the test lets it go on.
    let gates: Vec<_> = fakes
        .iter()
        .map(|fake| fake.gate.lock().expect("no panic"))
        .collect();
    let sent = start(&session, extended(send("file")));
    sent.transfer.cancel(CancelReason::Shutdown);
    let error = sent.finish().result.expect_err("cancelled");
    assert!(matches!(
        error,
        TransferError::Cancelled(CancelReason::Shutdown)
    ));
    drop(gates);
    assert_eq!(site.transfers(), [0, 0]);
    let plans = fakes
        .iter()
        .map(|fake| fake.plans.lock().expect("no panic").len());
    assert_eq!(plans.sum::<usize>(), 0);
}
