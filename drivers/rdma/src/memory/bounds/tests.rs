use proptest::prelude::*;

use super::*;

const MIB: u64 = 1 << 20;
const PAGE: u64 = 4096;

fn holder(side: Side, pins: bool) -> Holder {
    Holder {
        side,
        pins: pins.into(),
        party: None,
    }
}

/// The length of two equal rings that are offered.
fn offer(bounds: &Bounds, holder: Holder, ring_bytes: u64) -> Option<u64> {
    let wanted = Lengths::both(NonZeroU64::new(ring_bytes).unwrap());
    let offered = bounds.offer(holder, wanted, PAGE)?;
    assert_eq!(offered.outgoing, offered.incoming);
    Some(offered.outgoing.get())
}

fn of_party(number: u64) -> Holder {
    Holder {
        party: Some(Party(number)),
        ..holder(Side::Acceptor, false)
    }
}

#[test]
fn channels_of_one_party_leave_rings_to_another() {
    let mut bounds = Bounds::new(64 * MIB, u64::MAX);
    let mut held = Vec::new();
    while let Some(ring) = offer(&bounds, of_party(1), 16 * MIB) {
        bounds.take(of_party(1), 2 * ring);
        held.push((1, 2 * ring));
        assert!(held.len() < 1000, "it has no end");
    }
    let taken = bounds.memory().taken();
    assert!((40 * MIB..=48 * MIB).contains(&taken), "{taken}");
    assert!(!bounds.grow(of_party(1), 16 * MIB));
    // Later parties share the rest in the same way.
    for party in 2..6 {
        let ring = offer(&bounds, of_party(party), MIB).expect("a ring");
        bounds.take(of_party(party), 2 * ring);
        held.push((party, 2 * ring));
    }
    assert!(offer(&bounds, of_party(1), MIB).is_none());
    for (party, bytes) in held {
        bounds.give_back(of_party(party), bytes);
    }
    assert_eq!(bounds.memory().taken(), 0);
    assert!(bounds.memory.parties.is_empty());
}

/// The kernel counts pages that two devices pin twice.
#[test]
fn memory_counts_for_each_device_that_pins_it() {
    let mut bounds = Bounds::new(64 * MIB, 16 * MIB);
    let pinned_by = |pins| Holder {
        pins,
        ..holder(Side::Acceptor, true)
    };
    let [one, two] = [1, 2].map(|pins| offer(&bounds, pinned_by(pins), 64 * MIB).unwrap());
    assert!(two <= one / 2 && 4 * two <= 16 * MIB, "{one} and {two}");
    bounds.take(pinned_by(2), MIB);
    assert_eq!(
        (bounds.memory().taken(), bounds.pinned().taken()),
        (MIB, 2 * MIB)
    );
    assert!(bounds.grow(pinned_by(2), MIB));
    assert!(bounds.exchange(pinned_by(2), MIB, 2 * MIB));
    assert_eq!(
        (bounds.memory().taken(), bounds.pinned().taken()),
        (3 * MIB, 6 * MIB)
    );
    assert!(!bounds.exchange(pinned_by(2), 0, 6 * MIB), "12 MiB pinned");
    bounds.give_back(pinned_by(2), 3 * MIB);
    assert_eq!((bounds.memory().taken(), bounds.pinned().taken()), (0, 0));
}

#[test]
fn connecting_ends_leave_something_to_accepting_ends() {
    let mut bounds = Bounds::new(4 * MIB, u64::MAX);
    let connector = holder(Side::Connector, false);
    while let Some(ring) = offer(&bounds, connector, MIB) {
        bounds.take(connector, 2 * ring);
    }
    assert!(bounds.memory().taken() <= 3 * MIB);
    let acceptor = holder(Side::Acceptor, false);
    assert!(offer(&bounds, acceptor, MIB).is_some());
}

#[test]
fn many_channels_have_rings_of_one_length() {
    let free = [64, 247, 1000, 6000].map(|memory| (memory, u64::MAX, false));
    let pinning = [(247, u64::MAX, true), (1000, 247 * MIB, true)];
    for (memory, pinned, pins) in free.into_iter().chain(pinning) {
        let mut bounds = Bounds::new(memory * MIB, pinned);
        let ring = bounds.common_ring_bytes(pins).next_multiple_of(PAGE) - PAGE;
        for _ in 0..64 {
            for side in [Side::Connector, Side::Acceptor] {
                let holder = holder(side, pins);
                assert_eq!(offer(&bounds, holder, ring), Some(ring), "{memory}");
                bounds.take(holder, 2 * ring);
            }
        }
    }
}

#[test]
fn a_ring_that_is_cut_has_a_size_of_many() {
    let bounds = Bounds::new(1000 * MIB, u64::MAX);
    let acceptor = holder(Side::Acceptor, false);
    assert_eq!(offer(&bounds, acceptor, 200 * MIB), Some(200 * MIB));
    assert_eq!(offer(&bounds, acceptor, 1000 * MIB), Some(192 * MIB));
    assert_eq!(offer(&bounds, acceptor, 5000), Some(5000));
}

#[test]
fn a_channel_whose_data_flows_one_way_has_most_of_its_memory_in_one_ring() {
    let lengths = |outgoing, incoming| {
        let [outgoing, incoming] =
            [outgoing, incoming].map(|bytes| NonZeroU64::new(bytes).unwrap());
        Lengths { outgoing, incoming }
    };
    let mut bounds = Bounds::new(1000 * MIB, u64::MAX);
    let sender = holder(Side::Acceptor, false);
    let offer = |bounds: &Bounds, wanted| bounds.offer(sender, wanted, PAGE);
    let wanted = lengths(400 * MIB, MIB);
    assert_eq!(offer(&bounds, wanted), Some(wanted));
    assert_eq!(
        offer(&bounds, lengths(MIB, 1000 * MIB)),
        Some(lengths(MIB, 384 * MIB))
    );
    // Almost nothing is left: both are cut.
    bounds.take(sender, 999 * MIB + MIB / 2);
    let least = LEAST_RING_BYTES.get();
    let cut = offer(&bounds, wanted).unwrap();
    assert!(
        cut.bytes(PAGE) <= MIB / 2 && cut.shorter().get() >= least,
        "{cut:?}"
    );
    assert_eq!(
        offer(&bounds, lengths(MIB, 5000)).unwrap().incoming.get(),
        5000
    );
}

proptest! {
    #[test]
    fn offered_rings_are_within_the_bound_and_within_those_wanted(
        limit in 0..64 * MIB,
        taken in 0..64 * MIB,
        [outgoing, incoming] in [1..64 * MIB, 1..64 * MIB],
    ) {
        let [outgoing, incoming] = [outgoing, incoming].map(|bytes| NonZeroU64::new(bytes).unwrap());
        let wanted = Lengths { outgoing, incoming };
        let mut bounds = Bounds::new(limit, u64::MAX);
        let acceptor = holder(Side::Acceptor, false);
        bounds.take(acceptor, taken);
        if let Some(offered) = bounds.offer(acceptor, wanted, PAGE) {
            prop_assert_eq!(offered.within(wanted), offered);
            prop_assert!(taken + offered.bytes(PAGE) <= limit);
            let least = wanted.shorter().min(LEAST_RING_BYTES);
            prop_assert!(offered.shorter() >= least);
        }
    }
}

proptest! {
    /// Neither the bounds nor the shares of them are whole pages.
    #[test]
    fn a_ring_grows_by_whole_pages_within_the_bounds(
        limits in (0..64 * MIB, 0..64 * MIB),
        taken in 0..8 * MIB,
        (pins, party) in (0..3_u64, 0..3_u64),
        lengths in (0..16 * MIB, 0..64 * MIB),
    ) {
        let mut bounds = Bounds::new(limits.0, limits.1);
        let holder = Holder {
            pins,
            party: (party > 0).then_some(Party(party)),
            ..holder(Side::Connector, false)
        };
        bounds.take(holder, taken);
        let before = [bounds.memory().taken(), bounds.pinned().taken()];
        let [least, most] = [lengths.0, lengths.1];
        let more = bounds.extend(holder, taken, [least, most], PAGE);
        if let Some(more) = more {
            prop_assert!(more.is_multiple_of(PAGE) && more > 0, "{more}");
            prop_assert!((least..=most).contains(&more), "{more}");
            prop_assert!(bounds.memory().taken() <= limits.0);
            prop_assert!(pins == 0 || bounds.pinned().taken() <= limits.1);
        }
        let more = more.unwrap_or(0);
        let after = [bounds.memory().taken(), bounds.pinned().taken()];
        prop_assert_eq!(after, [before[0] + more, before[1] + more * pins]);
    }
}

#[test]
fn the_kernels_limit_counts_where_memory_is_pinned() {
    let bounds = Bounds::new(1000 * MIB, MIB);
    let soft = holder(Side::Acceptor, false);
    let pinning = holder(Side::Acceptor, true);
    assert_eq!(offer(&bounds, soft, 16 * MIB), Some(16 * MIB));
    let ring = offer(&bounds, pinning, 16 * MIB).unwrap();
    assert!((LEAST_RING_BYTES.get()..=MIB / 2).contains(&ring), "{ring}");
    assert!(bounds.narrowest(pinning).to_string().contains("ulimit -l"));
    assert!(bounds.narrowest(soft).to_string().contains("all rings"));
}

#[test]
fn nothing_fits_a_bound_that_is_too_small() {
    let bounds = Bounds::new(1000 * MIB, 8191);
    let pinning = holder(Side::Acceptor, true);
    assert_eq!(offer(&bounds, pinning, 4096), None);
}
