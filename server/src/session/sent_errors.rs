//! Errors of a data node on another machine lead to the same reply, cause and text as those of the node in this process.

use std::io;
use std::time::Duration;

use gridhaul_protocol::block::{BlockError, EodError};
use gridhaul_protocol::ranges::{Overlap, RangeSet};
use gridhaul_stack::{ChannelError, ConnectError, ListenError, StackError};
use gridhaul_storage::{Rule, StorageError};
use gridhaul_transfer::{
    AttachError, CancelReason, ListenFailure, PeerError, SentAttachError, SentListenFailure,
    SentStorageError, SentTransferError, SequenceError, TransferError,
};
use rustix::io::Errno;

use super::failure::Failure;
use super::replies;

fn channel_errors() -> Vec<ChannelError> {
    let reason = "The peer authenticated as /CN=bob. Expected /CN=alice".to_owned();
    let driver = "gsi";
    vec![
        ChannelError::Aborted,
        ChannelError::PeerClosed,
        ChannelError::Cancelled,
        ChannelError::DeadlineExceeded,
        ChannelError::Network(Errno::NETUNREACH.into()),
        ChannelError::Network(io::Error::other("an error without a number")),
        ChannelError::File(Errno::NOSPC.into()),
        ChannelError::File(Errno::IO.into()),
        ChannelError::File(Errno::ACCESS.into()),
        ChannelError::File(io::Error::other("an error without a number")),
        ChannelError::FileTooShort { end: 7 },
        ChannelError::Protocol {
            driver,
            reason: reason.clone(),
        },
        ChannelError::Refused { driver, reason },
        ChannelError::Remote("of a third machine".to_owned()),
    ]
}

fn connect_errors() -> Vec<ConnectError> {
    let peer = "192.0.2.1:50000".parse().expect("an address");
    let mut all: Vec<_> = channel_errors()
        .into_iter()
        .map(ConnectError::from)
        .collect();
    for error in [Errno::CONNREFUSED, Errno::HOSTUNREACH, Errno::TIMEDOUT] {
        let error = io::Error::from(error);
        all.push(ConnectError::Peer { peer, error });
    }
    for error in [
        Errno::ADDRNOTAVAIL.into(),
        io::Error::other("an error without a number"),
    ] {
        all.push(ConnectError::Local { peer, error });
    }
    all
}

fn peer_errors() -> Vec<PeerError> {
    let many: RangeSet = (0..20).map(|part| part * 10..part * 10 + 5).collect();
    vec![
        BlockError::UnknownBits(3).into(),
        EodError::SecondEof.into(),
        Overlap {
            wanted: 0..5,
            present: 3..9,
        }
        .into(),
        PeerError::TooManyHoles { limit: 1000 },
        PeerError::Excess { limit: 1000 },
        PeerError::EndedBeforeEod,
        PeerError::MissingEods {
            announced: 4,
            seen: 3,
            waited: Duration::from_secs(60),
        },
        PeerError::MissingEof { seen: 3 },
        PeerError::Incomplete {
            promised: 200,
            arrived: 100,
            missing: many,
        },
        PeerError::Violation("of a third machine".to_owned()),
        PeerError::Unfinished("of a third machine".to_owned()),
        PeerError::WrongChecksum {
            computed: "11e60398".to_owned(),
            expected: "00000001".to_owned(),
        },
    ]
}

fn storage_errors() -> Vec<StorageError> {
    let numbers = (1..=133).map(Errno::from_raw_os_error);
    let mut all: Vec<_> = numbers
        .map(|errno| StorageError::new("open", errno))
        .collect();
    all.extend(StorageError::CALLS.map(|call| StorageError::new(call, Errno::ACCESS)));
    all.extend(Rule::ALL.map(|rule| StorageError::refused("rename", rule)));
    all
}

/// Each variant of each error in it, at least once.
fn transfer_errors() -> Vec<TransferError> {
    let mut all: Vec<TransferError> = vec![
        SequenceError::NoDataPort.into(),
        SequenceError::SenderMustConnect.into(),
        SequenceError::ReceiverMustListen.into(),
        SequenceError::StreamRestart.into(),
        SequenceError::RestartPastEnd { offset: 9, size: 7 }.into(),
        SequenceError::Busy.into(),
        TransferError::NoConnection(Duration::from_secs(30)),
        TransferError::Cancelled(CancelReason::Abort),
        TransferError::Cancelled(CancelReason::ControlChannelLost),
        TransferError::Cancelled(CancelReason::Stalled),
        TransferError::Cancelled(CancelReason::Shutdown),
        TransferError::Cancelled(CancelReason::Administrator),
        TransferError::Cancelled(CancelReason::Replaced),
        TransferError::Local("no thread".to_owned()),
    ];
    all.extend(channel_errors().into_iter().map(TransferError::from));
    all.extend(connect_errors().into_iter().map(TransferError::from));
    all.extend(peer_errors().into_iter().map(TransferError::from));
    all.extend(storage_errors().into_iter().map(TransferError::from));
    all.extend(
        storage_errors()
            .into_iter()
            .map(|error| TransferError::Open {
                path: "/d/a file".into(),
                error,
            }),
    );
    all
}

#[test]
fn errors_of_transfers_have_the_same_replies_and_causes() {
    for error in transfer_errors() {
        let sent = SentTransferError::from(&error);
        let restored = TransferError::from(sent.clone());
        let reply = |error| replies::transfer_error(error).encode();
        assert_eq!(reply(&restored), reply(&error), "{error:?}");
        let reply = |error| replies::listing_error(error).encode();
        assert_eq!(reply(&restored), reply(&error), "{error:?}");
        let (here, there) = (Failure::from(&error), Failure::from(&restored));
        assert_eq!(there.text, here.text, "{error:?}");
        assert_eq!(there.cause, here.cause, "{error:?}");
        // The same over two machines.
        assert_eq!(SentTransferError::from(&restored), sent);
    }
}

#[test]
fn errors_of_storage_have_the_same_replies_and_causes() {
    for error in storage_errors() {
        let restored = StorageError::from(SentStorageError::from(&error));
        let reply = |error| replies::storage_error(error).encode();
        assert_eq!(reply(&restored), reply(&error), "{error:?}");
        let (here, there) = (Failure::from(&error), Failure::from(&restored));
        assert_eq!((there.text, there.cause), (here.text, here.cause));
    }
}

#[test]
fn reasons_not_to_listen_or_attach_have_the_same_words() {
    let network = ListenError::Network {
        address: "192.0.2.1:0".parse().expect("an address"),
        error: Errno::ADDRNOTAVAIL.into(),
    };
    for failure in [
        StackError::NotAllowed("udt".to_owned()).into(),
        network.into(),
        ListenError::PortRangeExhausted { first: 1, last: 2 }.into(),
        ListenError::Unsupported("null").into(),
        ListenError::Remote("of a third machine".to_owned()).into(),
    ] {
        let restored = ListenFailure::from(SentListenFailure::from(&failure));
        let reply = |failure| replies::listen_error(failure).encode();
        assert_eq!(reply(&restored), reply(&failure), "{failure:?}");
    }
    for error in [
        AttachError::Account("there is no local account 'alice'".to_owned()),
        AttachError::Root(StorageError::new("open", Errno::NOENT)),
    ] {
        let restored = AttachError::from(SentAttachError::from(&error));
        assert_eq!(restored.to_string(), error.to_string());
    }
}
