//! Data channels over the driver `rdma`, as a client sees them that has the driver as well.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use gridhaul_protocol::stack::StackSpec;
use gridhaul_rdma::Rdma;
use gridhaul_stack::{Body, Cancel, Channel, Operation, Received, Registry, SocketOptions, Stack};

use crate::client::Client;
use crate::metrics::scrape;
use crate::served::Served;

const STACK: &str = "rdma:slab=64K;slabs=3;message=16K";

fn served() -> Served {
    Served::with(|settings| {
        settings.allowed_drivers = Some(vec!["tcp".to_owned(), "rdma".to_owned()]);
        settings.metrics_listen = Some("127.0.0.1:0".parse().expect("an address"));
    })
}

/// The client's end of data channels.
struct Peer {
    stack: Stack,
    cancel: Cancel,
    deadline: Instant,
}

impl Peer {
    fn new() -> Self {
        let mut registry = Registry::new();
        registry.register(Rdma);
        let stack = StackSpec::parse(STACK).expect("a stack");
        Self {
            stack: registry.build(&stack).expect("built"),
            cancel: Cancel::new(),
            deadline: Instant::now() + Duration::from_secs(20),
        }
    }

    fn operation(&self) -> Operation<'_> {
        Operation {
            deadline: Some(self.deadline),
            cancel: &self.cancel,
        }
    }

    fn connect(&self, address: SocketAddr) -> Box<dyn Channel> {
        self.stack
            .connect(address, &SocketOptions::default(), &self.operation())
            .expect("connected")
    }

    fn receive(&self, mut channel: Box<dyn Channel>) -> Vec<u8> {
        let mut content = Vec::new();
        let mut buffer = [0; 10_000];
        while let Received::Bytes(count) = channel
            .receive(&mut buffer, &self.operation())
            .expect("received")
        {
            content.extend(&buffer[..count.get()]);
        }
        content
    }

    fn send(&self, mut channel: Box<dyn Channel>, content: &[u8]) {
        let operation = self.operation();
        channel
            .send(&[], Body::Memory(content), &operation)
            .and_then(|()| channel.finish(&operation))
            .expect("sent");
    }
}

/// More than the rings hold, of no length that divides anything.
fn content() -> Vec<u8> {
    (0..1_000_003_u32).flat_map(u32::to_le_bytes).collect()
}

fn passive(client: &mut Client) -> SocketAddr {
    client.send("PASV");
    let reply = client.reply();
    client.data_address(&reply)
}

#[test]
fn what_a_driver_tells_is_told() {
    let served = served();
    served.write("file", content());
    let mut client = served.anonymous();
    let told = client.expect("SITE GETNETSTACK", 250);
    assert!(told.contains("\r\n stack="), "{told}");
    assert!(!told.contains("provider="), "{told}");

    client.expect(&format!("SITE SETNETSTACK {STACK}"), 250);
    let peer = Peer::new();
    let address = passive(&mut client);
    client.send("RETR file");
    let channel = peer.connect(address);
    client.expect_reply(150);
    assert_eq!(peer.receive(channel), content());
    client.expect_reply(226);
    let address = passive(&mut client);
    client.send("STOR copy");
    let channel = peer.connect(address);
    client.expect_reply(150);
    peer.send(channel, &content());
    client.expect_reply(226);
    assert_eq!(served.read("copy"), content());

    let told = client.expect("SITE GETNETSTACK", 250);
    for line in [
        &format!("stack={STACK}"),
        "channels=1",
        "way=rdma",
        "provider=soft",
        "queue-pairs=1",
        "ring-bytes=196608",
    ] {
        assert!(told.contains(&format!("\r\n {line}\r\n")), "{line}: {told}");
    }
    let samples = scrape(&served);
    let choice = "gridhaul_transfer_choices_total{choice=\"provider\",value=\"soft\"}";
    assert_eq!(samples.get(choice), Some(&2.0));
}
