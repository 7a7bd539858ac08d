//! Authenticated data connections: which peers are accepted, and how the others are refused.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use gridhaul_protocol::block::{Descriptor, Header};
use gridhaul_protocol::command::TransferMode;
use gridhaul_protocol::stack::StackSpec;
use gridhaul_stack::options::OptionDoc;
use gridhaul_stack::{
    Body, Built, Cancel, Channel, ChannelError, ConnectError, Driver, Operation, Received,
    Registry, Side, SocketOptions, Stack, StackError, Transform,
};
use gridhaul_transfer::{ConnectRequest, ListenRequest, Outcome, Stripes, TransferError};

use crate::site::{Settings, Site, TIME_LIMIT, image, receive, send};

/// A driver of one session: each end sends its password, and refuses another one.
#[derive(Debug, Clone, Copy)]
struct Password(&'static [u8; 4]);

const RIGHT: Password = Password(b"pass");
const WRONG: Password = Password(b"pail");

impl Driver for Password {
    fn name(&self) -> &'static str {
        "password"
    }

    fn options(&self) -> &'static [OptionDoc] {
        &[]
    }

    fn build(&self, options: &[(String, String)]) -> Result<Built, StackError> {
        self.read_options(options)?;
        Ok(Built::Transform(Arc::new(*self)))
    }
}

impl Transform for Password {
    fn wrap(
        &self,
        mut channel: Box<dyn Channel>,
        _side: Side,
        operation: &Operation<'_>,
    ) -> Result<Box<dyn Channel>, ChannelError> {
        channel.send(self.0, Body::Memory(&[]), operation)?;
        let mut received = [0; 4];
        let mut done = 0;
        while done < received.len() {
            match channel.receive(&mut received[done..], operation)? {
                Received::Bytes(count) => done += count.get(),
                Received::EndOfStream => return Err(ChannelError::Aborted),
            }
        }
        let word = String::from_utf8_lossy(&received).into_owned();
        let driver = self.name();
        if word.as_bytes() == self.0 {
            Ok(channel)
        } else if word.starts_with("pa") {
            let reason = format!("the password is not {word}");
            Err(ChannelError::Refused { driver, reason })
        } else {
            let reason = format!("{word} is no password");
            Err(ChannelError::Protocol { driver, reason })
        }
    }
}

fn spec(stack: &str) -> StackSpec {
    StackSpec::parse(stack).expect("a stack")
}

fn stack(stack: &str, password: Password) -> Stack {
    let mut registry = Registry::new();
    crate::site::register(&mut registry);
    registry.register(password);
    registry
        .build(&spec(stack))
        .expect("drivers that are there")
}

fn listen(site: &Site) -> SocketAddr {
    let request = ListenRequest {
        stack: spec("tcp,password"),
        local: IpAddr::V4(Ipv4Addr::LOCALHOST),
        stripes: Stripes::One,
        sockets: SocketOptions::default(),
        session_drivers: vec![Arc::new(RIGHT)],
    };
    site.session.listen(&request).expect("a free port")[0]
}

fn with_operation<T>(run: impl FnOnce(&Operation<'_>) -> T) -> T {
    run(&Operation {
        deadline: Some(Instant::now() + TIME_LIMIT),
        cancel: &Cancel::new(),
    })
}

/// A connection that sends no data.
fn silent(address: SocketAddr) -> Box<dyn Channel> {
    with_operation(|operation| {
        stack("tcp", RIGHT)
            .connect(address, &SocketOptions::default(), operation)
            .expect("a listener")
    })
}

/// Sends `bytes` over a new connection; returns when the peer has closed it.
fn call(address: SocketAddr, bytes: &[u8]) {
    let mut channel = silent(address);
    with_operation(|operation| {
        channel
            .send(bytes, Body::Memory(&[]), operation)
            .expect("a listener");
        while let Ok(Received::Bytes(_)) = channel.receive(&mut [0; 16], operation) {}
    });
}

fn connect(address: SocketAddr, password: Password) -> Result<Box<dyn Channel>, ConnectError> {
    with_operation(|operation| {
        stack("tcp,password", password).connect(address, &SocketOptions::default(), operation)
    })
}

/// Sends `data` as the expected peer.
fn deliver(address: SocketAddr, mode: TransferMode) -> Box<dyn Channel> {
    let mut channel = connect(address, RIGHT).expect("the password is right");
    with_operation(|operation| {
        let end = Header {
            descriptor: Descriptor::EOF | Descriptor::EOD,
            count: 0,
            offset: 1,
        };
        let stream = match mode {
            TransferMode::Stream => b"data".to_vec(),
            TransferMode::Extended => {
                [&Header::data(0, 4).encode()[..], b"data", &end.encode()].concat()
            }
        };
        channel
            .send(&stream, Body::Memory(&[]), operation)
            .expect("the receiver reads");
        channel.finish(operation).expect("an open channel");
    });
    channel
}

fn impatient() -> Settings {
    Settings {
        data_timeout: Duration::from_millis(200),
        ..Settings::default()
    }
}

const MODES: [TransferMode; 2] = [TransferMode::Stream, TransferMode::Extended];

#[test]
fn other_connections_do_not_keep_the_expected_peer_out() {
    for mode in MODES {
        let site = Site::new(Settings::default());
        let address = listen(&site);
        let receiver = site.start(image(receive("b"), mode, 1));
        let _silent = [(); 10].map(|()| silent(address));
        call(address, b"GET / HTTP/1.0\r\n\r\n");
        call(address, b"pail");
        let _channel = deliver(address, mode);
        let outcome = receiver.finish();
        outcome.result.expect("the expected peer sent it");
        assert_eq!(site.read("b"), b"data");
        assert_eq!((outcome.refused, outcome.channels), (2, 1));
        let refusal = outcome.last_refusal.expect("a refused peer");
        // A connection is closed before its error is recorded, so either may be the last.
        let reasons = [
            "password: GET  is no password",
            "password: the password is not pail",
        ];
        assert!(reasons.contains(&refusal.reason.as_str()), "{refusal:?}");
        assert_eq!(refusal.peer.ip(), address.ip());
    }
}

#[test]
fn a_file_is_sent_to_the_authenticated_peer() {
    let site = Site::new(Settings::default());
    site.write("a", b"content");
    let address = listen(&site);
    let sender = site.start(image(send("a"), TransferMode::Stream, 1));
    let _silent = silent(address);
    call(address, b"what is this?");
    let mut channel = connect(address, RIGHT).expect("the password is right");
    let mut content = Vec::new();
    let mut buffer = [0; 100];
    while let Received::Bytes(count) =
        with_operation(|operation| channel.receive(&mut buffer, operation)).expect("a stream")
    {
        content.extend_from_slice(&buffer[..count.get()]);
    }
    sender.finish().result.expect("it was sent");
    assert_eq!(content, b"content");
}

fn refused(outcome: Outcome) -> String {
    match outcome.result {
        Err(TransferError::Channel(error @ ChannelError::Refused { .. })) => error.to_string(),
        other => panic!("not refused: {other:?}"),
    }
}

#[test]
fn a_peer_with_another_identity_ends_the_transfer_with_the_reason() {
    thread::scope(|scope| {
        for mode in MODES {
            scope.spawn(move || {
                let site = Site::new(Settings::default());
                let address = listen(&site);
                let receiver = site.start(image(receive("b"), mode, 1));
                let start = Instant::now();
                connect(address, WRONG).expect_err("it is refused");
                call(address, b"and later another one");
                let reason = refused(receiver.finish());
                assert_eq!(reason, "password: the password is not pail");
                assert!(start.elapsed() < TIME_LIMIT / 2);
            });
        }
    });
}

#[test]
fn without_an_accepted_peer_the_error_is_that_of_the_last_one() {
    for mode in MODES {
        let site = Site::new(impatient());
        let address = listen(&site);
        let receiver = site.start(image(receive("b"), mode, 1));
        call(address, b"GET ");
        match receiver.finish().result {
            Err(TransferError::Channel(ChannelError::Protocol { reason, .. })) => {
                assert_eq!(reason, "GET  is no password");
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_handshake_has_a_time_limit() {
    for mode in MODES {
        let site = Site::new(impatient());
        let address = listen(&site);
        let receiver = site.start(image(receive("b"), mode, 1));
        let _silent = silent(address);
        let outcome = receiver.finish();
        assert!(
            matches!(
                outcome.result,
                Err(TransferError::Channel(ChannelError::DeadlineExceeded))
            ),
            "{outcome:?}"
        );
    }
}

#[test]
fn the_number_of_failed_handshakes_is_limited() {
    for mode in MODES {
        let site = Site::new(Settings::default());
        let address = listen(&site);
        let receiver = site.start(image(receive("b"), mode, 1));
        for _ in 0..=256 {
            call(address, b"xxxx");
        }
        let outcome = receiver.finish();
        assert_eq!(outcome.refused, 257);
        assert!(matches!(
            outcome.result,
            Err(TransferError::Channel(ChannelError::Protocol { .. }))
        ));
    }
}

#[test]
fn failed_handshakes_do_not_end_a_running_transfer() {
    let site = Site::new(Settings::default());
    let address = listen(&site);
    let receiver = site.start(image(receive("b"), TransferMode::Extended, 1));
    let mut channel = connect(address, RIGHT).expect("the password is right");
    let mut send_bytes = |bytes: &[u8]| {
        with_operation(|operation| channel.send(bytes, Body::Memory(&[]), operation))
            .expect("the receiver reads");
    };
    send_bytes(&Header::data(0, 4).encode());
    receiver.wait_started();
    for _ in 0..300 {
        call(address, b"pail");
    }
    send_bytes(b"data");
    send_bytes(
        &Header {
            descriptor: Descriptor::EOF | Descriptor::EOD,
            count: 0,
            offset: 1,
        }
        .encode(),
    );
    let outcome = receiver.finish();
    outcome.result.expect("complete");
    assert_eq!(outcome.refused, 300);
    assert_eq!(site.read("b"), b"data");
}

#[test]
fn connecting_to_a_peer_with_another_identity_fails() {
    let site = Site::new(Settings::default());
    site.write("a", b"secret");
    let wrong = stack("tcp,password", WRONG);
    let localhost = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let mut listener = wrong
        .listen(localhost, &SocketOptions::default())
        .expect("a free port");
    let request = ConnectRequest {
        stack: spec("tcp,password"),
        peers: vec![listener.address()],
        sockets: SocketOptions::default(),
        session_drivers: vec![Arc::new(RIGHT)],
    };
    for mode in MODES {
        site.session.connect(&request).expect("a stack");
        let sender = site.start(image(send("a"), mode, 1));
        with_operation(|operation| {
            let incoming = listener.accept(operation).expect("the sender connects");
            incoming
                .establish(operation)
                .expect_err("the sender has another password");
        });
        let outcome = sender.finish();
        assert!(
            matches!(
                &outcome.result,
                Err(TransferError::Connect(ConnectError::Channel(ChannelError::Refused { reason, .. })))
                    if reason == "the password is not pail"
            ),
            "{outcome:?}"
        );
    }
}
