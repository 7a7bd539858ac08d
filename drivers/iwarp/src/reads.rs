//! Outstanding READs, and the places of their responses.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::buffer::{Buffer, Span};
use crate::receive::{ReceiveError, Sink, Sinks};
use crate::regions::Regions;
use crate::request::{Message, Remote};
use crate::segment::ReadRequest;

/// Outstanding READs in order; their responses arrive in this order.
#[derive(Debug, Default)]
pub(crate) struct Reads {
    waiting: VecDeque<Read>,
}

#[derive(Debug)]
struct Read {
    id: u64,
    memory: Arc<dyn Buffer>,
    /// The address of the memory for the peer.
    address: u64,
    key: u32,
    /// The place of the next part of the response.
    rest: Span,
}

impl Reads {
    /// The count.
    pub(crate) fn count(&self) -> usize {
        self.waiting.len()
    }

    /// Records a READ; returns the request message for the peer.
    ///
    /// # Panics
    ///
    /// When there is no region with this number, or the length has more than 32 bits.
    pub(crate) fn add(
        &mut self,
        id: u64,
        region: usize,
        span: Span,
        from: Remote,
        regions: &Regions,
    ) -> Message {
        let region = regions.region(region);
        let request = ReadRequest {
            sink_key: region.key,
            sink_address: region.address + span.offset as u64,
            length: u32::try_from(span.length)
                .expect("a READ is bounded by Limits::transfer_bytes"),
            source_key: from.key,
            source_address: from.address,
        };
        self.waiting.push_back(Read {
            id,
            memory: Arc::clone(&region.memory),
            address: region.address,
            key: region.key,
            rest: span,
        });
        Message::new(&request.encode()).expect("a READ request is a short message")
    }

    /// Counts a part of a response; returns the request that it completes.
    pub(crate) fn responded(
        &mut self,
        bytes: usize,
        last: bool,
    ) -> Result<Option<u64>, ReceiveError> {
        let read = self.waiting.front_mut().ok_or(ReceiveError::Response)?;
        read.rest = read.rest.skip(bytes);
        match (last, read.rest.length) {
            (false, _) => Ok(None),
            (true, 0) => Ok(self.waiting.pop_front().map(|read| read.id)),
            (true, _) => Err(ReceiveError::Response),
        }
    }
}

impl Sinks for Reads {
    fn sink(&self, to: Remote, length: usize) -> Option<Sink> {
        let read = self.waiting.front()?;
        let is_next = to.key == read.key
            && to.address == read.address + read.rest.offset as u64
            && length <= read.rest.length;
        is_next.then(|| Sink {
            memory: Arc::clone(&read.memory),
            span: read.rest.first(length),
            spare: read.rest.length - length,
        })
    }
}
