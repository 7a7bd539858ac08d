//! Segments over an iWARP connection: a peer that knows the keys tries forbidden accesses.

use std::num::NonZeroUsize;
use std::sync::Arc;

use super::Input;
use super::records::filled;
use crate::memory::Memory;
use crate::provider::{Access, Completion, Endpoint, Region};
use crate::soft::SoftEndpoint;
use crate::soft::mpa::{Checksum, Trailer};
use crate::soft::segment::{Header, Queue, ReadRequest, Tagged};

/// The length of each region in bytes.
const REGION_BYTES: usize = 4096;

/// Messages of the peer that may be outstanding.
const MESSAGES: usize = 80;

/// The longest inline payload in bytes.
const PAYLOAD_BYTES: usize = 6000;

/// Segments, selected by their first byte: valid ones with right keys, perhaps invalid places, and
/// payloads of any length; or raw bytes.
pub fn segments(input: &[u8]) {
    let mut input = Input(input);
    let has_checksum = input.byte() % 2 == 1;
    let mut endpoint = SoftEndpoint::new(PAYLOAD_BYTES, MESSAGES).expect("a descriptor");
    let rights = [
        Access::RemoteWrite,
        Access::RemoteRead,
        Access::Local,
        Access::Sink,
    ];
    let regions = rights.map(|access| {
        let length = NonZeroUsize::new(REGION_BYTES).expect("a constant that is not zero");
        let memory = Arc::new(Memory::new(length).expect("memory"));
        let region = endpoint.register(&memory, access).expect("registered");
        (memory, region)
    });
    let mut bytes = Vec::new();
    while !input.is_empty() {
        match input.byte() {
            kind @ 0..=199 => {
                let (header, payload) = segment(kind, &mut input, &regions);
                put(&mut bytes, &header, &payload, has_checksum);
            }
            count => bytes.extend(input.bytes(usize::from(count - 199))),
        }
    }
    endpoint
        .attach_stranger(filled(&bytes), has_checksum)
        .expect("watched");
    let mut completions = Vec::new();
    while !completions
        .iter()
        .any(|completion| matches!(completion, Completion::Lost { .. }))
    {
        endpoint.poll(&mut completions);
    }
    for (memory, _) in &regions[1..] {
        let mut content = [0; REGION_BYTES];
        memory.copy_out(0, &mut content);
        assert_eq!(content, [0; REGION_BYTES], "nobody may write there");
    }
}

fn segment(
    kind: u8,
    input: &mut Input<'_>,
    regions: &[(Arc<Memory>, Region)],
) -> (Header, Vec<u8>) {
    let (_, region) = &regions[usize::from(kind) % regions.len()];
    let last = kind & 8 == 0;
    // Near the region's beginning and end, and anywhere.
    let address = match kind & 3 {
        0 => region.address + u64::from(input.byte()),
        1 => region.address + REGION_BYTES as u64 - u64::from(input.byte()),
        _ => region.address.wrapping_add(input.u64()),
    };
    let number = u32::from(input.byte());
    let length = usize::from(input.byte()) * 16;
    let header = match kind >> 4 {
        0..=3 => Header::Tagged {
            kind: Tagged::Write,
            last,
            key: region.key,
            address,
        },
        4 => Header::Tagged {
            kind: Tagged::ReadResponse,
            last,
            key: region.key,
            address,
        },
        5..=7 => Header::Untagged {
            queue: Queue::Send,
            last,
            message: number,
            offset: match kind >> 4 {
                7 => u32::from(input.byte()) * 16,
                _ => 0,
            },
        },
        8 | 9 => {
            let request = ReadRequest {
                sink_key: region.key,
                sink_address: address,
                length: u32::from(input.byte()) * 32,
                source_key: region.key,
                source_address: address,
            };
            let header = Header::Untagged {
                queue: Queue::ReadRequest,
                last,
                message: number,
                offset: 0,
            };
            return (header, request.encode().to_vec());
        }
        _ => Header::Untagged {
            queue: Queue::Terminate,
            last,
            message: number,
            offset: 0,
        },
    };
    let mut payload = input.bytes(length).to_vec();
    payload.resize(length, 0xff);
    (header, payload)
}

fn put(bytes: &mut Vec<u8>, header: &Header, payload: &[u8], has_checksum: bool) {
    let header = header.encode();
    let count = header.as_bytes().len() + payload.len();
    let length = u16::try_from(count).expect("short").to_be_bytes();
    let checksum = has_checksum.then(|| {
        let mut checksum = Checksum::new();
        for part in [&length, header.as_bytes(), payload] {
            checksum.update(part);
        }
        checksum.finish(count)
    });
    bytes.extend(length);
    bytes.extend(header.as_bytes());
    bytes.extend(payload);
    bytes.extend(Trailer::new(count, checksum).as_bytes());
}
