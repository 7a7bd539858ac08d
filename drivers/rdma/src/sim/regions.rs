//! The registered memory of one end of a channel, and the rights of peers.

use std::sync::Arc;

use super::random::Random;
use crate::memory::{Buffer, Memory, Part, Span};
use crate::provider::{Access, Region, Remote};

/// All regions.
#[derive(Debug, Default)]
pub(crate) struct Regions(Vec<Registered>);

#[derive(Debug)]
struct Registered {
    region: Region,
    access: Access,
    length: u64,
    /// `None` for addresses without content, for runs that do not look at it.
    memory: Option<Arc<Memory>>,
    /// What it counts for in a pool.
    part: Option<Part>,
}

impl Regions {
    pub(crate) fn add(
        &mut self,
        memory: Option<Arc<Memory>>,
        length: u64,
        access: Access,
        random: &mut Random,
    ) -> Region {
        let region = Region {
            id: self.0.len(),
            // Far apart, and none at address zero.
            address: (self.0.len() as u64 + 1) << 48,
            key: u32::try_from(random.below(1 << 32)).unwrap_or(0),
        };
        self.0.push(Registered {
            region,
            access,
            length,
            memory,
            part: None,
        });
        region
    }

    /// Removes a region.
    pub(crate) fn remove(&mut self, region: usize) {
        if let Some(removed) = self.0.get_mut(region) {
            (removed.access, removed.length) = (Access::Local, 0);
            (removed.memory, removed.part) = (None, None);
        }
    }

    /// A region holds its part of a pool until it is removed.
    pub(crate) fn hold(&mut self, region: usize, part: Part) {
        if let Some(known) = self.0.get_mut(region) {
            known.part = Some(part);
        }
    }

    /// The length of all regions in bytes.
    #[cfg(test)]
    pub(crate) fn bytes(&self) -> u64 {
        self.0.iter().map(|known| known.length).sum()
    }

    /// The key of a region at the adapter of a rail.
    pub(crate) fn key(&self, region: usize, rail: usize) -> u32 {
        let first = self.0.get(region).map_or(0, |known| known.region.key);
        key_on(first, rail)
    }

    /// The place that a peer names on a rail, if its access is allowed.
    pub(crate) fn check(
        &self,
        rail: usize,
        remote: Remote,
        length: u64,
        access: Access,
    ) -> Result<(usize, Span), &'static str> {
        let is_it = |named: &&Registered| key_on(named.region.key, rail) == remote.key;
        let named = self.0.iter().find(is_it);
        let named = named.ok_or("there is no memory with this key")?;
        if named.access != access {
            return Err("the memory is not for this");
        }
        let offset = remote.address.wrapping_sub(named.region.address);
        if offset > named.length || length > named.length - offset {
            return Err("the place is not within the memory");
        }
        let fits = "a registered length is memory of this process, or stands for one";
        let offset = usize::try_from(offset).expect(fits);
        let span = Span::new(offset, usize::try_from(length).expect(fits));
        Ok((named.region.id, span))
    }

    /// The content of a part of our memory; zeros if it has addresses only.
    pub(crate) fn content(&self, region: usize, span: Span) -> Vec<u8> {
        let mut content = vec![0; span.length];
        if let Some(memory) = self.memory(region) {
            memory.copy_out(span.offset, &mut content);
        }
        content
    }

    fn memory(&self, region: usize) -> Option<&Memory> {
        self.0.get(region)?.memory.as_deref()
    }
}

/// Each adapter has keys of its own.
fn key_on(first: u32, rail: usize) -> u32 {
    first.wrapping_add(u32::try_from(rail).unwrap_or(u32::MAX))
}

/// Copies from one end's memory to the other's; the spans have the same length.
pub(crate) fn copy(from: (&Regions, usize, Span), to: (&Regions, usize, Span)) {
    let (from_regions, from_region, mut from_span) = from;
    let (to_regions, to_region, mut to_span) = to;
    let (Some(source), Some(sink)) = (
        from_regions.memory(from_region),
        to_regions.memory(to_region),
    ) else {
        return;
    };
    let mut buffer = [0; 16 << 10];
    while from_span.length > 0 {
        let count = from_span.length.min(buffer.len());
        source.copy_out(from_span.offset, &mut buffer[..count]);
        sink.copy_in(to_span.offset, &buffer[..count]);
        (from_span, to_span) = (from_span.skip(count), to_span.skip(count));
    }
}
