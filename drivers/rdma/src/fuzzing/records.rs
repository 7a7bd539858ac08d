//! The records of the handshake on the data connection.

use std::os::fd::OwnedFd;

use gridhaul_stack::{Cancel, Operation};
use rustix::net::{
    AddressFamily, SendFlags, Shutdown, SocketFlags, SocketType, send, shutdown, socketpair,
};

use crate::handshake::{self, Record};

/// Records of the handshake in sequence.
pub fn records(input: &[u8]) {
    let cancel = Cancel::new();
    let operation = Operation {
        deadline: None,
        cancel: &cancel,
    };
    let stranger = filled(input);
    while let Ok(record) = handshake::read(&stranger, &operation) {
        let (ours, theirs) = connection();
        handshake::write(&ours, &record, &operation).expect("a record is short");
        let again = handshake::read(&theirs, &operation);
        assert!(
            matches!(&again, Ok(again) if *again == record),
            "{record:?} became {again:?}"
        );
        assert!(
            !matches!(record, Record::Refusal(_)),
            "a refusal is an error"
        );
    }
}

/// The end of a connection over which `input` has arrived, followed by its end.
fn filled(input: &[u8]) -> OwnedFd {
    let (ours, theirs) = connection();
    // Bytes without room in the socket are left out.
    let _ = send(&theirs, input, SendFlags::NOSIGNAL);
    shutdown(&theirs, Shutdown::Write).expect("it is connected");
    ours
}

fn connection() -> (OwnedFd, OwnedFd) {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None).expect("two descriptors")
}
