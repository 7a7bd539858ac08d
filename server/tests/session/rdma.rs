//! Data channels over the driver `rdma`, as a client sees them that has the driver as well.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use gridhaul_protocol::stack::StackSpec;
use gridhaul_rdma::Rdma;
use gridhaul_server::config::AtomicRoot;
use gridhaul_server::passwords::{Grant, set_password};
use gridhaul_stack::{
    Body, Cancel, Channel, Operation, Received, Registry, SocketOptions, Stack, StackListener,
};

use crate::client::Client;
use crate::metrics::scrape;
use crate::served::Served;

pub(crate) const STACK: &str = "rdma:slab=64K;slabs=3;message=16K";

pub(crate) fn served() -> Served {
    Served::with(|settings| {
        settings.anonymous_drivers = Some(vec!["tcp".to_owned(), "rdma".to_owned()]);
        settings.metrics_listen = Some("127.0.0.1:0".parse().expect("an address"));
    })
}

/// The client's end of data channels.
pub(crate) struct Peer {
    stack: Stack,
    cancel: Cancel,
    deadline: Instant,
}

impl Peer {
    pub(crate) fn new() -> Self {
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

    pub(crate) fn connect(&self, address: SocketAddr) -> Box<dyn Channel> {
        self.stack
            .connect(address, &SocketOptions::default(), &self.operation())
            .expect("connected")
    }

    fn listen(&self) -> StackListener {
        self.stack
            .listen([127, 0, 0, 1].into(), &SocketOptions::default())
            .expect("listening")
    }

    fn accept(&self, listener: &mut StackListener) -> Box<dyn Channel> {
        let operation = self.operation();
        let incoming = listener.accept(&operation).expect("accepted");
        incoming.establish(&operation).expect("established")
    }

    pub(crate) fn receive(&self, mut channel: Box<dyn Channel>) -> Vec<u8> {
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

pub(crate) fn passive(client: &mut Client) -> SocketAddr {
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
        "message-bytes=16384",
        "ring-bytes=196608",
    ] {
        assert!(told.contains(&format!("\r\n {line}\r\n")), "{line}: {told}");
    }
    let samples = scrape(&served);
    let choice = "gridhaul_transfer_choices_total{choice=\"provider\",value=\"soft\"}";
    assert_eq!(samples.get(choice), Some(&2.0));
}

#[test]
fn limits_of_groups_and_temporary_names_hold_over_rdma() {
    const RATE: usize = 8_000_000;

    let served = Served::with(|settings| {
        settings.anonymous_drivers = Some(vec!["rdma".to_owned()]);
        settings.atomic_uploads = Some(vec![AtomicRoot::Any]);
        let limit = toml::from_str(&format!("name = 'all'\nbandwidth = {RATE}"));
        settings.limit = Some(vec![limit.expect("a limit")]);
    });
    served.write("file", content());
    let mut client = served.anonymous();
    client.expect(&format!("SITE SETNETSTACK {STACK}"), 250);
    let peer = Peer::new();
    // Without the 50 ms of the burst.
    let least = content().len() as f64 / RATE as f64 - 0.06;
    let begun = Instant::now();
    let address = passive(&mut client);
    client.send("RETR file");
    let channel = peer.connect(address);
    client.expect_reply(150);
    assert_eq!(peer.receive(channel), content());
    client.expect_reply(226);
    let got = begun.elapsed().as_secs_f64();
    assert!(got > least, "{got} s");
    let begun = Instant::now();
    let address = passive(&mut client);
    client.send("STOR copy");
    let channel = peer.connect(address);
    client.expect_reply(150);
    assert!(!served.path("copy").exists());
    peer.send(channel, &content());
    client.expect_reply(226);
    assert_eq!(served.read("copy"), content());
    let put = begun.elapsed().as_secs_f64();
    assert!(put > least, "{put} s");
}

#[test]
fn clients_of_rftp_get_and_put_files() {
    let served = served();
    served.write("file", content());
    let mut client = served.anonymous();
    assert!(client.expect("FEAT", 211).contains("\r\n RADR\r\n"));
    for wrong in ["RRTR file", "RSTR copy"] {
        assert!(client.expect(wrong, 503).contains("RADR or RPSV"));
    }
    passive(&mut client);
    assert!(client.expect("RRTR file", 503).contains("RADR or RPSV"));

    let peer = Peer::new();
    let mut listener = peer.listen();
    let port = listener.address().port();
    // Buffers of 128 KiB, in network order.
    let address = format!("RADR 127,0,0,1,{},{} 512", port >> 8, port & 0xff);
    client.expect(&address, 200);
    client.send("RRTR file");
    let channel = peer.accept(&mut listener);
    client.expect_reply(150);
    assert_eq!(peer.receive(channel), content());
    client.expect_reply(226);

    client.send("RPSV 512");
    let reply = client.reply();
    assert_eq!(reply.code(), 227);
    let address = client.data_address(&reply);
    client.send("RSTR copy");
    let channel = peer.connect(address);
    client.expect_reply(150);
    peer.send(channel, &content());
    client.expect_reply(226);
    assert_eq!(served.read("copy"), content());
    client.expect("RSTR copy", 425);

    // It was for these ports only.
    let stack = client.expect("SITE GETNETSTACK", 250);
    assert!(!stack.contains("stack=rdma"), "{stack}");
}

#[test]
fn the_stack_that_a_client_has_set_is_kept() {
    let served = served();
    served.write("file", content());
    let mut client = served.anonymous();
    client.expect(&format!("SITE SETNETSTACK {STACK}"), 250);
    client.expect("OPTS PASV AllowDelayed=1", 200);
    client.expect("RPSV", 200);
    client.send("RRTR file");
    let reply = client.reply();
    assert_eq!(reply.code(), 127);
    let peer = Peer::new();
    let channel = peer.connect(client.data_address(&reply));
    client.expect_reply(150);
    assert_eq!(peer.receive(channel), content());
    client.expect_reply(226);
    let told = client.expect("SITE GETNETSTACK", 250);
    assert!(told.contains("\r\n ring-bytes=196608\r\n"), "{told}");
}

#[test]
fn what_the_administrator_does_not_allow_is_refused_by_name() {
    let served = Served::with(|settings| {
        settings.allowed_drivers = Some(vec!["tcp".to_owned()]);
    });
    let mut client = served.anonymous();
    assert!(!client.expect("FEAT", 211).contains("RADR"));
    for command in ["SITE SETNETSTACK rdma", "RADR 127,0,0,1,200,0", "RPSV"] {
        let refusal = client.expect(command, 500);
        assert!(
            refusal.contains("rdma driver not whitelisted"),
            "{command}: {refusal}"
        );
    }
}

#[test]
fn users_who_log_in_have_rdma_and_anonymous_ones_where_it_is_named() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("users");
    set_password(&file, "ann", b"one", &Grant::default()).expect("made");
    let served = Served::with(|settings| settings.passwords = Some(file));
    let mut ann = served.greeted();
    assert!(!ann.expect("FEAT", 211).contains("RADR"));
    ann.expect("USER ann", 331);
    ann.expect("PASS one", 230);
    assert!(ann.expect("FEAT", 211).contains("\r\n RADR\r\n"));
    ann.expect(
        "SITE SETNETSTACK rdma:slab=64M;slabs=16;message=4M;qps=8;rate=auto",
        250,
    );
    ann.expect("RPSV", 227);
    for (option, words) in [
        ("device=mlx5_0", "which devices of the server are used"),
        ("gid=3", "which devices of the server are used"),
        ("tc=106", "classes of the network that others pay for"),
        ("sl=3", "classes of the network that others pay for"),
        ("bind=127.0.0.1", "where the sockets of the server are"),
        ("slab=65M", "clients may set slab<=64M"),
        ("slabs=17", "clients may set slabs<=16"),
        ("qps=9", "clients may set qps<=8"),
    ] {
        let text = ann.expect(&format!("SITE SETNETSTACK rdma:{option}"), 500);
        assert!(text.contains(words), "{text}");
    }

    let mut client = served.anonymous();
    assert!(!client.expect("FEAT", 211).contains("RADR"));
    for command in ["SITE SETNETSTACK rdma", "RADR 127,0,0,1,200,0", "RPSV"] {
        let text = client.expect(command, 500);
        assert!(
            text.contains(
                "rdma driver not whitelisted for anonymous users: log in, or ask the administrator"
            ),
            "{text}"
        );
    }
}

#[test]
fn the_administrators_devices_hold_for_the_stacks_of_clients() {
    let served = Served::with(|settings| {
        settings.stack = Some("rdma:slab=1M;tc=8;sl=1".to_owned());
        settings.anonymous_drivers = Some(vec!["rdma".to_owned()]);
    });
    let mut client = served.anonymous();
    client.expect("SITE SETNETSTACK rdma:slab=64K", 250);
    let text = client.expect("SITE GETNETSTACK", 250);
    assert!(text.contains("stack=rdma:slab=64K;tc=8;sl=1\r\n"), "{text}");
}

#[test]
fn options_that_are_not_for_clients_are_refused_with_those_that_are() {
    let served = Served::with(|settings| {
        settings.anonymous_drivers = Some(vec!["tcp".to_owned(), "rdma".to_owned()]);
        let rules = "rdma:slab<=1M;rate;qps<=8".parse().expect("rules");
        settings.client_options = Some(vec![rules]);
    });
    let mut client = served.anonymous();
    for (command, words) in [
        (
            "SITE SETNETSTACK rdma:slab=1M;device=mlx5_0",
            "no client set device=mlx5_0 for the driver rdma; clients may set slab<=1M;rate;qps<=8",
        ),
        (
            "SITE SETNETSTACK rdma:qps=9",
            "no client set qps=9 for the driver rdma; clients may set qps<=8",
        ),
        ("SITE SETNETSTACK rdma:size=9", "has no option"),
        // 2 MiB, with the bytes in the other order.
        (
            "RPSV 8192",
            "no client set slab=2097152 for the driver rdma; clients may set slab<=1M",
        ),
    ] {
        let refusal = client.expect(command, 500);
        assert!(refusal.contains(words), "{command}: {refusal}");
    }
    // Of a driver without rules what is documented for clients, and of one with rules what they say.
    client.expect("SITE SETNETSTACK tcp:bind=127.0.0.1", 500);
    client.expect("SITE SETNETSTACK tcp:buffer=1M", 250);
    client.expect("SITE SETNETSTACK rdma:slab=1024K;qps=8;rate=100g", 250);
    client.expect("RPSV 4096", 227);
}

#[test]
fn buffers_that_cannot_be_are_refused() {
    let served = served();
    let mut client = served.anonymous();
    // One byte, and more than the ring may have.
    for size in ["16777216", "255"] {
        let refusal = client.expect(&format!("RPSV {size}"), 500);
        assert!(refusal.contains("slab"), "{refusal}");
    }
}
