use gridhaul_stack::ChannelError;

use super::*;
use crate::error::{PeerError, TransferError};

fn restored(error: &StorageError) -> StorageError {
    SentStorageError::from(error).into()
}

#[test]
fn errors_of_storage_keep_their_call_number_and_rule() {
    for call in StorageError::CALLS {
        for errno in [Errno::NOENT, Errno::DQUOT, Errno::from_raw_os_error(4000)] {
            let error = restored(&StorageError::new(call, errno));
            assert_eq!((error.call, error.errno, error.rule), (call, errno, None));
        }
        for rule in Rule::ALL {
            let error = StorageError::refused(call, rule);
            assert_eq!(restored(&error).to_string(), error.to_string());
            assert_eq!(restored(&error).rule, Some(rule));
        }
    }
}

#[test]
fn an_unknown_call_or_number_is_still_an_error_of_storage() {
    for errno in [0, -1, 4096, i32::MAX, i32::MIN] {
        let sent = SentStorageError {
            call: "exec".to_owned(),
            errno,
            rule: None,
        };
        let error = StorageError::from(sent);
        assert_eq!((error.call, error.errno), (UNKNOWN_CALL, Errno::IO));
        let text = "a text".to_owned();
        let errno = Some(errno);
        let error = io::Error::from(SentSystemError { errno, text });
        assert_eq!(error.to_string(), "a text");
    }
}

#[test]
fn system_errors_keep_their_number_or_their_text() {
    for error in [
        io::Error::from(Errno::CONNREFUSED),
        io::Error::from(io::ErrorKind::InvalidInput),
        io::Error::other("no resolver"),
    ] {
        let back = io::Error::from(SentSystemError::from(&error));
        assert_eq!(back.to_string(), error.to_string());
        assert_eq!(back.raw_os_error(), error.raw_os_error());
    }
}

#[test]
fn reasons_not_to_attach_keep_their_texts() {
    for error in [
        AttachError::Account("there is no local account 'alice'".to_owned()),
        AttachError::Root(StorageError::new("open", Errno::NOENT)),
    ] {
        let back = AttachError::from(SentAttachError::from(&error));
        assert_eq!(back.to_string(), error.to_string());
        assert_eq!(
            std::mem::discriminant(&back),
            std::mem::discriminant(&error)
        );
    }
}

#[test]
fn reasons_not_to_listen_keep_their_texts() {
    let stack = StackError::UnknownDriver {
        name: "udt".to_owned(),
        known: "tcp".to_owned(),
    };
    let network = ListenError::Network {
        address: "192.0.2.1:0".parse().expect("an address"),
        error: Errno::ADDRNOTAVAIL.into(),
    };
    let exhausted = ListenError::PortRangeExhausted {
        first: 50000,
        last: 50009,
    };
    for failure in [
        stack.into(),
        network.into(),
        exhausted.into(),
        ListenError::Unsupported("null").into(),
        ListenError::Remote("of a third machine".to_owned()).into(),
    ] {
        let back = ListenFailure::from(SentListenFailure::from(&failure));
        assert_eq!(back.to_string(), failure.to_string());
        let is_exhausted = |failure: &ListenFailure| {
            matches!(
                failure,
                ListenFailure::Listen(ListenError::PortRangeExhausted { .. })
            )
        };
        assert_eq!(is_exhausted(&back), is_exhausted(&failure));
    }
}

#[test]
fn texts_are_bounded() {
    let long = "ä".repeat(MAX_SENT_TEXT_BYTES);
    let sent = [
        SentTransferError::Local(long.clone()),
        SentTransferError::Channel(SentChannelError::Connection(long.clone())),
        SentTransferError::Peer(SentPeerError::Violation(long.clone())),
        SentTransferError::Peer(SentPeerError::Unfinished(long.clone())),
    ];
    for sent in sent {
        let error = TransferError::from(sent);
        let length = error.to_string().len();
        assert!(length <= MAX_SENT_TEXT_BYTES + 100, "{length}");
        assert!(matches!(
            error,
            TransferError::Local(_)
                | TransferError::Channel(ChannelError::Remote(_))
                | TransferError::Peer(PeerError::Violation(_) | PeerError::Unfinished(_))
        ));
    }
    let AttachError::Account(text) = SentAttachError::Account(long).into() else {
        panic!("another error");
    };
    assert_eq!(text.len(), MAX_SENT_TEXT_BYTES);
}
