//! Hides the server name in a ClientHello from rustls.
//!
//! On a data channel GSI clients send the first CN of the user's subject as server name (`Alice Smith 12345`). rustls 0.23
//! fails the handshake if it is not a DNS name, although this server does not use it. So the type of the extension is replaced
//! by an unassigned one, which rustls ignores. Both sides must hash the ClientHello as it was sent: [`OriginalHash`], which
//! replaces the hash functions of the provider, restores the original whenever rustls hashes the changed one.
//!
//! rustls 0.24 will be able to ignore such names (`InvalidSniPolicy`), so that this module can be removed then.

use std::borrow::Cow;
use std::cell::RefCell;

use rustls::crypto::hash::{Context, Hash, HashAlgorithm, Output};

use super::{RECORD_HEADER, record_length};

/// RFC 8446 4.1.2: a client sends a second ClientHello after a HelloRetryRequest, but no third.
const MAX_HELLOS: usize = 2;

/// RFC 8446 11: extension types for private use.
const UNASSIGNED: (u16, u16) = (0xff80, 0xffff);

const HANDSHAKE: u8 = 22;
const CLIENT_HELLO: u8 = 1;
const SERVER_NAME: u16 = 0;

/// The changed ClientHellos of a connection.
#[derive(Debug, Default)]
pub(super) struct Hellos(Vec<Hello>);

/// A handshake message in its changed and its original form, which have the same length.
#[derive(Debug)]
struct Hello {
    changed: Vec<u8>,
    original: Vec<u8>,
}

thread_local! {
    static CURRENT: RefCell<Hellos> = RefCell::default();
}

impl Hellos {
    /// Changes the ClientHellos in `records`. An incomplete record is left for the next call.
    pub(super) fn hide_names(&mut self, records: &mut [u8]) {
        let mut rest = records;
        while self.0.len() < MAX_HELLOS {
            let Some(length) = record_length(rest).filter(|length| *length <= rest.len()) else {
                return;
            };
            let (record, following) = rest.split_at_mut(length);
            self.0.extend(Hello::hide_name(record));
            rest = following;
        }
    }

    /// Runs a call of rustls for this connection, during which hash functions restore its ClientHellos.
    pub(super) fn during<T>(&mut self, work: impl FnOnce() -> T) -> T {
        CURRENT.set(std::mem::take(self));
        let result = work();
        *self = CURRENT.take();
        result
    }

    /// Splits a transcript after a changed ClientHello, and replaces that by the original.
    fn restore<'a>(&'a self, transcript: &'a [u8]) -> (&'a [u8], &'a [u8]) {
        self.0
            .iter()
            .find_map(|hello| {
                let rest = transcript.strip_prefix(hello.changed.as_slice())?;
                Some((hello.original.as_slice(), rest))
            })
            .unwrap_or((transcript, &[]))
    }
}

/// The original transcript of a TLS 1.2 handshake, during a call of rustls for its connection.
pub(super) fn original_transcript(transcript: &[u8]) -> Cow<'_, [u8]> {
    CURRENT.with_borrow(|hellos| match hellos.restore(transcript) {
        (_, []) => Cow::Borrowed(transcript),
        (hello, rest) => Cow::Owned([hello, rest].concat()),
    })
}

impl Hello {
    /// `None` if the record has no ClientHello, or that has no server name. GSI clients send no ClientHello that is longer than
    /// a record.
    fn hide_name(record: &mut [u8]) -> Option<Self> {
        let (header, message) = record.split_at_mut_checked(RECORD_HEADER)?;
        if header[0] != HANDSHAKE {
            return None;
        }
        let extensions = extensions(message)?;
        let (_, position) = *extensions.iter().find(|(kind, _)| *kind == SERVER_NAME)?;
        let (first, last) = UNASSIGNED;
        let replacement =
            (first..=last).find(|kind| extensions.iter().all(|(present, _)| present != kind))?;
        let original = message.to_vec();
        message[position..position + 2].copy_from_slice(&replacement.to_be_bytes());
        Some(Self {
            changed: message.to_vec(),
            original,
        })
    }
}

/// The types of a ClientHello's extensions, and their positions (RFC 8446 4.1.2).
fn extensions(message: &[u8]) -> Option<Vec<(u16, usize)>> {
    let mut reader = Reader(message);
    if reader.number(1)? != usize::from(CLIENT_HELLO) || reader.number(3)? != reader.0.len() {
        return None;
    }
    // The version and the random, then the session identifier, cipher suites, compression methods.
    reader.skip(2 + 32)?;
    for length_of_length in [1, 2, 1] {
        let length = reader.number(length_of_length)?;
        reader.skip(length)?;
    }
    if reader.number(2)? != reader.0.len() {
        return None;
    }
    let mut extensions = Vec::new();
    while !reader.0.is_empty() {
        let position = message.len() - reader.0.len();
        let kind = u16::try_from(reader.number(2)?).ok()?;
        let length = reader.number(2)?;
        reader.skip(length)?;
        extensions.push((kind, position));
    }
    Some(extensions)
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn number(&mut self, bytes: usize) -> Option<usize> {
        let (number, rest) = self.0.split_at_checked(bytes)?;
        self.0 = rest;
        Some(
            number
                .iter()
                .fold(0, |sum, byte| sum << 8 | usize::from(*byte)),
        )
    }

    fn skip(&mut self, bytes: usize) -> Option<()> {
        self.0 = self.0.get(bytes..)?;
        Some(())
    }
}

/// A hash function that restores the original ClientHellos.
pub(super) struct OriginalHash(pub(super) &'static dyn Hash);

impl Hash for OriginalHash {
    fn start(&self) -> Box<dyn Context> {
        Box::new(OriginalContext(self.0.start()))
    }

    fn hash(&self, data: &[u8]) -> Output {
        self.0.hash(data)
    }

    fn output_len(&self) -> usize {
        self.0.output_len()
    }

    fn algorithm(&self) -> HashAlgorithm {
        self.0.algorithm()
    }
}

struct OriginalContext(Box<dyn Context>);

impl Context for OriginalContext {
    fn fork_finish(&self) -> Output {
        self.0.fork_finish()
    }

    fn fork(&self) -> Box<dyn Context> {
        Box::new(Self(self.0.fork()))
    }

    fn finish(self: Box<Self>) -> Output {
        self.0.finish()
    }

    fn update(&mut self, data: &[u8]) {
        CURRENT.with_borrow(|hellos| {
            let (first, rest) = hellos.restore(data);
            self.0.update(first);
            self.0.update(rest);
        });
    }
}

#[cfg(test)]
mod tests {
    use rustls::crypto::aws_lc_rs::cipher_suite::TLS13_AES_256_GCM_SHA384;

    use super::*;

    /// A record with a ClientHello that has these extensions.
    fn hello(extensions: &[(u16, &[u8])]) -> Vec<u8> {
        let with_length = |bytes: &[u8]| {
            let length = u16::try_from(bytes.len()).expect("short");
            [&length.to_be_bytes()[..], bytes].concat()
        };
        let extensions: Vec<u8> = extensions
            .iter()
            .flat_map(|(kind, content)| [&kind.to_be_bytes()[..], &with_length(content)].concat())
            .collect();
        let body = [
            &[3, 3][..],
            &[7; 32],
            &[0],
            &with_length(&[0x13, 2]),
            &[1, 0],
            &with_length(&extensions),
        ]
        .concat();
        let message = [&[1, 0][..], &with_length(&body)].concat();
        [&[22, 3, 1][..], &with_length(&message)].concat()
    }

    #[test]
    fn a_name_is_hidden_and_hashed() {
        let sent = hello(&[(10, &[1]), (SERVER_NAME, b"Alice Smith"), (0xff80, &[])]);
        let mut records = [sent.as_slice(), &[22, 3]].concat();
        let mut hellos = Hellos::default();
        hellos.hide_names(&mut records);

        assert_eq!(records.len(), sent.len() + 2);
        let seen = &records[RECORD_HEADER..sent.len()];
        let kinds: Vec<u16> = extensions(seen)
            .expect("it is a ClientHello still")
            .iter()
            .map(|(kind, _)| *kind)
            .collect();
        assert_eq!(kinds, [10, 0xff81, 0xff80]);

        let suite = TLS13_AES_256_GCM_SHA384.tls13().expect("it is for TLS 1.3");
        let hash = suite.common.hash_provider;
        let transcript = [seen, b"more"].concat();
        let true_one = [&sent[RECORD_HEADER..], b"more"].concat();
        hellos.during(|| {
            let mut context = OriginalHash(hash).start();
            context.update(&transcript);
            assert_eq!(context.finish().as_ref(), hash.hash(&true_one).as_ref());
            assert_eq!(original_transcript(&transcript), true_one);
        });
        // The hello of another connection is not changed.
        assert_eq!(original_transcript(&transcript), transcript);
    }

    #[test]
    fn other_records_are_not_changed() {
        let named = hello(&[(SERVER_NAME, b"x")]);
        let mut other_message = named.clone();
        other_message[RECORD_HEADER] = 2;
        let mut other_record = named.clone();
        other_record[0] = 23;
        for cut in [&named[..named.len() - 1], &named[..3], &[]] {
            let mut records = cut.to_vec();
            Hellos::default().hide_names(&mut records);
            assert_eq!(records, cut);
        }
        for record in [
            hello(&[]),
            hello(&[(10, &[1])]),
            other_message,
            other_record,
        ] {
            let mut records = record.clone();
            Hellos::default().hide_names(&mut records);
            assert_eq!(records, record);
        }
    }

    #[test]
    fn no_more_than_two_hellos_are_kept() {
        let named = hello(&[(SERVER_NAME, b"x")]);
        let mut records = named.repeat(3);
        let mut hellos = Hellos::default();
        hellos.hide_names(&mut records);
        assert_eq!(hellos.0.len(), MAX_HELLOS);
        assert_eq!(records[2 * named.len()..], named);
    }
}
