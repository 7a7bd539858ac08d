//! Segments over an iWARP connection: a peer with the right keys tries forbidden accesses.

use std::num::NonZeroUsize;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::net::{
    AddressFamily, SendFlags, Shutdown, SocketFlags, SocketType, send, shutdown, socketpair,
};

use super::Input;
use crate::buffer::{Buffer, HeapBuffer};
use crate::endpoint::Endpoint;
use crate::event::Event;
use crate::handshake::{Connection, READ_DEPTH, Terms};
use crate::mpa::fpdu::{Checksum, MAX_PAYLOAD_BYTES, Trailer};
use crate::request::{Access, Region};
use crate::segment::{Header, Queue, ReadRequest, Tagged};

/// The length of each region in bytes.
const REGION_BYTES: usize = 4096;

/// Places that the peer may write to.
const PLACES: usize = 80;

/// The longest inline payload in bytes.
const PAYLOAD_BYTES: usize = 6000;

/// Segments, selected by their first byte: valid ones with right keys, perhaps invalid places, and
/// payloads of any length; or raw bytes.
pub fn segments(input: &[u8]) {
    let mut input = Input(input);
    let has_checksum = input.byte() % 2 == 1;
    let mut endpoint = Endpoint::new(PAYLOAD_BYTES, PLACES).expect("a descriptor");
    let rights = [
        Access::RemoteWrite,
        Access::RemoteRead,
        Access::Local,
        Access::Sink,
    ];
    let regions = rights.map(|access| {
        let length = NonZeroUsize::new(REGION_BYTES).expect("a constant that is not zero");
        let memory = Arc::new(HeapBuffer::new(length));
        let region = endpoint
            .register(memory.clone(), access)
            .expect("registered");
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
    // No handshake: the segments are the first bytes of the connection.
    let connection = Connection {
        socket: filled(&bytes),
        terms: Terms {
            has_checksum,
            segment_bytes: MAX_PAYLOAD_BYTES,
        },
        reads: READ_DEPTH,
    };
    endpoint.attach(connection).expect("watched");
    let mut events = Vec::new();
    while !events
        .iter()
        .any(|event| matches!(event, Event::Lost { .. }))
    {
        endpoint.poll(&mut events);
    }
    for (memory, _) in &regions[1..] {
        let mut content = [0; REGION_BYTES];
        memory.copy_out(0, &mut content);
        assert_eq!(content, [0; REGION_BYTES], "the peer may not write there");
    }
}

fn segment(
    kind: u8,
    input: &mut Input<'_>,
    regions: &[(Arc<HeapBuffer>, Region)],
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

/// The end of a connection over which `input` has arrived, followed by its end.
fn filled(input: &[u8]) -> OwnedFd {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let (ours, theirs) =
        socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None).expect("two descriptors");
    // Bytes without room in the socket are left out.
    let _ = send(&theirs, input, SendFlags::NOSIGNAL);
    shutdown(&theirs, Shutdown::Write).expect("it is connected");
    ours
}
