//! Base64 and TLS records.

use std::io::{self, Read};
use std::net::TcpStream;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use gridhaul_security::tls::{RECORD_HEADER, record_length};

use crate::support::raw::reply::malformed;

/// Reads one TLS record, and no byte beyond it.
pub(in crate::support::raw) fn read_record(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut record = vec![0; RECORD_HEADER];
    stream.read_exact(&mut record)?;
    let length = record_length(&record).unwrap_or(RECORD_HEADER);
    record.resize(length, 0);
    stream.read_exact(&mut record[RECORD_HEADER..])?;
    Ok(record)
}

/// Bytes in the encoding of `ADAT`, `ENC` and `DCSC`.
pub fn base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

pub(super) fn decode(text: &str) -> io::Result<Vec<u8>> {
    STANDARD
        .decode(text)
        .map_err(|_| malformed("not base64", text.as_bytes()))
}
