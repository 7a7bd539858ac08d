//! Peers that violate the protocol, stop, or come from other hosts. Received data stays in the file, and the error
//! has the reason.

use std::net::SocketAddr;
use std::time::Duration;

use crate::site::{Settings, Site, TIME_LIMIT, image, receive, send};
use gridhaul_protocol::block::{Descriptor, Header};
use gridhaul_protocol::command::TransferMode;
use gridhaul_protocol::ranges::RangeSet;
use gridhaul_stack::{Body, Cancel, Channel, Operation, Registry, SocketOptions};
use gridhaul_transfer::{
    Admission, CancelReason, Handling, Outcome, PeerError, Placement, SequenceError, Task,
    TransferError,
};

/// A peer that sends arbitrary bytes.
pub(crate) struct Peer {
    channel: Box<dyn Channel>,
    cancel: Cancel,
}

impl Peer {
    pub(crate) fn connect(address: SocketAddr) -> Self {
        let mut registry = Registry::new();
        crate::site::register(&mut registry);
        let cancel = Cancel::new();
        let operation = Operation {
            deadline: None,
            cancel: &cancel,
        };
        let channel = registry
            .build(&crate::site::stack())
            .expect("the driver is there")
            .connect(address, &SocketOptions::default(), &operation)
            .expect("a listener");
        Self { channel, cancel }
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) -> &mut Self {
        let operation = Operation {
            deadline: None,
            cancel: &self.cancel,
        };
        self.channel
            .send(bytes, Body::Memory(&[]), &operation)
            .expect("the receiver reads");
        self
    }

    pub(crate) fn header(&mut self, descriptor: Descriptor, count: u64, offset: u64) -> &mut Self {
        self.send(
            &Header {
                descriptor,
                count,
                offset,
            }
            .encode(),
        )
    }

    pub(crate) fn block(&mut self, offset: u64, bytes: &[u8]) -> &mut Self {
        self.header(Descriptor::default(), bytes.len() as u64, offset)
            .send(bytes)
    }

    pub(crate) fn finish(&mut self) {
        let operation = Operation {
            deadline: None,
            cancel: &self.cancel,
        };
        self.channel.finish(&operation).expect("an open channel");
    }
}

/// Receives `b` in MODE E from one peer, driven by `talk`.
fn receive_from(settings: Settings, talk: impl FnOnce(&mut Peer)) -> (Site, Outcome, RangeSet) {
    receive_as(Handling::default(), settings, talk)
}

pub(crate) fn receive_as(
    handling: Handling,
    settings: Settings,
    talk: impl FnOnce(&mut Peer),
) -> (Site, Outcome, RangeSet) {
    let site = Site::new(settings);
    let address = site.listen(1)[0];
    let mut plan = image(receive("b"), TransferMode::Extended, 1);
    plan.handling = handling;
    let receiver = site.start(plan);
    let mut peer = Peer::connect(address);
    talk(&mut peer);
    let outcome = receiver.finish();
    let arrived = receiver.transfer.take_received();
    (site, outcome, arrived)
}

pub(crate) fn peer_error(outcome: Outcome) -> PeerError {
    match outcome.result {
        Err(TransferError::Peer(error)) => error,
        other => panic!("no error of the peer: {other:?}"),
    }
}

fn impatient() -> Settings {
    Settings {
        data_timeout: Duration::from_millis(200),
        ..Settings::default()
    }
}

#[test]
fn overlapping_blocks_are_refused_and_received_data_stays() {
    let (site, outcome, arrived) = receive_from(Settings::default(), |peer| {
        peer.block(0, b"0123456789").block(5, b"xxxxxxxxxx");
    });
    assert!(matches!(peer_error(outcome), PeerError::Overlap(_)));
    assert_eq!(arrived.to_string(), "0-10");
    assert_eq!(site.read("b"), b"0123456789");
}

#[test]
fn zeros_in_restart_markers_are_in_the_file_after_a_failure() {
    let sparse = Handling {
        sparse: true,
        ..Handling::default()
    };
    let (site, outcome, arrived) = receive_as(sparse, Settings::default(), |peer| {
        peer.block(0, &[0; 10_000]).block(5, b"xxxxxxxxxx");
    });
    assert!(matches!(peer_error(outcome), PeerError::Overlap(_)));
    assert_eq!(arrived.to_string(), "0-10000");
    assert!(site.read("b") == [0; 10_000]);
}

#[test]
fn bytes_after_a_gap_are_written_at_the_end() {
    let ordered = Handling {
        ordered: true,
        ..Handling::default()
    };
    let (site, outcome, arrived) = receive_as(ordered, Settings::default(), |peer| {
        peer.block(20, b"behind").block(0, b"before");
        peer.header(Descriptor::EOF | Descriptor::EOD, 0, 1);
    });
    outcome.result.expect("the size is unknown");
    assert_eq!(arrived.to_string(), "0-6,20-26");
    assert_eq!(site.read("b"), b"before\0\0\0\0\0\0\0\0\0\0\0\0\0\0behind");
}

#[test]
fn a_block_past_the_largest_file_size_is_refused() {
    for (count, offset) in [(1 << 63, 0), (1, i64::MAX as u64), (u64::MAX, u64::MAX)] {
        let (_, outcome, _) = receive_from(Settings::default(), |peer| {
            peer.header(Descriptor::default(), count, offset);
        });
        assert!(matches!(peer_error(outcome), PeerError::Header(_)));
    }
}

#[test]
fn contradicting_ends_of_data_are_refused() {
    let (_, outcome, _) = receive_from(Settings::default(), |peer| {
        peer.header(Descriptor::EOF, 0, 2)
            .header(Descriptor::EOF, 0, 2);
    });
    assert!(peer_error(outcome).to_string().contains("twice"));

    let (_, outcome, _) = receive_from(impatient(), |peer| {
        peer.block(0, b"all")
            .header(Descriptor::EOF | Descriptor::EOD, 0, 3);
    });
    let error = peer_error(outcome);
    assert!(
        matches!(
            error,
            PeerError::MissingEods {
                announced: 3,
                seen: 1,
                ..
            }
        ),
        "{error}"
    );

    let (_, outcome, _) = receive_from(impatient(), |peer| {
        peer.block(0, b"all").header(Descriptor::EOD, 0, 0);
    });
    assert!(matches!(
        peer_error(outcome),
        PeerError::MissingEof { seen: 1 }
    ));
}

#[test]
fn more_ends_than_announced_are_an_error() {
    let site = Site::new(Settings::default());
    let address = site.listen(1)[0];
    let receiver = site.start(image(receive("b"), TransferMode::Extended, 1));
    let (mut first, mut second) = (Peer::connect(address), Peer::connect(address));
    // The second channel sends data before the first one announces itself as the only one.
    second.block(0, b"second");
    while receiver.transfer.take_received().is_empty() {
        std::thread::yield_now();
    }
    first.header(Descriptor::EOF | Descriptor::EOD, 0, 1);
    second.header(Descriptor::EOD, 0, 0);
    assert!(matches!(
        peer_error(receiver.finish()),
        PeerError::EndOfData(_)
    ));
}

#[test]
fn a_channel_that_ends_too_early_is_an_error() {
    let mut whole_block = Header::data(0, 3).encode().to_vec();
    whole_block.extend_from_slice(b"abc");
    for bytes in [&whole_block[..], &whole_block[..19], &whole_block[..5]] {
        let (_, outcome, _) = receive_from(Settings::default(), |peer| peer.send(bytes).finish());
        assert!(matches!(peer_error(outcome), PeerError::EndedBeforeEod));
    }
}

#[test]
fn an_incomplete_block_stays_and_is_reported() {
    let (site, outcome, arrived) = receive_from(Settings::default(), |peer| {
        peer.header(Descriptor::default(), 1_000, 50)
            .send(b"abc")
            .finish();
    });
    assert!(matches!(peer_error(outcome), PeerError::EndedBeforeEod));
    assert_eq!(arrived.to_string(), "50-53");
    assert_eq!(&site.read("b")[50..], b"abc");
}

#[test]
fn unusual_but_legal_blocks_are_accepted() {
    let (site, outcome, arrived) = receive_from(Settings::default(), |peer| {
        peer.header(Descriptor::EOF, 0, 1)
            .block(6, b"world")
            .block(3, b"")
            .header(Descriptor::RESTART, 4, 0)
            .send(b"mark")
            .header(Descriptor::EOD | Descriptor::CLOSE, 6, 0)
            .send(b"hello ");
    });
    outcome.result.expect("complete");
    assert_eq!(arrived.to_string(), "0-11");
    assert_eq!(site.read("b"), b"hello world");
}

#[test]
fn a_connection_without_a_block_does_not_count() {
    let site = Site::new(Settings::default());
    let address = site.listen(1)[0];
    let receiver = site.start(image(receive("b"), TransferMode::Extended, 1));
    let mut scan = Peer::connect(address);
    scan.finish();
    Peer::connect(address)
        .block(0, b"data")
        .header(Descriptor::EOF | Descriptor::EOD, 0, 1);
    receiver.finish().result.expect("complete");
    assert_eq!(site.read("b"), b"data");
}

#[test]
fn connections_from_other_hosts_are_closed_and_counted() {
    let settings = Settings {
        admission: Admission::Hosts(Vec::new()),
        ..impatient()
    };
    let (_, outcome, _) = receive_from(settings, |_| {});
    assert_eq!(outcome.refused, 1);
    assert!(matches!(
        outcome.result,
        Err(TransferError::NoConnection(_))
    ));
}

#[test]
fn without_a_connection_the_transfer_fails() {
    let site = Site::new(impatient());
    for mode in [TransferMode::Stream, TransferMode::Extended] {
        site.listen(1);
        let outcome = site.start(image(receive("b"), mode, 1)).finish();
        assert!(
            matches!(outcome.result, Err(TransferError::NoConnection(_))),
            "{outcome:?}"
        );
    }
}

#[test]
fn fewer_bytes_than_announced_are_an_error() {
    let site = Site::new(Settings::default());
    let address = site.listen(1)[0];
    let task = Task::ReceiveFile {
        path: "b".into(),
        placement: Placement::Replace,
        restart: RangeSet::new(),
        promised: Some(100),
    };
    let receiver = site.start(image(task, TransferMode::Stream, 1));
    Peer::connect(address).send(b"only this").finish();
    let error = peer_error(receiver.finish());
    assert!(error.to_string().contains("missing: 9-100"), "{error}");
    assert_eq!(site.read("b"), b"only this");
}

#[test]
fn a_blocked_transfer_ends_when_it_is_cancelled() {
    for mode in [TransferMode::Stream, TransferMode::Extended] {
        let site = Site::new(Settings::default());
        let address = site.listen(1)[0];
        let receiver = site.start(image(receive("b"), mode, 1));
        let _silent = Peer::connect(address);
        receiver.wait_started();
        receiver.transfer.cancel(CancelReason::Abort);
        let outcome = receiver.finish();
        let aborted = TransferError::Cancelled(CancelReason::Abort).to_string();
        assert_eq!(outcome.result.expect_err("cancelled").to_string(), aborted);
    }
}

#[test]
fn a_transfer_that_does_not_fit_the_session_leaves_the_file_unchanged() {
    let site = Site::new(Settings::default());
    site.write("b", b"precious");
    let refused = |task, mode| match site.start(image(task, mode, 1)).finish().result {
        Err(TransferError::Sequence(error)) => error,
        other => panic!("not refused: {other:?}"),
    };
    let extended = TransferMode::Extended;
    assert_eq!(refused(receive("b"), extended), SequenceError::NoDataPort);
    site.connect(vec![SocketAddr::from(([127, 0, 0, 1], 9))]);
    assert_eq!(
        refused(receive("b"), extended),
        SequenceError::ReceiverMustListen
    );
    site.listen(1);
    assert_eq!(
        refused(send("b"), extended),
        SequenceError::SenderMustConnect
    );
    site.listen(1);
    let restart = RangeSet::from(3..5);
    let resumed = crate::site::receive_rest("b", restart);
    assert_eq!(
        refused(resumed, TransferMode::Stream),
        SequenceError::StreamRestart
    );
    assert_eq!(site.read("b"), b"precious");
}

#[test]
fn a_port_stays_open_if_the_file_cannot_be_opened() {
    let site = Site::new(Settings::default());
    let address = site.listen(1)[0];
    let outcome = site
        .start(image(receive("no/b"), TransferMode::Stream, 1))
        .finish();
    assert!(matches!(outcome.result, Err(TransferError::Open { .. })));
    // The sender of a third-party copy connects late, and is not refused.
    let _late = Peer::connect(address);
    let outcome = site
        .start(image(receive("b"), TransferMode::Stream, 1))
        .finish();
    assert!(matches!(
        outcome.result,
        Err(TransferError::Sequence(SequenceError::NoDataPort))
    ));
}

#[test]
fn a_second_transfer_in_a_session_is_refused() {
    let site = Site::new(Settings {
        data_timeout: TIME_LIMIT,
        ..Settings::default()
    });
    site.listen(1);
    let first = site.start(image(receive("b"), TransferMode::Extended, 1));
    let second = site
        .start(image(receive("c"), TransferMode::Extended, 1))
        .finish();
    assert!(matches!(
        second.result,
        Err(TransferError::Sequence(SequenceError::Busy))
    ));
    first.transfer.cancel(CancelReason::Shutdown);
    assert!(first.finish().result.is_err());
}
