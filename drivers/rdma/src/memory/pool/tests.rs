mod further;
mod handed_on;
mod released;

use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU64, Ordering};

use gridhaul_stack::{Cancel, Party, Side};
use proptest::prelude::*;

use super::*;
use crate::memory::idle::KEPT_IDLE;

const MIB: u64 = 1 << 20;

const ACCEPTOR: Holder = Holder {
    side: Side::Acceptor,
    pins: 0,
    party: None,
};

/// Two rings of this length.
fn both(ring_bytes: u64) -> Lengths {
    Lengths::both(NonZeroU64::new(ring_bytes).unwrap())
}

fn take(pool: &Arc<Pool>, holder: Holder, ring_bytes: u64) -> Result<Share, PoolError> {
    let cancel = Cancel::new();
    let operation = Operation {
        deadline: None,
        cancel: &cancel,
    };
    pool.take(holder, both(ring_bytes), &operation)
}

/// An operation that does not wait.
fn take_at_once(pool: &Arc<Pool>, holder: Holder, ring_bytes: u64) -> Result<Share, PoolError> {
    take_rings_at_once(pool, holder, both(ring_bytes))
}

fn take_rings_at_once(
    pool: &Arc<Pool>,
    holder: Holder,
    rings: Lengths,
) -> Result<Share, PoolError> {
    let cancel = Cancel::new();
    let operation = Operation {
        deadline: Some(Instant::now()),
        cancel: &cancel,
    };
    pool.take(holder, rings, &operation)
}

#[test]
fn mappings_are_used_again_until_they_are_old() {
    let pool = Pool::new(64 * MIB, u64::MAX);
    let share = take(&pool, ACCEPTOR, MIB).unwrap();
    let [one, other] = share.map(0, &|| true).unwrap().1;
    let addresses = [one.address(), other.address()];
    drop(one);
    let load = pool.load();
    assert_eq!((load.used_bytes, load.idle_bytes), (MIB, MIB));
    drop(other);
    let load = pool.load();
    assert_eq!((load.used_bytes, load.idle_bytes), (0, 2 * MIB));
    let rings = take(&pool, ACCEPTOR, MIB)
        .unwrap()
        .map(0, &|| true)
        .unwrap()
        .1;
    assert!(rings.iter().all(|ring| addresses.contains(&ring.address())));
    drop(rings);
    let mut state = pool.lock();
    assert!(state.idle.expire(Instant::now()).is_some());
    assert_eq!(state.idle.expire(Instant::now() + KEPT_IDLE), None);
    assert_eq!(state.idle.bytes(), 0);
}

#[test]
fn idle_mappings_make_room() {
    let pool = Pool::new(16 * MIB, u64::MAX);
    drop(
        take(&pool, ACCEPTOR, 2 * MIB)
            .unwrap()
            .map(0, &|| true)
            .unwrap()
            .1,
    );
    assert_eq!(pool.load().idle_bytes, 4 * MIB);
    let share = take(&pool, ACCEPTOR, 100 * MIB).unwrap();
    let load = pool.load();
    assert_eq!(load.used_bytes, 2 * share.rings().outgoing.get());
    assert!(load.used_bytes + load.idle_bytes <= load.limit_bytes);
}

#[test]
fn mappings_are_unmapped_after_the_lock() {
    let pool = Pool::new(64 * MIB, u64::MAX);
    drop(
        take(&pool, ACCEPTOR, MIB)
            .unwrap()
            .map(0, &|| true)
            .unwrap()
            .1,
    );
    let mut state = pool.lock();
    state.idle.evict(0);
    assert_eq!(state.idle.bytes(), 0);
    let evicted = state.idle.take_evicted();
    assert_eq!(evicted.len(), 2, "they are still mapped");
    drop(state);
    assert!(pool.lock().idle.take_evicted().is_empty());
}

#[test]
fn memory_in_addition_to_rings_counts() {
    let pool = Pool::new(64 * MIB, u64::MAX);
    let mut share = take(&pool, ACCEPTOR, MIB).unwrap();
    assert!(share.set_extra(MIB));
    assert!(!share.set_extra(64 * MIB), "it would be all there is");
    assert_eq!(pool.load().used_bytes, 3 * MIB);
    assert!(share.set_extra(MIB / 2));
    assert_eq!(pool.load().used_bytes, 5 * MIB / 2);
    share.shrink(both(MIB / 2));
    drop(share.map(0, &|| true).unwrap().1);
    assert_eq!(pool.load().used_bytes, 0);
}

/// The first holder of a small bound has all that is not reserved for others.
#[test]
fn rings_make_room_for_messages() {
    let pins = Holder {
        pins: 1,
        ..ACCEPTOR
    };
    for limit in [MIB, 7 * MIB, 100 * MIB] {
        let pool = Pool::new(1024 * MIB, limit);
        let mut shares = Vec::new();
        let mut refused = 0;
        while refused < 3 {
            let Ok(mut share) = take_at_once(&pool, pins, 1024 * MIB) else {
                break;
            };
            let before = (share.rings(), pool.load().pinned_bytes);
            if share.make_room(240 << 10) {
                shares.push(share);
            } else {
                assert_eq!((share.rings(), pool.load().pinned_bytes), before);
                refused += 1;
            }
            assert!(pool.load().pinned_bytes <= limit);
        }
        assert!(!shares.is_empty(), "{limit}");
        drop(shares);
        assert_eq!(pool.load().used_bytes, 0);
    }
}

#[test]
fn a_waiting_channel_gets_memory_that_comes_back() {
    let pool = Pool::new(256 << 10, u64::MAX);
    let mut held = Vec::new();
    while let Ok(share) = take_at_once(&pool, ACCEPTOR, MIB) {
        held.push(share);
    }
    assert!(!held.is_empty());
    let waiter = thread::spawn({
        let pool = Arc::clone(&pool);
        move || take(&pool, ACCEPTOR, MIB).map(|share| share.rings().outgoing)
    });
    while pool.load().waiting == 0 {
        thread::yield_now();
    }
    // A holder of another kind is not blocked by the waiting one, and finds no memory either.
    let connector = Holder {
        side: Side::Connector,
        ..ACCEPTOR
    };
    let ended = take_at_once(&pool, connector, MIB).unwrap_err();
    assert!(matches!(ended, PoolError::Waited(_)), "{ended}");
    held.pop();
    let granted = waiter.join().unwrap().unwrap();
    assert!(granted.get() >= 64 << 10);
}

#[test]
fn a_channel_that_gets_no_memory_in_time_reports_the_bound() {
    let pool = Pool::new(128 << 10, u64::MAX);
    let _held = take(&pool, ACCEPTOR, MIB).unwrap();
    let cancel = Cancel::new();
    let operation = Operation {
        deadline: Some(Instant::now() + Duration::from_millis(400)),
        cancel: &cancel,
    };
    let error = pool.take(ACCEPTOR, both(MIB), &operation).unwrap_err();
    let words = error.to_string();
    assert!(
        words.contains("1 channels have 131072 of the 131072"),
        "{words}"
    );
    cancel.cancel();
    let error = pool.take(ACCEPTOR, both(MIB), &operation).unwrap_err();
    assert!(matches!(error, PoolError::Cancelled));
    assert_eq!(pool.load().waiting, 0);
    let pinning = Holder {
        pins: 1,
        ..ACCEPTOR
    };
    let pool = Pool::new(MIB, 4096);
    let error = take(&pool, pinning, MIB).unwrap_err();
    assert!(error.to_string().contains("ulimit -l"), "{error}");
}

#[test]
fn a_share_gives_back_what_it_does_not_need() {
    let pool = Pool::new(16 * MIB, u64::MAX);
    let mut share = take(&pool, ACCEPTOR, 2 * MIB).unwrap();
    share.shrink(both(MIB));
    assert_eq!(pool.load().used_bytes, 2 * MIB);
    let rings = share.map(0, &|| true).unwrap().1;
    assert_eq!(rings.map(|ring| ring.length() as u64), [MIB; 2]);
    assert_eq!(pool.load().used_bytes, 0);
}

/// The first channels get the rings that they want. Later ones find less memory free, and all of these
/// get the same.
#[test]
fn channels_that_come_and_go_share_the_pool_fairly() {
    const CHANNELS: usize = 64;
    const WANTED: u64 = 16 * MIB;
    let pool = Pool::new(256 * MIB, u64::MAX);
    let open = |_| take_at_once(&pool, ACCEPTOR, WANTED).unwrap();
    let mut channels: VecDeque<Share> = (0..CHANNELS).map(open).collect();
    assert_eq!(channels[0].rings().outgoing.get(), WANTED);
    assert!(channels[CHANNELS - 1].rings().outgoing.get() < MIB);
    // A long path carries one ring in a round trip.
    let mut moved = [0; CHANNELS];
    for round in 0..4 {
        for moved in &mut moved {
            drop(channels.pop_front());
            let channel = open(0);
            if round > 0 {
                *moved += channel.rings().outgoing.get();
            }
            channels.push_back(channel);
        }
    }
    let [slowest, fastest] = [moved.iter().min(), moved.iter().max()].map(Option::unwrap);
    assert!(10 * slowest > 7 * fastest, "{moved:?}");
    let ring_bytes = channels[0].rings().outgoing.get();
    assert!((MIB..WANTED).contains(&ring_bytes), "{ring_bytes}");
    // A channel that wants no more than that gets all of it.
    drop(channels.pop_front());
    let small = take_at_once(&pool, ACCEPTOR, 5000).unwrap();
    assert_eq!(small.rings(), both(5000));
}

/// An operation of a channel on the pool.
#[derive(Debug, Clone, Copy)]
enum Step {
    Open {
        connects: bool,
        pins: u64,
        rings: Lengths,
    },
    /// Gives back a part, or all.
    Shrink(usize, Lengths),
    Close(usize),
    Limit(u64),
}

fn lengths(most: u64) -> impl Strategy<Value = Lengths> {
    (1..most, 1..most).prop_map(|lengths| {
        let (outgoing, incoming) = lengths;
        let [outgoing, incoming] = [outgoing, incoming].map(|length| both(length).outgoing);
        Lengths { outgoing, incoming }
    })
}

fn step() -> impl Strategy<Value = Step> {
    let open = (any::<bool>(), 0..3_u64, lengths(4 * MIB)).prop_map(|(connects, pins, rings)| {
        Step::Open {
            connects,
            pins,
            rings,
        }
    });
    prop_oneof![
        4 => open,
        1 => (any::<usize>(), lengths(MIB)).prop_map(|(which, rings)| Step::Shrink(which, rings)),
        3 => any::<usize>().prop_map(Step::Close),
        1 => (MIB..16 * MIB).prop_map(Step::Limit),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// Against the simplest model of a bound: the sum of what channels have.
    #[test]
    fn the_bounds_hold(steps in proptest::collection::vec(step(), 1..60)) {
        const PINNED: u64 = 4 * MIB;
        let pool = Pool::new(8 * MIB, PINNED);
        let mut limit = 8 * MIB;
        let mut channels: Vec<(Holder, Share)> = Vec::new();
        let mut rings = Vec::new();
        for step in steps {
            let used_before = pool.load().used_bytes;
            match step {
                Step::Open { connects, pins, rings } => {
                    let side = if connects { Side::Connector } else { Side::Acceptor };
                    let holder = Holder { side, pins, party: None };
                    if let Ok(share) = take_rings_at_once(&pool, holder, rings) {
                        prop_assert_eq!(share.rings().within(rings), share.rings());
                        prop_assert!(pool.load().used_bytes <= limit);
                        channels.push((holder, share));
                    } else {
                        let wanted = rings.within(both(64 << 10)).bytes(page_bytes());
                        let taken: u64 = channels.iter().map(|(_, share)| share.rings().bytes(page_bytes())).sum();
                        let is_bounded = taken + wanted > limit - limit / 4 || pins > 0;
                        prop_assert!(is_bounded, "{taken} of {limit} are taken, {wanted} wanted");
                    }
                }
                Step::Shrink(which, length) if !channels.is_empty() => {
                    let which = which % channels.len();
                    channels[which].1.shrink(length);
                }
                Step::Close(which) if !channels.is_empty() => {
                    let (_, share) = channels.swap_remove(which % channels.len());
                    // Mapped at last, so that something becomes idle.
                    if share.rings().longer().get() <= MIB {
                        rings.push(share.map(0, &|| true).unwrap().1);
                        rings.truncate(0);
                    }
                }
                Step::Limit(bytes) => {
                    limit = bytes;
                    pool.set_limit(limit);
                }
                Step::Shrink(..) | Step::Close(_) => {}
            }
            let load = pool.load();
            let sum = |times: fn(&Holder) -> u64| -> u64 {
                let counted = channels.iter();
                counted.map(|(holder, share)| times(holder) * share.rings().bytes(page_bytes())).sum()
            };
            prop_assert_eq!(load.used_bytes, sum(|_| 1));
            prop_assert_eq!(load.pinned_bytes, sum(|holder| holder.pins));
            prop_assert_eq!(load.channels, channels.len() as u64);
            prop_assert!(load.pinned_bytes <= PINNED);
            prop_assert!(load.used_bytes <= limit.max(used_before));
            prop_assert!(load.idle_bytes + load.used_bytes <= limit.max(load.used_bytes));
        }
    }
}

/// Threads open and close channels at the same time. All of them get rings, and the bound holds.
#[test]
fn many_threads_share_a_bound() {
    const LIMIT: u64 = 8 * MIB;
    const THREADS: u64 = 16;
    let pool = Pool::new(LIMIT, LIMIT / 2);
    let mapped = AtomicU64::new(0);
    thread::scope(|scope| {
        for number in 0..THREADS {
            let (pool, mapped) = (&pool, &mapped);
            scope.spawn(move || {
                let side = if number % 2 == 0 {
                    Side::Acceptor
                } else {
                    Side::Connector
                };
                let holder = Holder {
                    side,
                    pins: u64::from(number % 3 == 0),
                    party: (number % 5 > 0).then_some(Party(number % 4)),
                };
                for round in 0..50 {
                    let wanted = (number * 50 + round) * 7919 % (2 * MIB) + 1;
                    let rings = take(pool, holder, wanted)
                        .unwrap()
                        .map(0, &|| true)
                        .unwrap()
                        .1;
                    let length = rings.iter().map(|ring| ring.length() as u64).sum();
                    let all = mapped.fetch_add(length, Ordering::AcqRel) + length;
                    assert!(all <= LIMIT, "{all} bytes are mapped");
                    mapped.fetch_sub(length, Ordering::AcqRel);
                }
            });
        }
    });
    let load = pool.load();
    assert_eq!((load.used_bytes, load.channels, load.waiting), (0, 0, 0));
}
