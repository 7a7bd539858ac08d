//! A connection after its handshake: application data, alerts, and key updates.

mod control;
mod failure;
mod schedule;

use std::fmt;
use std::ops::Range;

use rustls::{AlertDescription, ExtractedSecrets};

use self::control::{KEY_UPDATE_NOT_REQUESTED, MAX_MESSAGE};
use self::failure::Failure;
pub(super) use self::schedule::KeySchedule;
use self::schedule::of_rustls;
use super::handover::{ConnectionKeys, Partial};
use super::keys::{Direction, RecordKeys, TrafficKeys};
use super::protection::{ALERT, APPLICATION_DATA, HANDSHAKE, Opener, RecordError, Sealer};
use super::{MAX_FRAGMENT, MAX_RECORD, RECORD_HEADER, TlsError, record_length, wrapped_length};

/// A connection after its handshake.
pub(super) struct Traffic {
    keys: KeySchedule,
    sealer: Sealer,
    opener: Opener,
    /// An incomplete record.
    partial: Vec<u8>,
    /// An incomplete handshake message.
    message: Vec<u8>,
    control_records: u32,
    is_closed_by_peer: bool,
    is_closed: bool,
}

impl Traffic {
    pub(super) fn new(keys: KeySchedule, secrets: ExtractedSecrets) -> Result<Self, TlsError> {
        let of_rustls = |secrets| of_rustls(secrets).map_err(|_| unknown_suite());
        Self::with_keys(keys, of_rustls(secrets.tx)?, of_rustls(secrets.rx)?)
    }

    /// A connection whose handshake another process has performed.
    pub(super) fn handed_over(mut keys: ConnectionKeys) -> Result<Self, TlsError> {
        let (sending, receiving) = keys.current();
        let Partial {
            record,
            message,
            is_closed,
        } = std::mem::take(&mut keys.partial);
        let whole = whole_length(&record).map_err(|error| TlsError::protocol(error.to_string()))?;
        if whole.is_some_and(|whole| record.len() >= whole) || message.len() > MAX_MESSAGE {
            return Err(TlsError::protocol(
                "the partial record or message that was handed over is too long",
            ));
        }
        Ok(Self {
            partial: record,
            message,
            is_closed_by_peer: is_closed,
            ..Self::with_keys(KeySchedule::HandedOver(Box::new(keys)), sending, receiving)?
        })
    }

    /// The present keys, for another process.
    ///
    /// # Errors
    ///
    /// When this engine has performed the handshake itself, or has sent a close_notify.
    pub(super) fn hand_over(self) -> Result<ConnectionKeys, TlsError> {
        let KeySchedule::HandedOver(keys) = self.keys else {
            return Err(TlsError::protocol(
                "this process has performed the handshake, and has no keys to hand over",
            ));
        };
        if self.is_closed {
            return Err(TlsError::protocol("this end of the connection is closed"));
        }
        let partial = Partial {
            record: self.partial,
            message: self.message,
            is_closed: self.is_closed_by_peer,
        };
        let (sending, receiving) = (self.sealer.sequence(), self.opener.sequence());
        Ok(keys.continued(sending, receiving, partial))
    }

    fn with_keys(
        keys: KeySchedule,
        sending: (u64, TrafficKeys),
        receiving: (u64, TrafficKeys),
    ) -> Result<Self, TlsError> {
        let version = keys.version();
        Ok(Self {
            sealer: Sealer::new(version, sending).ok_or_else(unknown_suite)?,
            opener: Opener::new(version, receiving).ok_or_else(unknown_suite)?,
            keys,
            partial: Vec::new(),
            message: Vec::new(),
            control_records: 0,
            is_closed_by_peer: false,
            is_closed: false,
        })
    }

    pub(super) fn is_closed_by_peer(&self) -> bool {
        self.is_closed_by_peer
    }

    pub(super) fn description(&self) -> String {
        self.keys.description()
    }

    /// As [`super::TlsEngine::keys`].
    pub(super) fn keys(&self, direction: Direction) -> Option<RecordKeys<'_>> {
        match direction {
            Direction::Sending => self.sealer.keys(),
            Direction::Receiving => self.opener.keys(),
        }
    }

    /// As [`super::TlsEngine::release_keys`].
    pub(super) fn release_keys(&mut self, direction: Direction) {
        match direction {
            Direction::Sending => self.sealer.release(),
            Direction::Receiving => self.opener.release(),
        }
    }

    /// As [`super::TlsEngine::note_sealed`].
    pub(super) fn note_sealed(
        &mut self,
        records: u64,
        output: &mut Vec<u8>,
    ) -> Result<(), TlsError> {
        self.sealer.note_sealed(records);
        if !self.sealer.wants_update() {
            return Ok(());
        }
        self.update_keys(output)
            .map_err(|failure| TlsError::Protocol(failure.reason))
    }

    /// As [`super::TlsEngine::advance`].
    pub(super) fn advance(
        &mut self,
        input: &[u8],
        output: &mut Vec<u8>,
        plaintext: &mut Vec<u8>,
    ) -> Result<(), TlsError> {
        self.take(input, output, plaintext)
            .map_err(|failure| self.fail(failure, output))
    }

    fn take(
        &mut self,
        mut input: &[u8],
        output: &mut Vec<u8>,
        plaintext: &mut Vec<u8>,
    ) -> Result<(), Failure> {
        while !self.partial.is_empty() && !input.is_empty() {
            let wanted = whole_length(&self.partial)?.unwrap_or(RECORD_HEADER);
            let missing = (wanted - self.partial.len()).min(input.len());
            let (piece, rest) = input.split_at(missing);
            self.partial.extend_from_slice(piece);
            input = rest;
            if whole_length(&self.partial)? == Some(self.partial.len()) {
                let mut record = std::mem::take(&mut self.partial);
                self.record(&record, output, plaintext)?;
                record.clear();
                self.partial = record;
            }
        }
        while !self.is_closed_by_peer {
            let Some(length) = whole_length(input)?.filter(|length| *length <= input.len()) else {
                self.partial.extend_from_slice(input);
                break;
            };
            let (record, rest) = input.split_at(length);
            self.record(record, output, plaintext)?;
            input = rest;
        }
        Ok(())
    }

    fn record(
        &mut self,
        record: &[u8],
        output: &mut Vec<u8>,
        plaintext: &mut Vec<u8>,
    ) -> Result<(), Failure> {
        let start = plaintext.len();
        match self.opener.open(record, plaintext)? {
            APPLICATION_DATA => self.data(),
            kind => {
                let content = plaintext.split_off(start);
                self.control(kind, &content, output)
            }
        }
    }

    /// As [`super::TlsEngine::open_in_place`].
    pub(super) fn open_in_place(
        &mut self,
        record: &mut [u8],
        output: &mut Vec<u8>,
    ) -> Result<Range<usize>, TlsError> {
        self.opener
            .open_in_place(record)
            .map_err(Failure::from)
            .and_then(|(kind, range)| match kind {
                APPLICATION_DATA => self.data().map(|()| range),
                kind => self.control(kind, &record[range], output).map(|()| 0..0),
            })
            .map_err(|failure| self.fail(failure, output))
    }

    /// As [`super::TlsEngine::wrap`].
    pub(super) fn wrap(&mut self, plaintext: &[u8], output: &mut Vec<u8>) -> Result<(), TlsError> {
        let start = output.len();
        output.resize(start + wrapped_length(plaintext.len()), 0);
        let wrapped = self.wrap_into(plaintext, &mut output[start..]);
        output.truncate(start + wrapped.as_ref().copied().unwrap_or(0));
        wrapped.map(|_| ())
    }

    /// As [`super::TlsEngine::wrap_into`].
    pub(super) fn wrap_into(
        &mut self,
        plaintext: &[u8],
        records: &mut [u8],
    ) -> Result<usize, TlsError> {
        if self.is_closed {
            return Err(TlsError::protocol("this end of the connection is closed"));
        }
        self.fill(plaintext, records)
            .map_err(|failure| TlsError::Protocol(failure.reason))
    }

    /// Writes consecutive records of maximum length, with key updates between them when the limit of a key is reached.
    fn fill(&mut self, plaintext: &[u8], records: &mut [u8]) -> Result<usize, Failure> {
        let mut filled = 0;
        for content in plaintext.chunks(MAX_FRAGMENT) {
            if self.sealer.wants_update() {
                filled += self.put(HANDSHAKE, &KEY_UPDATE_NOT_REQUESTED, &mut records[filled..])?;
                self.change_keys()?;
            }
            filled += self.put(APPLICATION_DATA, content, &mut records[filled..])?;
        }
        Ok(filled)
    }

    /// Appends a close_notify, once.
    pub(super) fn close(&mut self, output: &mut Vec<u8>) {
        self.last_alert(AlertDescription::CloseNotify, output);
    }

    fn append(&mut self, kind: u8, content: &[u8], output: &mut Vec<u8>) -> Result<(), Failure> {
        let start = output.len();
        output.resize(start + self.sealer.record_length(content.len()), 0);
        self.put(kind, content, &mut output[start..])?;
        Ok(())
    }

    /// Writes a record at the start of `records`, and returns its length.
    fn put(&mut self, kind: u8, content: &[u8], records: &mut [u8]) -> Result<usize, RecordError> {
        let length = self.sealer.record_length(content.len());
        let record = records.get_mut(..length).ok_or(RecordError::NoRoom)?;
        self.sealer.seal(kind, content, record)?;
        Ok(length)
    }

    fn fail(&mut self, failure: Failure, output: &mut Vec<u8>) -> TlsError {
        if let Some(alert) = failure.alert {
            self.last_alert(alert, output);
        }
        self.is_closed = true;
        self.is_closed_by_peer = true;
        TlsError::Protocol(failure.reason)
    }

    fn last_alert(&mut self, alert: AlertDescription, output: &mut Vec<u8>) {
        const WARNING: u8 = 1;
        const FATAL: u8 = 2;
        if std::mem::replace(&mut self.is_closed, true) {
            return;
        }
        let level = match alert {
            AlertDescription::CloseNotify => WARNING,
            _ => FATAL,
        };
        let start = output.len();
        // Fails only if the sequence numbers are exhausted: then no alert can be sent.
        if self.append(ALERT, &[level, alert.into()], output).is_err() {
            output.truncate(start);
        }
    }
}

impl fmt::Debug for Traffic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Traffic").finish_non_exhaustive()
    }
}

fn unknown_suite() -> TlsError {
    TlsError::protocol("the cipher suite is not supported")
}

/// The length of the record at the start of `bytes`; `None` if its header is incomplete.
fn whole_length(bytes: &[u8]) -> Result<Option<usize>, RecordError> {
    match record_length(bytes) {
        Some(length) if length > MAX_RECORD => Err(RecordError::TooLong),
        length => Ok(length),
    }
}
