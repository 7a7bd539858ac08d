//! The TLS engine of a channel: a connection without I/O.

use std::ops::Range;

use gridhaul_security::tls::{Direction, RecordKeys};

/// One end of a TLS connection, without I/O.
pub(crate) trait Engine: Send {
    /// Continues the handshake with a complete record from the peer, or starts it with an empty one. Appends the records to
    /// send, also when it fails.
    fn advance(&mut self, record: &[u8], output: &mut Vec<u8>) -> Result<(), String>;

    /// Whether the handshake has not finished.
    fn is_handshaking(&self) -> bool;

    /// Opens a complete record in place, after the handshake, and returns the place of its content. Appends the records to
    /// send.
    fn open(&mut self, record: &mut [u8], output: &mut Vec<u8>) -> Result<Range<usize>, String>;

    /// Seals `plaintext` into `records`, which has space for `gridhaul_security::tls::wrapped_length`, and returns the length of the
    /// records.
    fn seal(&mut self, plaintext: &[u8], records: &mut [u8]) -> Result<usize, String>;

    /// Whether the peer has sent a close_notify.
    fn is_closed_by_peer(&self) -> bool;

    /// Appends a close_notify.
    fn close(&mut self, output: &mut Vec<u8>);

    /// The keys of a direction, if the kernel may get them and has not. After [`Engine::release_keys`], records of that direction
    /// are unprotected here.
    fn keys(&self, _direction: Direction) -> Option<RecordKeys<'_>> {
        None
    }

    /// Records that the kernel has the keys of a direction.
    fn release_keys(&mut self, _direction: Direction) {}

    /// Counts records that the kernel has sealed. Appends the records to send.
    fn note_sealed(&mut self, _records: u64, _output: &mut Vec<u8>) -> Result<(), String> {
        Ok(())
    }
}
