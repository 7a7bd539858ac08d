//! The encoding of records: a header, then numbers in network byte order.

use std::num::NonZeroU64;
use std::time::Duration;

use super::method::{Method, Methods};
use super::record::{Answer, Arrival, Mode, Offer, PathRecord, Record, RingRecord};
use super::{MAX_RECORD_BYTES, NAME, RecordError, VERSION};
use crate::memory::Lengths;
use crate::provider::{FabricRecord, MAX_RAILS, PortRecord, QueuePairRecord};

const KIND_OFFER: u8 = 1;
const KIND_ANSWER: u8 = 2;
const KIND_RING: u8 = 3;
pub(super) const KIND_REFUSAL: u8 = 4;
const KIND_FABRIC: u8 = 5;
const KIND_READY: u8 = 6;
const KIND_PATH: u8 = 7;

impl Record {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut content = Vec::new();
        let kind = match self {
            Self::Offer(offer, methods, path) => {
                offer.encode(&mut content);
                content.push(methods.0);
                path.encode(&mut content);
                KIND_OFFER
            }
            Self::Answer(answer) => {
                answer.chosen.encode(&mut content);
                content.push(answer.method as u8);
                content.extend(answer.port.to_be_bytes());
                content.extend(answer.token);
                KIND_ANSWER
            }
            Self::Ring(ring) => {
                content.extend(ring.address.to_be_bytes());
                content.extend(ring.keys.iter().flat_map(|key| key.to_be_bytes()));
                KIND_RING
            }
            Self::Fabric(fabric) => {
                fabric.encode(&mut content);
                KIND_FABRIC
            }
            Self::Ready => KIND_READY,
            Self::Path(arrivals) => {
                content.extend(arrivals.iter().map(|arrival| *arrival as u8));
                KIND_PATH
            }
            Self::Refusal(reason) => {
                content.extend(reason.bytes().take(MAX_RECORD_BYTES));
                KIND_REFUSAL
            }
        };
        let length = u16::try_from(content.len()).expect("every record is short");
        let mut bytes = NAME.to_vec();
        bytes.extend([VERSION, kind]);
        bytes.extend(length.to_be_bytes());
        bytes.extend(content);
        bytes
    }

    pub(super) fn decode(kind: u8, content: &[u8]) -> Result<Self, RecordError> {
        let mut fields = Fields(content);
        let record = match kind {
            KIND_OFFER => Self::decode_offer(&mut fields),
            KIND_ANSWER => Answer::decode(&mut fields).map(Self::Answer),
            KIND_RING => RingRecord::decode(&mut fields).map(Self::Ring),
            KIND_FABRIC => FabricRecord::decode(&mut fields).map(Self::Fabric),
            KIND_READY => Some(Self::Ready),
            KIND_PATH => fields
                .several(|fields| Arrival::decode(fields.u8()?))
                .map(Self::Path),
            KIND_REFUSAL => {
                // It is logged, so special characters are escaped.
                let reason = String::from_utf8_lossy(content).escape_debug().to_string();
                return Ok(Self::Refusal(reason));
            }
            _ => None,
        };
        record
            .filter(|_| fields.0.is_empty())
            .ok_or(RecordError::Content(kind))
    }

    fn decode_offer(fields: &mut Fields<'_>) -> Option<Self> {
        let offer = Offer::decode(fields)?;
        let methods = Methods(fields.u8()?);
        Some(Self::Offer(offer, methods, PathRecord::decode(fields)?))
    }
}

impl PathRecord {
    fn encode(&self, bytes: &mut Vec<u8>) {
        let rate = self.rate.map_or(0, NonZeroU64::get);
        let round_trip = u32::try_from(self.round_trip.as_micros()).unwrap_or(u32::MAX);
        bytes.extend(rate.to_be_bytes());
        bytes.extend(round_trip.to_be_bytes());
    }

    fn decode(fields: &mut Fields<'_>) -> Option<Self> {
        Some(Self {
            rate: NonZeroU64::new(fields.u64()?),
            round_trip: Duration::from_micros(fields.u32()?.into()),
        })
    }
}

impl Offer {
    fn encode(&self, bytes: &mut Vec<u8>) {
        for length in [self.rings.outgoing, self.rings.incoming] {
            bytes.extend(length.get().to_be_bytes());
        }
        bytes.extend(self.queue_pairs.to_be_bytes());
        bytes.extend(self.pieces.to_be_bytes());
        bytes.extend([self.mode as u8, u8::from(self.immediate)]);
        bytes.extend(self.inline_bytes.to_be_bytes());
        bytes.push(self.aligned.into());
        bytes.extend([self.adapters, self.rails, u8::from(self.grows)]);
    }

    /// Zero is invalid for the length of a ring and the number of queue pairs, pieces, adapters or rails.
    fn decode(fields: &mut Fields<'_>) -> Option<Self> {
        let offer = Self {
            rings: Lengths {
                outgoing: NonZeroU64::new(fields.u64()?)?,
                incoming: NonZeroU64::new(fields.u64()?)?,
            },
            queue_pairs: fields.u16()?,
            pieces: fields.u16()?,
            mode: match fields.array()? {
                [0] => Mode::Put,
                [1] => Mode::Get,
                _ => return None,
            },
            immediate: fields.flag()?,
            inline_bytes: fields.u16()?,
            aligned: fields.flag()?,
            adapters: fields.u8()?,
            rails: fields.u8()?,
            grows: fields.flag()?,
        };
        let counts = 1..=MAX_RAILS;
        let is_valid = offer.queue_pairs > 0
            && offer.pieces > 0
            && [offer.adapters, offer.rails]
                .map(usize::from)
                .iter()
                .all(|count| counts.contains(count));
        is_valid.then_some(offer)
    }
}

impl Arrival {
    fn decode(number: u8) -> Option<Self> {
        [Self::Nothing, Self::Short, Self::All]
            .into_iter()
            .find(|arrival| *arrival as u8 == number)
    }
}

impl Answer {
    fn decode(fields: &mut Fields<'_>) -> Option<Self> {
        Some(Self {
            chosen: Offer::decode(fields)?,
            method: Method::decode(fields.u8()?)?,
            port: fields.u16()?,
            token: fields.array()?,
        })
    }
}

impl RingRecord {
    fn decode(fields: &mut Fields<'_>) -> Option<Self> {
        Some(Self {
            address: fields.u64()?,
            keys: fields.several(Fields::u32)?,
        })
    }
}

impl FabricRecord {
    fn encode(&self, bytes: &mut Vec<u8>) {
        bytes.push(u8::try_from(self.ports.len()).expect("there are few rails"));
        bytes.extend(self.ports.iter().flat_map(PortRecord::encode));
        for queue_pair in &self.queue_pairs {
            bytes.extend(queue_pair.number.to_be_bytes());
            bytes.extend(queue_pair.first_packet.to_be_bytes());
        }
    }

    fn decode(fields: &mut Fields<'_>) -> Option<Self> {
        let rails = fields.u8().map(usize::from)?;
        if !(1..=MAX_RAILS).contains(&rails) {
            return None;
        }
        let ports = (0..rails).map(|_| PortRecord::decode(fields.array()?));
        let ports = ports.collect::<Option<_>>()?;
        let mut queue_pairs = Vec::new();
        while !fields.0.is_empty() {
            let [number, first_packet] = [fields.u32()?, fields.u32()?];
            let record = QueuePairRecord {
                number,
                first_packet,
            };
            queue_pairs.push(Some(record).filter(QueuePairRecord::is_valid)?);
        }
        Some(Self { ports, queue_pairs })
    }
}

/// The numbers of a record in sequence.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (field, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*field)
    }

    /// The rest of the record: a value for each of the adapters or rails.
    fn several<T>(&mut self, decode: impl Fn(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let mut values = Vec::new();
        while !self.0.is_empty() || values.is_empty() {
            if values.len() == MAX_RAILS {
                return None;
            }
            values.push(decode(self)?);
        }
        Some(values)
    }

    fn flag(&mut self) -> Option<bool> {
        match self.array()? {
            [0] => Some(false),
            [1] => Some(true),
            _ => None,
        }
    }

    fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_be_bytes)
    }

    fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::HEAD_BYTES;
    use super::*;

    fn round(record: &Record) -> Record {
        let bytes = record.encode();
        Record::decode(bytes[9], &bytes[HEAD_BYTES..]).expect("a record")
    }

    #[test]
    fn records_survive_the_wire() {
        let offer = Offer {
            rings: Lengths {
                outgoing: NonZeroU64::new(1 << 33).unwrap(),
                incoming: NonZeroU64::new(1 << 18).unwrap(),
            },
            queue_pairs: 4,
            pieces: 64,
            mode: Mode::Get,
            immediate: true,
            inline_bytes: 183,
            aligned: true,
            adapters: 2,
            rails: 4,
            grows: true,
        };
        for record in [
            Record::Offer(
                offer,
                Methods::default().with(Method::Soft).with(Method::Roce),
                PathRecord {
                    rate: NonZeroU64::new(50_000_000_000),
                    round_trip: Duration::from_millis(200),
                },
            ),
            Record::Answer(Answer {
                chosen: offer,
                method: Method::Iwarp,
                port: 50_000,
                token: [7; 16],
            }),
            Record::Ring(RingRecord {
                address: u64::MAX,
                keys: vec![1, 2],
            }),
            Record::Fabric(FabricRecord {
                ports: vec![
                    PortRecord {
                        gid: [9; 16],
                        lid: 5,
                        mtu: 5,
                        reads: 16,
                        partition: 0x8001,
                    };
                    MAX_RAILS
                ],
                queue_pairs: vec![
                    QueuePairRecord {
                        number: 17,
                        first_packet: 0xff_ffff,
                    };
                    2
                ],
            }),
            Record::Ready,
            Record::Path(vec![Arrival::Nothing]),
            Record::Path(vec![Arrival::Short, Arrival::All]),
            Record::Refusal("no memory".to_owned()),
        ] {
            assert_eq!(round(&record), record);
        }
        let forged = Record::Refusal("a\r\nb".to_owned());
        assert_eq!(round(&forged), Record::Refusal("a\\r\\nb".to_owned()));
    }

    #[test]
    fn an_offer_has_two_rings() {
        let offer = Offer {
            rings: Lengths::both(NonZeroU64::MIN),
            queue_pairs: 1,
            pieces: 1,
            mode: Mode::Put,
            immediate: false,
            inline_bytes: 0,
            aligned: false,
            adapters: 1,
            rails: 1,
            grows: false,
        };
        let path = PathRecord::default();
        let bytes = Record::Offer(offer, Methods::default(), path).encode();
        for ring in [0..8, 8..16] {
            let mut content = bytes[HEAD_BYTES..].to_vec();
            content[ring].fill(0);
            let decoded = Record::decode(KIND_OFFER, &content);
            assert!(matches!(decoded, Err(RecordError::Content(KIND_OFFER))));
        }
        // The numbers of adapters and rails.
        for (place, count) in [(25, 0), (25, 5), (26, 0), (26, 5)] {
            let mut content = bytes[HEAD_BYTES..].to_vec();
            assert_eq!(std::mem::replace(&mut content[place], count), 1);
            let decoded = Record::decode(KIND_OFFER, &content);
            assert!(matches!(decoded, Err(RecordError::Content(KIND_OFFER))));
        }
    }

    /// A record has a value for each of the rails or adapters, and there are few of them.
    #[test]
    fn more_rails_than_there_can_be_are_invalid() {
        let refuses = |kind, content: &[u8]| Record::decode(kind, content).is_err();
        assert!(refuses(KIND_PATH, &[]) && refuses(KIND_PATH, &[2; MAX_RAILS + 1]));
        assert!(!refuses(KIND_PATH, &[2; MAX_RAILS]));
        assert!(refuses(KIND_RING, &[0; 8]) && refuses(KIND_RING, &[0; 8 + 4 * (MAX_RAILS + 1)]));
        assert!(!refuses(KIND_RING, &[0; 8 + 4 * MAX_RAILS]));
        let port = PortRecord {
            gid: [9; 16],
            lid: 5,
            mtu: 5,
            reads: 16,
            partition: 0x8001,
        };
        let ports = |claimed: u8, count: usize| {
            let mut content = vec![claimed];
            content.extend((0..count).flat_map(|_| port.encode()));
            content
        };
        for (claimed, count) in [(0, 1), (5, 5), (2, 1), (255, 4)] {
            assert!(refuses(KIND_FABRIC, &ports(claimed, count)), "{claimed}");
        }
        assert!(!refuses(KIND_FABRIC, &ports(4, 4)));
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_record_or_an_error(
            kind in 0..9_u8,
            content in proptest::collection::vec(any::<u8>(), 0..60),
        ) {
            let _ = Record::decode(kind, &content);
        }
    }
}
