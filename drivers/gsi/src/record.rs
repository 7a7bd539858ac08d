//! TLS records in a stream.

use gridhaul_security::tls::{MAX_RECORD, RECORD_HEADER, record_length};
use gridhaul_stack::{Channel, ChannelError, Operation, Received};

/// Receives one record, and no byte after it, because cleartext may follow.
///
/// # Errors
///
/// When the stream ends, or the bytes are not a TLS record.
pub(crate) fn receive(
    channel: &mut dyn Channel,
    driver: &'static str,
    record: &mut Vec<u8>,
    operation: &Operation<'_>,
) -> Result<(), ChannelError> {
    record.clear();
    receive_up_to(RECORD_HEADER, channel, driver, record, operation)?;
    let length = check_header(record).map_err(|reason| protocol(driver, reason))?;
    receive_up_to(length, channel, driver, record, operation)
}

fn receive_up_to(
    length: usize,
    channel: &mut dyn Channel,
    driver: &'static str,
    record: &mut Vec<u8>,
    operation: &Operation<'_>,
) -> Result<(), ChannelError> {
    let mut done = record.len();
    record.resize(length, 0);
    while done < length {
        match channel.receive(&mut record[done..], operation)? {
            Received::Bytes(count) => done += count.get(),
            Received::EndOfStream => {
                let reason = "the peer ended the connection before the handshake was done";
                return Err(protocol(driver, reason));
            }
        }
    }
    Ok(())
}

/// The length of the record with this header, during a handshake.
fn check_header(header: &[u8]) -> Result<usize, &'static str> {
    // RFC 8446 5.1: change_cipher_spec, alert, handshake, application_data; the version is 3.x.
    if !matches!(header, [20..=23, 3, ..]) {
        return Err(
            "the peer does not begin a TLS handshake; is the protection of data channels (DCAU, PROT) \
             off at its end?",
        );
    }
    match record_length(header) {
        Some(length) if length <= MAX_RECORD => Ok(length),
        _ => Err(TOO_LONG),
    }
}

/// The content of a record of bulk data, in bytes.
pub(crate) const FULL_RECORD: usize = 1 << 14;

pub(crate) const TRUNCATED: &str = "the connection ended in the middle of a TLS record";

pub(crate) const TOO_LONG: &str = "the peer sent a record that is longer than TLS allows";

pub(crate) fn protocol(driver: &'static str, reason: impl Into<String>) -> ChannelError {
    ChannelError::Protocol {
        driver,
        reason: reason.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_of_records_are_distinguished_from_other_bytes() {
        assert_eq!(check_header(&[22, 3, 1, 0, 238]), Ok(243));
        assert_eq!(check_header(&[23, 3, 3, 0x48, 0]), Ok(MAX_RECORD));
        assert_eq!(check_header(&[23, 3, 3, 0x48, 1]), Err(TOO_LONG));
        for words in [
            b"GET /",
            b"\0\0\0\0\0",
            b"\x16\x02\0\0\x10",
            b"\x18\x03\x03\0\x10",
        ] {
            assert!(check_header(words).unwrap_err().contains("DCAU"));
        }
    }
}
