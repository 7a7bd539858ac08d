//! Channels over real sockets and devices, whose queue pairs are lost or misused.

mod growing;
mod late_requests;
mod movers;
mod padding;
mod slow_disk;
mod turns;
mod waiting;

use std::net::{IpAddr, Ipv4Addr};
use std::thread;
use std::time::Instant;

use gridhaul_stack::{Cancel, DetailValue, Driver as _, Flow, Side, SocketOptions};
use gridhaul_tcp::TcpListener;

use super::*;
use crate::Rdma;
use crate::open::open;
use crate::provider::{PostError, Remote, Request, Work};
use crate::settings::Settings;

/// Both ends of a channel at this address with small rings: the connecting end, then the accepting
/// one.
fn pair(local: IpAddr, stacks: [[(&str, &str); 2]; 2], operation: &Operation<'_>) -> [Streams; 2] {
    let settings = stacks.map(|stack| {
        let rings = [("slab", "4K"), ("slabs", "4"), ("message", "1K")];
        settings(stack.into_iter().chain(rings))
    });
    connected(local, &settings, Flow::Both, operation)
}

fn settings<'a>(options: impl IntoIterator<Item = (&'a str, &'a str)>) -> Settings {
    let options: Vec<_> = options
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    Settings::parse(&Rdma.read_options(&options).unwrap()).unwrap()
}

/// Both ends of a channel: the connecting end, which knows which way data flows, then the accepting
/// one.
fn connected(
    local: IpAddr,
    [theirs, ours]: &[Settings; 2],
    flow: Flow,
    operation: &Operation<'_>,
) -> [Streams; 2] {
    let sockets = SocketOptions::default();
    let mut listener = TcpListener::open(&ours.tcp, local, &sockets).unwrap();
    let address = (local, listener.port()).into();
    thread::scope(|scope| {
        let connector = scope.spawn(|| {
            let sockets = SocketOptions { flow, ..sockets };
            let connection =
                gridhaul_tcp::connect(&theirs.tcp, address, &sockets, operation).unwrap();
            open(connection, Side::Connector, theirs, &sockets, operation).unwrap()
        });
        let connection = listener.accept_channel(operation).unwrap();
        let acceptor = open(connection, Side::Acceptor, ours, &sockets, operation).unwrap();
        [connector.join().unwrap(), acceptor].map(Streams::new)
    })
}

fn within_a_minute(cancel: &Cancel) -> Operation<'_> {
    Operation {
        deadline: Some(Instant::now() + Duration::from_secs(60)),
        cancel,
    }
}

/// How many times queue pairs were restored, as other threads see it.
fn restored(streams: &Streams) -> u64 {
    let details = streams.meter().details();
    let restored = details.iter().find(|one| one.name == "restored");
    match restored.expect("it is counted").value {
        DetailValue::Count(count) => count,
        ref other => panic!("{other:?}"),
    }
}

fn receive_all(streams: &mut Streams, operation: &Operation<'_>) -> Vec<u8> {
    let (mut all, mut buffer) = (Vec::new(), [0; 5000]);
    loop {
        match streams.receive(&mut buffer, operation).unwrap() {
            0 => return all,
            count => all.extend_from_slice(&buffer[..count]),
        }
    }
}

/// Sends in both directions, and loses queue pair `lost(number)` after the piece of that number.
fn survive(
    local: IpAddr,
    stacks: [[(&str, &str); 2]; 2],
    lost: impl Fn(usize) -> Option<usize> + Sync,
) -> u64 {
    let cancel = Cancel::new();
    let operation = Operation {
        deadline: Some(Instant::now() + Duration::from_secs(60)),
        cancel: &cancel,
    };
    let bytes: Vec<u8> = (0..300_000_u32)
        .map(|n| n.to_le_bytes()[n as usize % 3])
        .collect();
    let [mut one, mut other] = pair(local, stacks, &operation);
    let send_all = |streams: &mut Streams| {
        for (number, piece) in bytes.chunks(30_000).enumerate() {
            streams.send_memory(piece, &operation).unwrap();
            if let Some(queue_pair) = lost(number) {
                let Opened {
                    endpoint, exchange, ..
                } = &mut streams.opened;
                exchange.close(endpoint.as_mut(), queue_pair);
            }
        }
        streams.finish(&operation).unwrap();
    };
    thread::scope(|scope| {
        scope.spawn(|| {
            assert!(receive_all(&mut other, &operation) == bytes);
            send_all(&mut other);
        });
        send_all(&mut one);
        assert!(receive_all(&mut one, &operation) == bytes);
    });
    restored(&one)
}

/// Handshakes of transforms go both ways, and so does anything that a caller sends.
#[test]
fn a_channel_whose_data_flows_one_way_has_one_long_ring_at_each_end() {
    const LONG: usize = 4 << 20;
    const SHORT: usize = 256 << 10;
    let cancel = Cancel::new();
    let operation = Operation {
        deadline: Some(Instant::now() + Duration::from_secs(60)),
        cancel: &cancel,
    };
    let local = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let bytes: Vec<u8> = (0..3 * LONG).map(|n| n.to_le_bytes()[n % 3]).collect();
    let (bytes, operation) = (&bytes, &operation);
    for (mode, flow, out, back) in [
        ("put", Flow::Out, LONG, SHORT),
        ("put", Flow::In, SHORT, LONG),
        ("get", Flow::Out, LONG, SHORT),
        ("put", Flow::Both, LONG, LONG),
    ] {
        let options = [("slab", "1M"), ("provider", "soft"), ("mode", mode)];
        let settings = [settings(options), settings(options)];
        let [mut one, mut other] = connected(local, &settings, flow, operation);
        let lengths = |streams: &Streams| {
            let outgoing = streams.opened.outgoing.memory();
            [outgoing.length(), streams.incoming().length()]
        };
        assert_eq!(lengths(&one), [out, back], "{mode}, {flow:?}");
        assert_eq!(lengths(&other), [back, out], "{mode}, {flow:?}");
        assert_eq!(one.info().buffer_bytes, LONG);
        assert_eq!(other.info().buffer_bytes, LONG);
        thread::scope(|scope| {
            scope.spawn(move || {
                assert!(receive_all(&mut other, operation) == *bytes);
                other.send_memory(bytes, operation).unwrap();
                other.finish(operation).unwrap();
                // In `mode=get` something must answer the READs of the other end.
                other.close();
            });
            one.send_memory(bytes, operation).unwrap();
            one.finish(operation).unwrap();
            assert!(receive_all(&mut one, operation) == *bytes);
            one.close();
        });
    }
}

/// One end has the default ring, the other a longer one.
#[test]
fn a_ring_that_an_option_sets_is_an_upper_bound_for_both_ends() {
    let cancel = Cancel::new();
    let operation = Operation {
        deadline: Some(Instant::now() + Duration::from_secs(60)),
        cancel: &cancel,
    };
    let local = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let long = || settings([("slab", "8M"), ("provider", "soft")]);
    let usual = || settings([("provider", "soft")]);
    let ring = |pair| {
        let rings = connected(local, &pair, Flow::Both, &operation).map(|end| {
            let exchange = &end.opened.exchange;
            let outgoing = exchange.sender.ring_length().get();
            assert_eq!(outgoing, exchange.receiver.ring_bytes());
            outgoing
        });
        assert_eq!(rings[0], rings[1]);
        rings[0]
    };
    assert_eq!(ring([long(), long()]), 32 << 20);
    assert_eq!(ring([long(), usual()]), 16 << 20);
    let short = ring([usual(), long()]);
    assert!((64 << 10..=16 << 20).contains(&short), "{short}");
}

#[test]
fn both_directions_survive_the_loss_of_queue_pairs() {
    let lost = |number| (number == 3).then_some(1);
    let local = IpAddr::V4(Ipv4Addr::LOCALHOST);
    survive(local, [[("qps", "3"), ("provider", "soft")]; 2], lost);
}

#[test]
#[ignore = "needs an RDMA device, and GRIDHAUL_RDMA_ADDRESS to name its address"]
fn lost_queue_pairs_of_devices_are_replaced() {
    let local = std::env::var("GRIDHAUL_RDMA_ADDRESS").unwrap();
    let local = local.parse().unwrap();
    let lost = |number| matches!(number, 1 | 3 | 4 | 8).then_some(0);
    let restored = survive(local, [[("qps", "1"), ("provider", "verbs")]; 2], lost);
    assert!(restored >= 8, "{restored} lives");
    survive(local, [[("qps", "3"), ("provider", "verbs")]; 2], lost);
}

/// WRITEs outside the granted memory.
fn trespass(streams: &mut Streams, to: Remote) {
    let work = Work::Write {
        region: 0,
        span: Span::new(0, 64),
        to,
        immediate: None,
    };
    // The engine ignores completions with this identifier.
    let posted = streams.opened.endpoint.post(0, Request { id: 0, work });
    assert_ne!(posted, Err(PostError::Full));
    streams.opened.endpoint.ring_doorbell();
}

#[test]
#[ignore = "needs an RDMA device, and GRIDHAUL_RDMA_ADDRESS to name its address"]
fn devices_keep_peers_out_of_memory_that_they_were_not_told_of() {
    let local = std::env::var("GRIDHAUL_RDMA_ADDRESS").unwrap();
    let cancel = Cancel::new();
    let operation = Operation {
        deadline: Some(Instant::now() + Duration::from_secs(60)),
        cancel: &cancel,
    };
    let options = [("qps", "1"), ("provider", "verbs")];
    let [mut one, mut other] = pair(local.parse().unwrap(), [options; 2], &operation);
    let ring = other.incoming().address();
    let trespasses = [(ring, 0x0bad_0bad), (0, 0), (ring + (1 << 30), 1)];
    thread::scope(|scope| {
        scope.spawn(|| {
            for (address, key) in trespasses {
                trespass(&mut one, Remote { address, key });
                one.send_memory(b"well-behaved", &operation).unwrap();
                one.flush(&operation).unwrap();
            }
            one.finish(&operation).unwrap();
        });
        let expected = b"well-behaved".repeat(trespasses.len());
        assert_eq!(receive_all(&mut other, &operation), expected);
    });
    assert!(restored(&other) > 0);

    // An endpoint whose user is idle does not run for ever.
    let [mut one, mut other] = pair(local.parse().unwrap(), [options; 2], &operation);
    thread::scope(|scope| {
        let victim = scope.spawn(move || other.receive(&mut [0; 10], &operation).unwrap_err());
        let error = loop {
            operation.check().unwrap();
            trespass(&mut one, Remote { address: 0, key: 0 });
            if let Err(error) = one.progress() {
                break error;
            }
        };
        drop(one);
        // Either end may notice the violation first.
        let errors = [error, victim.join().unwrap()].map(|error| error.to_string());
        let is_named = |error: &String| error.contains("nothing got through");
        assert!(errors.iter().any(is_named), "{errors:?}");
    });
}

#[test]
#[ignore = "needs an iWARP device, and GRIDHAUL_RDMA_ADDRESS to name its address"]
fn programs_and_adapters_of_iwarp_understand_each_other() {
    let local = std::env::var("GRIDHAUL_RDMA_ADDRESS").unwrap();
    let local = local.parse().unwrap();
    let soft = |queue_pairs| [("qps", queue_pairs), ("provider", "soft")];
    let verbs = |queue_pairs| [("qps", queue_pairs), ("provider", "verbs")];
    for queue_pairs in ["1", "3"] {
        for stacks in [
            [soft(queue_pairs), verbs(queue_pairs)],
            [verbs(queue_pairs), soft(queue_pairs)],
        ] {
            survive(local, stacks, |_| None);
        }
    }
    let lost = |number| (number == 3).then_some(1);
    survive(local, [verbs("3"), verbs("3")], lost);
}
