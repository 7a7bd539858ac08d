//! Messages between the two ends while data flows, sent with SEND.

use crate::provider::{self, Keys, MAX_MESSAGE_BYTES};

const ARRIVED: u8 = 1;
const CREDIT: u8 = 2;
const END: u8 = 3;
const ABANDON: u8 = 4;
const CARRIED: u8 = 5;
const PADDED: u8 = 6;
const RING: u8 = 7;
const SWITCH: u8 = 8;
const LEFT: u8 = 9;
const TAKE_BACK: u8 = 10;
const DECLINED: u8 = 11;
const SOURCE: u8 = 12;
const PREPARING: u8 = 13;

/// A message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Message {
    /// A piece of the stream is in the receiver's ring.
    Arrived { start: u64, length: u32 },
    /// A piece of the stream of this many bytes follows in the same message.
    Carried { start: u64, length: usize },
    /// The same, and after that piece so many positions of the stream hold no bytes.
    Padded {
        start: u64,
        padding: u32,
        length: usize,
    },
    /// Everything before this position was consumed.
    Credit { consumed: u64 },
    /// The stream ends at this position.
    End { at: u64 },
    /// The sender lost a queue pair. Data that still arrives over it is stale.
    Abandon {
        queue_pair: usize,
        /// How many times it had been restored.
        generation: u32,
    },
    /// The receiver prepares another ring of so many bytes, so that the sender can prepare one at the same time.
    Preparing {
        /// The number of the ring; the first one is number 0.
        number: u32,
        bytes: u64,
    },
    /// The receiver has that ring, of so many bytes, and the stream may move to it.
    Ring {
        number: u32,
        bytes: u64,
        address: u64,
        /// At each adapter of the receiver; none in `mode=get`, where the sender does not access it.
        keys: Keys,
    },
    /// The sender moves the stream to that ring, and to a ring of so many bytes of its own, from which the receiver fetches everything
    /// from this position on (`mode=get`).
    Source {
        /// The number of the receiver's ring.
        number: u32,
        at: u64,
        bytes: u64,
        address: u64,
        /// At each adapter of the sender.
        keys: Keys,
    },
    /// From this position on the stream is in that ring.
    Switch {
        number: u32,
        at: u64,
        /// The sender has at most so many bytes in flight.
        window: u64,
    },
    /// Nothing more arrives in the ring before that one.
    Left { number: u32 },
    /// The receiver takes that ring back, unless the stream has moved to it, or could not prepare it.
    TakeBack { number: u32 },
    /// The stream does not move to that ring any more.
    Declined { number: u32 },
}

/// Why a message is invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum MessageError {
    #[error("the peer sent an empty message")]
    Empty,
    #[error("the peer sent a message of the unknown kind {0}")]
    Kind(u8),
    #[error("the peer sent a message of kind {kind} with {length} bytes")]
    Length { kind: u8, length: usize },
}

impl Message {
    /// The encoded message, without the piece that may follow it.
    pub(crate) fn encode(&self) -> provider::Message {
        let mut bytes = Vec::with_capacity(MAX_MESSAGE_BYTES);
        match self {
            Self::Arrived { start, length } => {
                bytes.push(ARRIVED);
                bytes.extend(start.to_be_bytes());
                bytes.extend(length.to_be_bytes());
            }
            Self::Carried { start, .. } => {
                bytes.push(CARRIED);
                bytes.extend(start.to_be_bytes());
            }
            Self::Padded { start, padding, .. } => {
                bytes.push(PADDED);
                bytes.extend(start.to_be_bytes());
                bytes.extend(padding.to_be_bytes());
            }
            Self::Credit { consumed } => {
                bytes.push(CREDIT);
                bytes.extend(consumed.to_be_bytes());
            }
            Self::End { at } => {
                bytes.push(END);
                bytes.extend(at.to_be_bytes());
            }
            Self::Abandon {
                queue_pair,
                generation,
            } => {
                bytes.push(ABANDON);
                bytes.extend((*queue_pair as u64).to_be_bytes());
                bytes.extend(generation.to_be_bytes());
            }
            Self::Preparing {
                number,
                bytes: length,
            } => {
                bytes.push(PREPARING);
                bytes.extend(length.to_be_bytes());
                bytes.extend(number.to_be_bytes());
            }
            Self::Ring {
                number,
                bytes: length,
                address,
                keys,
            } => {
                bytes.push(RING);
                bytes.extend(length.to_be_bytes());
                bytes.extend(address.to_be_bytes());
                bytes.extend(number.to_be_bytes());
                encode_keys(keys, &mut bytes);
            }
            Self::Source {
                number,
                at,
                bytes: length,
                address,
                keys,
            } => {
                bytes.push(SOURCE);
                for value in [at, length, address] {
                    bytes.extend(value.to_be_bytes());
                }
                bytes.extend(number.to_be_bytes());
                encode_keys(keys, &mut bytes);
            }
            Self::Switch { number, at, window } => {
                bytes.push(SWITCH);
                bytes.extend(at.to_be_bytes());
                bytes.extend(window.to_be_bytes());
                bytes.extend(number.to_be_bytes());
            }
            Self::Left { number } => {
                bytes.push(LEFT);
                bytes.extend(u64::from(*number).to_be_bytes());
            }
            Self::TakeBack { number } => {
                bytes.push(TAKE_BACK);
                bytes.extend(u64::from(*number).to_be_bytes());
            }
            Self::Declined { number } => {
                bytes.push(DECLINED);
                bytes.extend(u64::from(*number).to_be_bytes());
            }
        }
        provider::Message::new(&bytes).expect("each kind of message is short enough")
    }

    /// The length of the piece that follows in the same message.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn payload_bytes(&self) -> usize {
        match *self {
            Self::Carried { length, .. } | Self::Padded { length, .. } => length,
            Self::Arrived { .. }
            | Self::Credit { .. }
            | Self::End { .. }
            | Self::Abandon { .. }
            | Self::Preparing { .. }
            | Self::Ring { .. }
            | Self::Source { .. }
            | Self::Switch { .. }
            | Self::Left { .. }
            | Self::TakeBack { .. }
            | Self::Declined { .. } => 0,
        }
    }

    /// # Errors
    ///
    /// When the bytes are not a valid message.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, MessageError> {
        let (&kind, rest) = bytes.split_first().ok_or(MessageError::Empty)?;
        if !(ARRIVED..=PREPARING).contains(&kind) {
            return Err(MessageError::Kind(kind));
        }
        let wrong = MessageError::Length {
            kind,
            length: bytes.len(),
        };
        let (place, rest) = rest.split_first_chunk().ok_or(wrong)?;
        let place = u64::from_be_bytes(*place);
        Ok(match (kind, rest) {
            (ARRIVED, [a, b, c, d]) => Self::Arrived {
                start: place,
                length: u32::from_be_bytes([*a, *b, *c, *d]),
            },
            (CARRIED, payload) => Self::Carried {
                start: place,
                length: payload.len(),
            },
            (PADDED, [a, b, c, d, payload @ ..]) => Self::Padded {
                start: place,
                padding: u32::from_be_bytes([*a, *b, *c, *d]),
                length: payload.len(),
            },
            (CREDIT, []) => Self::Credit { consumed: place },
            (END, []) => Self::End { at: place },
            (ABANDON, [a, b, c, d]) => Self::Abandon {
                queue_pair: usize::try_from(place).map_err(|_| wrong)?,
                generation: u32::from_be_bytes([*a, *b, *c, *d]),
            },
            (PREPARING, [a, b, c, d]) => Self::Preparing {
                number: u32::from_be_bytes([*a, *b, *c, *d]),
                bytes: place,
            },
            (RING, rest) => {
                let (address, rest) = rest.split_first_chunk().ok_or(wrong)?;
                let (number, keys) = rest.split_first_chunk().ok_or(wrong)?;
                Self::Ring {
                    number: u32::from_be_bytes(*number),
                    bytes: place,
                    address: u64::from_be_bytes(*address),
                    keys: decode_keys(keys).ok_or(wrong)?,
                }
            }
            (SOURCE, rest) => {
                let (length, rest) = rest.split_first_chunk().ok_or(wrong)?;
                let (address, rest) = rest.split_first_chunk().ok_or(wrong)?;
                let (number, keys) = rest.split_first_chunk().ok_or(wrong)?;
                Self::Source {
                    number: u32::from_be_bytes(*number),
                    at: place,
                    bytes: u64::from_be_bytes(*length),
                    address: u64::from_be_bytes(*address),
                    keys: decode_keys(keys).ok_or(wrong)?,
                }
            }
            (SWITCH, rest) => {
                let (window, number) = rest.split_first_chunk().ok_or(wrong)?;
                Self::Switch {
                    number: u32::from_be_bytes(number.try_into().map_err(|_| wrong)?),
                    at: place,
                    window: u64::from_be_bytes(*window),
                }
            }
            (LEFT | TAKE_BACK | DECLINED, []) => {
                let number = u32::try_from(place).map_err(|_| wrong)?;
                match kind {
                    LEFT => Self::Left { number },
                    TAKE_BACK => Self::TakeBack { number },
                    _ => Self::Declined { number },
                }
            }
            _ => return Err(wrong),
        })
    }
}

fn encode_keys(keys: &Keys, bytes: &mut Vec<u8>) {
    bytes.extend(keys.as_slice().iter().flat_map(|key| key.to_be_bytes()));
}

/// The rest of a message.
fn decode_keys(rest: &[u8]) -> Option<Keys> {
    let (keys, []) = rest.as_chunks() else {
        return None;
    };
    let keys: Vec<_> = keys.iter().map(|key| u32::from_be_bytes(*key)).collect();
    Keys::of(&keys)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::provider::MAX_RAILS;

    fn keys() -> impl Strategy<Value = Keys> {
        let keys = proptest::collection::vec(any::<u32>(), 0..=MAX_RAILS);
        keys.prop_map(|keys| Keys::of(&keys).unwrap())
    }

    fn messages() -> impl Strategy<Value = Message> {
        prop_oneof![
            (any::<u64>(), any::<u32>())
                .prop_map(|(start, length)| Message::Arrived { start, length }),
            (any::<u64>(), 0..20_000_usize)
                .prop_map(|(start, length)| Message::Carried { start, length }),
            (any::<u64>(), any::<u32>(), 0..20_000_usize).prop_map(|(start, padding, length)| {
                Message::Padded {
                    start,
                    padding,
                    length,
                }
            }),
            any::<u64>().prop_map(|consumed| Message::Credit { consumed }),
            any::<u64>().prop_map(|at| Message::End { at }),
            (any::<usize>(), any::<u32>()).prop_map(|(queue_pair, generation)| Message::Abandon {
                queue_pair,
                generation
            }),
            (any::<u32>(), any::<u64>())
                .prop_map(|(number, bytes)| Message::Preparing { number, bytes }),
            (any::<u32>(), any::<u64>(), any::<u64>(), keys()).prop_map(
                |(number, bytes, address, keys)| Message::Ring {
                    number,
                    bytes,
                    address,
                    keys
                }
            ),
            (any::<u32>(), any::<[u64; 3]>(), keys()).prop_map(
                |(number, [at, bytes, address], keys)| Message::Source {
                    number,
                    at,
                    bytes,
                    address,
                    keys
                }
            ),
            (any::<u32>(), any::<u64>(), any::<u64>())
                .prop_map(|(number, at, window)| Message::Switch { number, at, window }),
            any::<u32>().prop_map(|number| Message::Left { number }),
            any::<u32>().prop_map(|number| Message::TakeBack { number }),
            any::<u32>().prop_map(|number| Message::Declined { number }),
        ]
    }

    proptest! {
        #[test]
        fn messages_survive_the_wire(message in messages()) {
            let mut encoded = message.encode().as_bytes().to_vec();
            encoded.resize(encoded.len() + message.payload_bytes(), 7);
            prop_assert_eq!(Message::decode(&encoded), Ok(message));
        }

        #[test]
        fn any_bytes_are_a_message_or_an_error(
            bytes in proptest::collection::vec(any::<u8>(), 0..200),
        ) {
            if let Ok(message) = Message::decode(&bytes) {
                let mut encoded = message.encode().as_bytes().to_vec();
                encoded.extend(&bytes[bytes.len() - message.payload_bytes()..]);
                prop_assert_eq!(encoded, bytes);
            }
        }
    }

    #[test]
    fn invalid_messages_are_named() {
        assert_eq!(Message::decode(b""), Err(MessageError::Empty));
        assert_eq!(Message::decode(b"\x0e"), Err(MessageError::Kind(14)));
        let length = |kind, length| Err(MessageError::Length { kind, length });
        assert_eq!(Message::decode(b"\x03\0\0\0\0\0\0\0"), length(3, 8));
        assert_eq!(Message::decode(b"\x01\0\0\0\0\0\0\0\0"), length(1, 9));
        assert_eq!(Message::decode(b"\x0d\0\0\0\0\0\0\0\0"), length(13, 9));
        assert_eq!(Message::decode(b"\x06\0\0\0\0\0\0\0\0\0"), length(6, 10));
        // A ring with part of a key, and with more keys than an end has adapters.
        for keys in [3, 4 * (MAX_RAILS + 1)] {
            let mut ring = vec![RING];
            ring.resize(21 + keys, 0);
            assert_eq!(Message::decode(&ring), length(RING, ring.len()));
        }
    }
}
