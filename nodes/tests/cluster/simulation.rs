//! Clients, members and administrators act at random; members fail, drain, go down, come back and join.
//!
//! Every transfer ends exactly once, and a file that was received successfully is exact.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::RecvTimeoutError;
use std::thread;
use std::time::Instant;

use gridhaul_nodes::cluster::MemberState;
use gridhaul_protocol::command::TransferMode;
use gridhaul_protocol::ranges::RangeSet;
use gridhaul_transfer::{CancelReason, DataNode as _, Event, NodeSession, Stripes, TransferError};
use proptest::prelude::*;

use crate::fake::{Fake, expected};
use crate::random::Random;
use crate::site::{Site, Started, TIME_LIMIT, connecting, down, listening, member, plan};
use crate::site::{receive, send, start};

const CLIENTS: usize = 4;

const TRANSFERS: usize = 12;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn every_transfer_ends_once_and_complete_files_are_exact(
        seed in any::<u64>(),
        members in 2_usize..=64,
        fails_once_in in prop_oneof![Just(0_usize), 20_usize..2000],
    ) {
        simulate(seed, members, fails_once_in);
    }
}

/// What the clients of a simulation have seen.
#[derive(Debug, Default, Clone, Copy)]
struct Seen {
    complete: usize,
    failed: usize,
    cancelled: usize,
}

fn simulate(seed: u64, members: usize, fails_once_in: usize) {
    let fakes: Vec<_> = (0..=members)
        .map(|number| Fake::new(seed ^ number as u64))
        .collect();
    for fake in &fakes {
        fake.fails_once_in.store(fails_once_in, Ordering::Relaxed);
    }
    let site = Site::new(fakes[..members].iter().map(Fake::node));
    let seen = thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|client| {
                let random = Random::new(seed.wrapping_add(client as u64));
                let site = &site;
                scope.spawn(move || act_as_client(site, client, random))
            })
            .collect();
        if fails_once_in > 0 {
            disturb(&site, &fakes, Random::new(!seed));
        }
        let clients = clients.into_iter();
        clients.fold(Seen::default(), |sum, client| {
            let seen = client.join().expect("no panic");
            Seen {
                complete: sum.complete + seen.complete,
                failed: sum.failed + seen.failed,
                cancelled: sum.cancelled + seen.cancelled,
            }
        })
    });
    if fails_once_in == 0 {
        assert_eq!(seen.failed, 0);
        assert!(seen.complete > seen.cancelled, "{seen:?}");
    }
    // A thread that was to start a cancelled transfer may still be attaching to members.
    let deadline = Instant::now() + TIME_LIMIT;
    while Instant::now() < deadline && !is_idle(&site, &fakes) {
        thread::yield_now();
    }
    assert!(is_idle(&site, &fakes), "{:?}", site.cluster.members());
}

/// Whether nothing runs, and nothing is counted.
fn is_idle(site: &Site, fakes: &[Fake]) -> bool {
    let mut running = fakes
        .iter()
        .map(|fake| fake.running.load(Ordering::Relaxed));
    let reports = site.cluster.members();
    let mut counts = reports
        .iter()
        .map(|report| report.transfers + report.sessions);
    running.all(|count| count == 0) && counts.all(|count| count == 0)
}

/// Changes the states of members, and the members.
fn disturb(site: &Site, fakes: &[Fake], mut random: Random) {
    let spare = member(fakes.len() - 1, fakes[fakes.len() - 1].node());
    for _ in 0..40 {
        let some = &site.members[random.below(site.members.len())];
        match random.below(5) {
            0 => some.state.set(MemberState::Draining),
            1 => some.state.set(down("lost")),
            2 => {
                let mut members = site.members.clone();
                members.remove(random.below(members.len()));
                members.push(spare.clone());
                site.cluster.set_members(members).expect("other names");
            }
            _ => some.state.set(MemberState::Up),
        }
        thread::yield_now();
    }
    site.cluster
        .set_members(site.members.clone())
        .expect("names");
}

fn act_as_client(site: &Site, client: usize, mut random: Random) -> Seen {
    let mut seen = Seen::default();
    let mut session = None;
    for number in 0..TRANSFERS {
        let present = match session.take() {
            Some(present) if !random.once_in(6) => present,
            _ => match site.cluster.attach(&site.account()) {
                Ok(attached) => attached,
                Err(_) => continue,
            },
        };
        let path = format!("file{client}-{number}");
        match transfer(&present, &path, &mut random) {
            Some(Ok(())) => {
                seen.complete += 1;
                if site.path(&path).exists() {
                    assert!(site.read(&path) == expected(path.as_ref()), "{path}");
                }
            }
            Some(Err(TransferError::Cancelled(CancelReason::Stalled))) => seen.cancelled += 1,
            Some(Err(_)) => seen.failed += 1,
            None => {}
        }
        session = Some(present);
    }
    seen
}

/// Runs a transfer to its end. `None` if there is no data port.
fn transfer(
    session: &Arc<dyn NodeSession>,
    path: &str,
    random: &mut Random,
) -> Option<Result<(), TransferError>> {
    let stripes = 1 + random.below(64);
    if random.once_in(3) {
        let peer = |port: usize| ([127, 0, 0, 1], u16::try_from(port).expect("small")).into();
        let peers = (2000..2000 + stripes).map(peer).collect();
        session.connect(&connecting(peers)).ok()?;
        return Some(follow(
            &start(session, plan(send(path), TransferMode::Extended)),
            random,
        ));
    }
    let stripes = Stripes::Many { at_most: stripes };
    let count = session.listen(&listening(stripes)).ok()?.len();
    assert!((1..=stripes.most()).contains(&count));
    let received = || start(session, plan(receive(path), TransferMode::Extended));
    let mut result = follow(&received(), random);
    if result.is_ok() && random.once_in(2) {
        // Over the same port.
        result = follow(&received(), random);
    }
    Some(result)
}

/// Follows a transfer: samples its progress, and may cancel it.
fn follow(started: &Started, random: &mut Random) -> Result<(), TransferError> {
    let mut received = RangeSet::new();
    let mut has_started = false;
    let outcome = loop {
        match started
            .events
            .recv_timeout(TIME_LIMIT)
            .expect("no deadlock")
        {
            Event::Queued { .. } => assert!(!has_started),
            Event::Started { .. } => {
                assert!(!has_started, "it starts once");
                has_started = true;
                if random.once_in(10) {
                    started.transfer.cancel(CancelReason::Stalled);
                }
            }
            Event::Finished(outcome) => break *outcome,
        }
        received.extend_from(&started.transfer.take_received());
        let moved = started.transfer.progress().stripes;
        assert!(!moved.is_empty());
    };
    received.extend_from(&started.transfer.take_received());
    let stripes = started.transfer.progress().stripes;
    assert_eq!(stripes.iter().sum::<u64>(), outcome.bytes);
    assert_eq!(
        received.covered(),
        outcome.bytes,
        "every stored byte is reported"
    );
    // The sink is dropped with the last event.
    let after = started.events.recv_timeout(TIME_LIMIT);
    assert!(
        matches!(after, Err(RecvTimeoutError::Disconnected)),
        "{after:?}"
    );
    outcome.result
}
