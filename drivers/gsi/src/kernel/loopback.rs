//! TCP connections within this process with keys in the kernel, for probes and measurements.

use std::io;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::time::Duration;

use gridhaul_security::tls::{Direction, RecordCipher, RecordKeys, RecordVersion};

use super::socket;

/// Fixed keys for a connection within this process.
pub(super) fn sample(version: RecordVersion, cipher: RecordCipher) -> RecordKeys<'static> {
    const KEY: [u8; 32] = *b"no secret, and only heard by us.";
    let length = match cipher {
        RecordCipher::Aes128Gcm => 16,
        RecordCipher::Aes256Gcm | RecordCipher::ChaCha20Poly1305 => 32,
    };
    RecordKeys {
        version,
        cipher,
        key: &KEY[..length],
        iv: [7; 12],
        sequence: 0,
    }
}

/// A connection on the loopback interface, with keys in the kernel for the direction from the first end to the second.
pub(super) fn protected_pair(keys: &RecordKeys<'_>) -> io::Result<(TcpStream, TcpStream)> {
    let (here, there) = pair()?;
    socket::attach(here.as_fd())?;
    socket::set_keys(here.as_fd(), Direction::Sending, keys)?;
    socket::attach(there.as_fd())?;
    socket::set_keys(there.as_fd(), Direction::Receiving, keys)?;
    Ok((here, there))
}

/// A connection on the loopback interface, with timeouts.
pub(super) fn pair() -> io::Result<(TcpStream, TcpStream)> {
    const LONGEST_WAIT: Duration = Duration::from_secs(5);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let here = TcpStream::connect(listener.local_addr()?)?;
    // Another process may have connected first.
    let there = loop {
        let (there, peer) = listener.accept()?;
        if peer == here.local_addr()? {
            break there;
        }
    };
    here.set_nodelay(true)?;
    here.set_write_timeout(Some(LONGEST_WAIT))?;
    there.set_read_timeout(Some(LONGEST_WAIT))?;
    Ok((here, there))
}
