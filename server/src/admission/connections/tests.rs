use std::time::Duration;

use super::*;

const ONE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));
const TWO: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 2));
const THREE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 3));

fn connections(total: usize, per_network: usize, startups: &str) -> Arc<Connections> {
    let room = Room {
        connections: total,
        per_network,
        startups: startups.parse().expect(startups),
        exempt: Vec::new(),
    };
    Connections::with_dice(room, Dice::seeded(3))
}

fn user(connections: &Arc<Connections>, address: IpAddr) -> Result<Place, ConnectionRefusal> {
    let now = Instant::now();
    let mut place = connections.admit(address, now)?;
    place.logged_in(true, now)?;
    Ok(place)
}

fn anonymous(connections: &Arc<Connections>, address: IpAddr) -> Result<Place, ConnectionRefusal> {
    let now = Instant::now();
    let mut place = connections.admit(address, now)?;
    place.logged_in(false, now)?;
    Ok(place)
}

fn is_displaced(place: &Place) -> bool {
    let mut displaced = Box::pin(place.displaced());
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    displaced.as_mut().poll(&mut context).is_ready()
}

#[test]
fn users_are_counted_in_all_and_by_network() {
    let connections = connections(3, 2, "10:30:10");
    let first = user(&connections, ONE).expect("one");
    let _second = user(&connections, ONE).expect("two");
    let refusal = user(&connections, ONE).expect_err("too many");
    assert_eq!(refusal, ConnectionRefusal::Network);
    let _third = user(&connections, TWO).expect("three");
    let refusal = user(&connections, TWO).expect_err("too many");
    assert_eq!(refusal, ConnectionRefusal::Total);
    drop(first);
    assert_eq!(connections.total(), 2);
    let _fourth = user(&connections, ONE).expect("there is room again");
}

#[test]
fn the_addresses_of_one_ipv6_network_are_one() {
    let connections = connections(100, 2, "10:30:10");
    let address = |text: &str| text.parse::<IpAddr>().expect(text);
    let _places = ["2001:db8::1", "2001:db8::ffff:2"]
        .map(|text| user(&connections, address(text)).expect(text));
    let refusal = user(&connections, address("2001:db8::3")).expect_err("the same network");
    assert_eq!(refusal, ConnectionRefusal::Network);
    user(&connections, address("2001:db8:0:1::1")).expect("another network");
}

#[test]
fn nothing_is_kept_of_networks_that_are_gone() {
    let connections = connections(3, 2, "10:30:10");
    drop(connections.admit(ONE, Instant::now()).expect("one"));
    drop(user(&connections, ONE).expect("one"));
    drop(anonymous(&connections, ONE).expect("one"));
    let state = connections.lock();
    assert!(state.by_network.is_empty() && state.total == 0);
    assert!(state.unproved.is_empty());
    assert_eq!(state.startups.count(), 0);
}

#[test]
fn two_networks_of_silent_connections_leave_a_third_its_place() {
    let connections = connections(200, 100, "50:30:120");
    let now = Instant::now();
    let silent: Vec<Place> = (0..200)
        .filter_map(|number| connections.admit([ONE, TWO][number % 2], now).ok())
        .collect();
    assert_eq!(connections.startups(), 120);
    let third = connections.admit(THREE, now).expect("a place");
    assert_eq!(connections.startups(), 120);
    assert_eq!(silent.iter().filter(|place| is_displaced(place)).count(), 1);
    assert!(!is_displaced(&third));
    drop(silent);
    assert_eq!(connections.total(), 1);
}

#[test]
fn users_of_two_networks_leave_a_third_its_place() {
    let connections = connections(200, 200, "50:30:120");
    let users: Vec<Place> = (0..400)
        .filter_map(|number| user(&connections, [ONE, TWO][number % 2]).ok())
        .collect();
    assert_eq!(users.len(), 189, "eleven are kept free");
    let _third = user(&connections, THREE).expect("a place");
    assert!(users.iter().all(|place| !is_displaced(place)));
}

#[test]
fn silent_connections_do_not_keep_users_of_the_same_network_out() {
    let connections = connections(200, 20, "150:30:150");
    let now = Instant::now();
    let silent: Vec<Place> = (0..20)
        .map(|_| connections.admit(ONE, now).expect("a place"))
        .collect();
    // They could be about to log in.
    let refusal = connections
        .admit(ONE, now)
        .expect_err("the network's limit");
    assert_eq!(refusal, ConnectionRefusal::Network);
    let later = now + Duration::from_secs(6);
    let mut place = connections.admit(ONE, later).expect("a place");
    place.logged_in(true, later).expect("a user");
    assert_eq!(silent.iter().filter(|place| is_displaced(place)).count(), 1);
}

#[test]
fn hundreds_of_clients_of_one_site_log_in_at_the_same_second() {
    let room = Room {
        connections: 2000,
        per_network: 1000,
        startups: MaxStartups::default(),
        exempt: Vec::new(),
    };
    let connections = Connections::with_dice(room, Dice::seeded(3));
    let now = Instant::now();
    let places: Vec<Place> = (0..1000)
        .map(|_| connections.admit(ONE, now).expect("a place"))
        .collect();
    assert!(places.iter().all(|place| !is_displaced(place)));
}

#[test]
fn a_network_that_misbehaves_is_refused_and_its_sessions_stay() {
    let connections = connections(200, 100, "50:30:120");
    let now = Instant::now();
    let running = user(&connections, ONE).expect("a place");
    let refused = |now| {
        (0..100)
            .filter(|_| connections.admit(ONE, now).is_err())
            .count()
    };
    assert_eq!(refused(now), 0);
    for _ in 0..100 {
        running.penalize(Misconduct::Garbage, now);
    }
    assert!(refused(now) > 70);
    assert!(!is_displaced(&running));
    connections.admit(TWO, now).expect("another network");
    assert_eq!(refused(now + Duration::from_secs(120)), 0);
}

#[test]
fn descriptors_are_taken_from_those_who_have_most() {
    let connections = connections(200, 100, "50:30:120");
    let now = Instant::now();
    let places = [ONE, ONE, TWO].map(|address| connections.admit(address, now).expect("room"));
    connections.give_one_back();
    let gone = places.iter().filter(|place| is_displaced(place));
    let gone: Vec<Network> = gone.map(|place| place.network).collect();
    assert_eq!(gone, [Network::of(ONE)]);
}

#[test]
fn anonymous_users_of_many_networks_leave_users_an_eighth() {
    let connections = connections(80, 80, "50:30:80");
    let address = |host: u8| IpAddr::from([198, 51, 100, host]);
    let crowd: Vec<Place> = (0..200)
        .filter_map(|host| anonymous(&connections, address(host)).ok())
        .collect();
    assert_eq!(crowd.len(), 70);
    let refusal = anonymous(&connections, ONE).expect_err("their room is full");
    assert_eq!(refusal, ConnectionRefusal::Unproved);
    let users: Vec<Place> = (0..10)
        .map(|host| user(&connections, address(host)).expect("a place"))
        .collect();
    assert_eq!(connections.total(), 80);
    drop((crowd, users));
    assert_eq!((connections.total(), connections.startups()), (0, 0));
}

#[test]
fn anonymous_users_of_one_network_leave_places_for_those_of_another() {
    let connections = connections(80, 80, "50:30:80");
    let crowd: Vec<Place> = (0..80)
        .filter_map(|_| anonymous(&connections, ONE).ok())
        .collect();
    assert_eq!(crowd.len(), 63, "of 70, seven are kept free");
    let _other = anonymous(&connections, TWO).expect("a place");
}

#[test]
fn a_connection_that_was_displaced_does_not_log_in() {
    let connections = connections(10, 10, "1:100:1");
    let now = Instant::now();
    let mut displaced = connections.admit(ONE, now).expect("a place");
    let _other = connections.admit(TWO, now).expect("its place");
    for proved in [false, true] {
        let refusal = displaced.logged_in(proved, now).expect_err("it has none");
        assert_eq!(refusal, ConnectionRefusal::Startups);
    }
    drop(displaced);
    assert_eq!(connections.total(), 1);
}

#[test]
fn a_place_is_counted_by_what_its_user_proved_last() {
    let connections = connections(80, 80, "50:30:80");
    let now = Instant::now();
    let mut place = anonymous(&connections, ONE).expect("a place");
    for (proved, unproved) in [(true, 0), (false, 0), (true, 0)] {
        place.logged_in(proved, now).expect("a place");
        assert_eq!(connections.lock().unproved.len(), unproved);
    }
    drop(place);
    assert_eq!(connections.total(), 0);
}
