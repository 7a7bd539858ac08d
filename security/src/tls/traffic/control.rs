//! Alerts and handshake messages after the handshake (RFC 8446 4.6 and 6).

use rustls::{AlertDescription, ProtocolVersion};

use super::Traffic;
use super::failure::Failure;
use super::schedule::KeySchedule;
use crate::tls::KEY_UPDATE_MESSAGE;
use crate::tls::protection::{ALERT, HANDSHAKE, Opener, RecordError, Sealer};

/// The header of a handshake message: type and length.
const MESSAGE_HEADER: usize = 4;

/// The types of handshake messages that may follow the handshake (RFC 8446 4.6).
const NEW_SESSION_TICKET: u8 = 4;
const KEY_UPDATE: u8 = 24;

/// A KeyUpdate message that does not request one of the peer (RFC 8446 4.6.3).
pub(super) const KEY_UPDATE_NOT_REQUESTED: [u8; KEY_UPDATE_MESSAGE] = [KEY_UPDATE, 0, 0, 1, 0];

/// The maximum length of such a message. Tickets of OpenSSL contain the client's chain.
pub(super) const MAX_MESSAGE: usize = 1 << 16;

/// The maximum number of consecutive alerts and handshake messages without data between them.
const MAX_CONTROL_RECORDS: u32 = 32;

impl Traffic {
    pub(super) fn data(&mut self) -> Result<(), Failure> {
        // RFC 8446 5.1: messages are not interleaved with other records.
        if !self.message.is_empty() {
            return Err(RecordError::Unexpected.into());
        }
        self.control_records = 0;
        Ok(())
    }

    pub(super) fn control(
        &mut self,
        kind: u8,
        content: &[u8],
        output: &mut Vec<u8>,
    ) -> Result<(), Failure> {
        self.control_records += 1;
        if self.control_records > MAX_CONTROL_RECORDS {
            return Err(Failure::new(
                AlertDescription::UnexpectedMessage,
                "the peer sends alerts and handshake messages without end",
            ));
        }
        match kind {
            ALERT => self.alert(content),
            HANDSHAKE if self.keys.version() == ProtocolVersion::TLSv1_3 => {
                self.handshake(content, output)
            }
            HANDSHAKE => Err(Failure::new(
                AlertDescription::NoRenegotiation,
                "the peer requests renegotiation, which is not supported",
            )),
            _ => Err(RecordError::Unexpected.into()),
        }
    }

    fn alert(&mut self, content: &[u8]) -> Result<(), Failure> {
        let &[_, description] = content else {
            return Err(Failure::new(
                AlertDescription::DecodeError,
                "an alert is malformed",
            ));
        };
        match AlertDescription::from(description) {
            AlertDescription::CloseNotify => self.is_closed_by_peer = true,
            // RFC 8446 6.1: a close_notify follows.
            AlertDescription::UserCanceled => {}
            other => {
                return Err(Failure {
                    alert: None,
                    reason: format!("the peer ended the connection: {other:?}"),
                });
            }
        }
        Ok(())
    }

    fn handshake(&mut self, content: &[u8], output: &mut Vec<u8>) -> Result<(), Failure> {
        self.message.extend_from_slice(content);
        while let Some((header, rest)) = self.message.split_first_chunk::<MESSAGE_HEADER>() {
            let &[kind, a, b, c] = header;
            let length = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
            if length > MAX_MESSAGE {
                return Err(Failure::new(
                    AlertDescription::DecodeError,
                    "a handshake message is too long",
                ));
            }
            let Some(body) = rest.get(..length) else {
                break;
            };
            match kind {
                // Ignored, because sessions are not resumed.
                NEW_SESSION_TICKET if matches!(self.keys, KeySchedule::Connector(_)) => {}
                KEY_UPDATE => {
                    // RFC 8446 5.1: a key update ends its record.
                    let request = match body {
                        [request @ 0..=1] if rest.len() == 1 => *request,
                        _ => {
                            return Err(Failure::new(
                                AlertDescription::IllegalParameter,
                                "a key update is malformed",
                            ));
                        }
                    };
                    self.opener = Opener::new(self.keys.version(), self.keys.next_receiving()?)
                        .ok_or(RecordError::Exhausted)?;
                    if request == 1 {
                        self.update_keys(output)?;
                    }
                }
                _ => return Err(RecordError::Unexpected.into()),
            }
            self.message.drain(..MESSAGE_HEADER + length);
        }
        Ok(())
    }

    /// Appends a KeyUpdate message, and updates the sending keys.
    pub(super) fn update_keys(&mut self, output: &mut Vec<u8>) -> Result<(), Failure> {
        self.append(HANDSHAKE, &KEY_UPDATE_NOT_REQUESTED, output)?;
        self.change_keys()
    }

    pub(super) fn change_keys(&mut self) -> Result<(), Failure> {
        self.sealer = Sealer::new(self.keys.version(), self.keys.next_sending()?)
            .ok_or(RecordError::Exhausted)?;
        Ok(())
    }
}
