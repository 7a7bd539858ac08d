//! What a node tells of itself, and what supervisors ask it.

use std::fs;
use std::net::IpAddr;

use gridhaul_nodes::cluster::{Cluster, ClusterConfig, MemberReport, MemberState};
use gridhaul_nodes::{Card, CardLoad, MachineSample, Traffic};
use gridhaul_protocol::command::TransferMode;
use gridhaul_transfer::DataNode as _;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tonic::Code;
use tonic::transport::Endpoint;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tower::service_fn;

use crate::site::{self, Remote, content, image, receive, send};

#[test]
fn a_node_tells_what_it_is_and_how_busy_its_cards_are() {
    let remote = Remote::new();
    let cluster = Cluster::new(ClusterConfig::default());
    let member = remote.under("dtn1", &cluster.instances());
    cluster.set_members(vec![member]).expect("one name");
    remote.service.set_machine(MachineSample {
        ring_bytes: 1,
        ring_bytes_limit: 2,
        cards: vec![card("lo", "127.0.0.1"), card("eth0", "192.0.2.1")],
        transferred: Traffic::default(),
    });
    let report = || cluster.members().remove(0);
    site::wait_until(|| !report().machine.cards.is_empty());
    let told = report();
    let facts = told.facts.expect("told");
    let (version, host) = (facts.version.as_str(), facts.host.as_str());
    assert_eq!((version, host), ("test", "node.example.org"));
    assert_eq!(facts.addresses, [IpAddr::from([127, 0, 0, 1])]);
    assert!(facts.clock_ahead_ms.abs() < 60_000);
    let cards = told.machine.cards.iter().map(|card| card.name.as_str());
    assert_eq!(cards.collect::<Vec<_>>(), ["lo"]);
    let rings = (told.machine.ring_bytes, told.machine.ring_bytes_limit);
    assert_eq!(rings, (1, 2));
}

#[test]
fn the_cards_of_a_node_take_turns_except_one_that_has_more_traffic() {
    let addresses = ["127.0.0.1", "127.0.0.2"].map(|text| text.parse().expect("an address"));
    let remote = Remote::at(addresses.into(), site::local());
    let session = remote.attach();
    let next = || site::listen(&*session, 1)[0].ip();
    let taken = [next(), next(), next()];
    assert_eq!(taken, [addresses[0], addresses[1], addresses[0]]);
    let mut busy = card("eth1", "127.0.0.2");
    busy.load.link = Some(1000);
    busy.load.traffic.sent = 500;
    remote.service.set_machine(MachineSample {
        ring_bytes: 0,
        ring_bytes_limit: 0,
        cards: vec![card("eth0", "127.0.0.1"), busy],
        transferred: Traffic::default(),
    });
    assert_eq!([next(), next(), next()], [addresses[0]; 3]);
    let cluster = Cluster::new(ClusterConfig::default());
    let member = remote.under("dtn1", &cluster.instances());
    cluster.set_members(vec![member]).expect("one name");
    site::wait_until(|| cluster.members()[0].machine.cards.len() == 2);
    let facts = cluster.members().remove(0).facts.expect("told");
    assert_eq!(facts.addresses, addresses);
}

#[test]
fn clients_of_a_node_behind_address_translation_are_told_its_address_outside() {
    let [inside, outside] = ["127.0.0.1", "127.0.0.2"].map(|text| text.parse().expect("one"));
    let remote = Remote::announcing(Some(outside), vec![inside], site::local());
    fs::write(remote.path("file"), "bytes").expect("written");
    let (session, other) = (remote.attach(), remote.attach());
    let told = site::listen(&*session, 1)[0];
    assert_eq!(told.ip(), outside);
    std::net::TcpStream::connect((inside, told.port())).expect("it listens there");
    assert!(remote.node.listens_at(told));
    // The other end of a copy may be the node itself. Here nothing translates the address, so the connection is made and fails.
    let refused = |peer| {
        site::connect(&*other, vec![peer]);
        let sent = site::start(&*other, image(send("file"), TransferMode::Stream, 1));
        sent.finish().result.expect_err("no peer").to_string()
    };
    let rule = format!("{outside} is refused");
    assert!(!refused(told).contains(&rule), "{}", refused(told));
    // The node hears of it without an answer.
    session.release();
    site::wait_until(|| refused(told).contains(&rule));
    let cluster = Cluster::new(ClusterConfig::default());
    let member = remote.under("dtn1", &cluster.instances());
    cluster.set_members(vec![member]).expect("one name");
    site::wait_until(|| cluster.members()[0].facts.is_some());
    let facts = cluster.members().remove(0).facts.expect("told");
    assert_eq!(facts.addresses, [outside]);
}

#[test]
fn sessions_of_other_control_servers_count_in_the_choice() {
    let nodes = [Remote::new(), Remote::new()];
    let cluster = Cluster::new(ClusterConfig::default());
    let instances = cluster.instances();
    let members = [("dtn1", &nodes[0]), ("dtn2", &nodes[1])];
    let members = members.map(|(name, node)| node.under(name, &instances));
    cluster.set_members(members.into()).expect("two names");
    let sessions = |count: fn(&MemberReport) -> u64| {
        let members = cluster.members();
        members.iter().map(count).collect::<Vec<_>>()
    };
    let others = || sessions(|member| member.machine.other_sessions);
    let all = || sessions(|member| member.machine.sessions);
    let own = || sessions(|member| member.sessions as u64);
    let _others = [(); 3].map(|()| nodes[0].attach());
    site::wait_until(|| others() == [3, 0]);
    let attached = [(); 3].map(|()| cluster.attach(&nodes[1].account()).expect("a node"));
    assert_eq!(own(), [0, 3]);
    let more = [(); 2].map(|()| cluster.attach(&nodes[1].account()).expect("a node"));
    assert_eq!(own(), [1, 4]);
    site::wait_until(|| all() == [4, 4]);
    assert_eq!(others(), [3, 0]);
    drop((attached, more));
    site::wait_until(|| all() == [3, 0]);
}

fn card(name: &str, address: &str) -> Card {
    Card {
        load: CardLoad {
            name: name.to_owned(),
            ..CardLoad::default()
        },
        addresses: vec![address.parse().expect("an address")],
    }
}

#[test]
fn a_node_counts_what_its_transfers_move() {
    let remote = Remote::new();
    fs::write(remote.path("a"), content(3 << 20)).expect("a file");
    let (receiver, sender) = (remote.attach(), remote.attach());
    site::connect(&*sender, site::listen(&*receiver, 1));
    let plan = |task| image(task, TransferMode::Stream, 1);
    let receiving = site::start(&*receiver, plan(receive("/b")));
    let sending = site::start(&*sender, plan(send("/a")));
    sending.finish().result.expect("sent");
    receiving.finish().result.expect("received");
    let moved = remote.service.transferred();
    assert_eq!((moved.received, moved.sent), (3 << 20, 3 << 20));
}

#[test]
fn a_node_with_two_names_is_used_under_the_first() {
    let remote = Remote::new();
    let cluster = Cluster::new(ClusterConfig::default());
    let instances = cluster.instances();
    let names = ["dtn2", "dtn1"].map(|name| remote.under(name, &instances));
    let only = names[0].clone();
    cluster.set_members(names.into()).expect("two names");
    let same = MemberState::Same {
        name: "dtn1".to_owned(),
    };
    let states = || {
        let members = cluster.members().into_iter();
        members.map(|member| member.state).collect::<Vec<_>>()
    };
    site::wait_until(|| states() == [same.clone(), MemberState::Up]);
    let _session = cluster.attach(&remote.account()).expect("it is used");
    let sessions = cluster.members().into_iter().map(|member| member.sessions);
    assert_eq!(sessions.collect::<Vec<_>>(), [0, 1]);
    // The administrator removes the first name.
    cluster.set_members(vec![only]).expect("one name");
    drop(_session);
    site::wait_until(|| states() == [MemberState::Up]);
    cluster.attach(&remote.account()).expect("it is used");
}

#[test]
fn a_renamed_node_is_used_at_once_while_its_old_name_has_sessions() {
    let remote = Remote::new();
    let cluster = Cluster::new(ClusterConfig::default());
    let instances = cluster.instances();
    let old = remote.under("dtn1", &instances);
    cluster.set_members(vec![old]).expect("one name");
    let is_up = || cluster.members()[0].state == MemberState::Up;
    site::wait_until(is_up);
    let session = cluster.attach(&remote.account()).expect("it is used");
    site::listen(&*session, 1);
    // A name behind the old one in the order of the alphabet, which would have to wait for it.
    let new = remote.under("dtn2", &instances);
    cluster.set_members(vec![new]).expect("one name");
    site::wait_until(is_up);
    cluster.attach(&remote.account()).expect("it is used");
    // The session that has its data port there goes on.
    session.storage().stat("/".as_ref()).expect("a directory");
}

/// What load balancers and supervisors ask.
#[test]
fn a_standard_health_check_is_answered() {
    let remote = Remote::new();
    let address = remote.address;
    let ask = |service: &str| {
        let service = service.to_owned();
        let connect = move |_| async move { TcpStream::connect(address).await.map(TokioIo::new) };
        let answer = remote.block_on(async move {
            let endpoint = Endpoint::from_static("http://node");
            let channel = endpoint.connect_with_connector(service_fn(connect)).await;
            let mut health = HealthClient::new(channel.expect("connected"));
            health.check(HealthCheckRequest { service }).await
        });
        answer.map(|answer| answer.into_inner().status())
    };
    assert_eq!(ask("").expect("an answer"), ServingStatus::Serving);
    assert_eq!(ask("other").expect_err("unknown").code(), Code::NotFound);
    remote.drain();
    assert_eq!(ask("").expect("an answer"), ServingStatus::NotServing);
}
