use super::*;

const MIB: u64 = 1 << 20;
const SECOND: Duration = Duration::from_secs(1);

fn arrival(wire: &mut Wire, bytes: u64, now: Duration) -> Option<Arrival> {
    wire.carry(bytes, 10, now, &mut Random::new(1)).arrival
}

#[test]
fn a_train_takes_its_time() {
    let mut wire = Wire::new(Link::new(MIB, SECOND));
    for seconds in [2, 3] {
        let arrival = arrival(&mut wire, MIB, Duration::ZERO).unwrap();
        assert_eq!(arrival.at, seconds * SECOND, "behind the one before");
        assert_eq!((arrival.packets, arrival.has_gap), (10, false));
    }
    assert_eq!(wire.free_at(), 2 * SECOND);
}

#[test]
fn a_policer_drops_trains_above_its_rate() {
    let mut link = Link::new(1000 * MIB, SECOND);
    link.policer = Some(Policer {
        rate: MIB,
        burst: 2 * MIB,
    });
    let mut wire = Wire::new(link);
    assert!(arrival(&mut wire, 2 * MIB, Duration::ZERO).is_some());
    assert!(arrival(&mut wire, MIB, Duration::ZERO).is_none());
    assert!(arrival(&mut wire, MIB, 2 * SECOND).is_some());
    assert!(arrival(&mut wire, 2 * MIB, 2 * SECOND).is_none());
    assert!(arrival(&mut wire, 3 * MIB, 100 * SECOND).is_none(), "ever");
    assert_eq!(wire.dropped(), 3);
}

#[test]
fn a_policer_may_become_another_one() {
    let mut link = Link::new(1000 * MIB, SECOND);
    let policer = |rate| Policer {
        rate,
        burst: 8 * MIB,
    };
    link.policer = Some(policer(MIB));
    link.repolice = Some((10 * SECOND, policer(4 * MIB)));
    let mut wire = Wire::new(link);
    let mut passes = |bytes, at: u32| arrival(&mut wire, bytes, at * SECOND).is_some();
    assert!(passes(8 * MIB, 0));
    // Trains take a moment, so that what has been gained is no whole number.
    assert!(passes(MIB, 2) && !passes(2 * MIB, 3));
    assert!(passes(8 * MIB, 12));
    assert!(!passes(4 * MIB, 13) && passes(3 * MIB, 13));
}

#[test]
fn packets_are_policed_individually() {
    let mut link = Link::new(8 * MIB, SECOND);
    link.policer = Some(Policer {
        rate: MIB,
        burst: MIB / 2,
    });
    link.polices_packets = true;
    let mut wire = Wire::new(link);
    // Five tenths of a mebibyte pass, and one tenth more while the rest arrives.
    let train = arrival(&mut wire, MIB, Duration::ZERO).unwrap();
    assert_eq!((train.packets, train.has_gap), (5, true));
    let train = arrival(&mut wire, MIB / 2, SECOND).unwrap();
    assert_eq!((train.packets, train.has_gap), (10, false));
    assert_eq!(wire.dropped(), 1);
}

#[test]
fn packets_behind_a_missing_one_are_listed() {
    let mut link = Link::new(8 * MIB, SECOND);
    link.policer = Some(Policer {
        rate: MIB,
        burst: MIB / 2,
    });
    link.polices_packets = true;
    let mut wire = Wire::new(link).telling_all();
    let train = arrival(&mut wire, MIB, Duration::ZERO).unwrap();
    assert_eq!((train.packets, train.has_gap), (5, true));
    let later: Vec<u64> = train.later.into_iter().flatten().collect();
    assert_eq!(later, [8], "another one passes while the rest arrives");

    let mut link = Link::new(MIB, Duration::ZERO);
    link.loss = 0.01;
    let mut wire = Wire::new(link).telling_all();
    let mut random = Random::new(7);
    let mut count = 0;
    for _ in 0..1000 {
        let arrival = wire.carry(1, 1000, Duration::ZERO, &mut random).arrival;
        let arrival = arrival.unwrap();
        let later = arrival.later.iter().map(|range| range.end - range.start);
        count += arrival.packets + later.sum::<u64>();
        assert!(
            arrival
                .later
                .iter()
                .all(|range| range.start > arrival.packets)
        );
    }
    assert!((988_000..992_000).contains(&count), "{count} of 1000000");
}

#[test]
fn a_long_queue_marks_packets() {
    let mut link = Link::new(4 * MIB, SECOND);
    link.queue = Some(Queue {
        rate: MIB,
        bytes: 4 * MIB,
        marking: Some(Marking {
            least_bytes: MIB,
            most_bytes: 2 * MIB,
            most_share: 0.5,
        }),
    });
    let mut wire = Wire::new(link);
    let mut marked = || arrival(&mut wire, MIB, Duration::ZERO).unwrap().is_marked;
    // Of each mebibyte three quarters stay in the queue.
    assert!(!marked(), "below the least length");
    let rest = [(); 3].map(|()| marked());
    assert!(rest[2], "above the most one");
}

#[test]
fn a_full_queue_drops_trains() {
    let mut link = Link::new(4 * MIB, SECOND);
    link.queue = Some(Queue {
        rate: MIB,
        bytes: MIB,
        marking: None,
    });
    let mut wire = Wire::new(link);
    // A quarter of a second to send, a second to leave the queue.
    let first = arrival(&mut wire, MIB, Duration::ZERO).unwrap();
    assert_eq!(first.at, 2 * SECOND);
    assert!(arrival(&mut wire, MIB, Duration::ZERO).is_none());
    let second = arrival(&mut wire, MIB, SECOND).unwrap();
    assert_eq!(second.at, 3 * SECOND);
}

#[test]
fn a_link_that_is_down_drops_all_packets() {
    let mut link = Link::new(MIB, Duration::ZERO);
    link.down = SECOND..3 * SECOND;
    let mut wire = Wire::new(link);
    assert!(arrival(&mut wire, MIB, SECOND).is_none());
    assert!(
        wire.carry_control(2 * SECOND, &mut Random::new(1))
            .is_none(),
        "nor do acknowledgements"
    );
    assert_eq!(wire.carry_reliably(2 * SECOND), 3 * SECOND);
    assert!(arrival(&mut wire, MIB, 2 * SECOND).is_some());
}

#[test]
fn packets_are_lost_at_the_configured_share() {
    let mut link = Link::new(MIB, Duration::ZERO);
    link.loss = 0.01;
    let mut wire = Wire::new(link);
    let mut random = Random::new(7);
    let mut intact = 0;
    for _ in 0..10_000 {
        let passage = wire.carry(1, 1_000_000, Duration::ZERO, &mut random);
        intact += passage.arrival.map_or(0, |arrival| arrival.packets);
    }
    assert!((960_000..1_020_000).contains(&intact), "{intact} of 990000");
}
