//! The registered memory of an endpoint, and the peer's access to it.

use std::sync::Arc;

use gridhaul_stack::random_bytes;

use crate::buffer::{Buffer, Span};
use crate::request::{Access, Region, Remote};

/// The regions of an endpoint. Keys of another endpoint are invalid here.
#[derive(Debug, Default)]
pub(crate) struct Regions {
    /// By number.
    regions: Vec<Option<Registered>>,
    /// See [`crate::Endpoint::spare`]: the number of the region, and its parts.
    spare: (usize, [Span; 2]),
}

/// A registered memory.
#[derive(Debug)]
pub(crate) struct Registered {
    pub(crate) memory: Arc<dyn Buffer>,
    /// The address and length of the memory, with which every segment of the peer is compared.
    pub(crate) address: u64,
    length: usize,
    access: Access,
    pub(crate) key: u32,
}

/// Why an access of the peer is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AccessError {
    #[error("no memory has the key {0:#x}")]
    Key(u32),
    #[error("{length} bytes at {address:#x} are not all within the memory of the key {key:#x}")]
    Bounds {
        key: u32,
        address: u64,
        length: usize,
    },
    #[error("the memory of the key {0:#x} may not be used in this way")]
    Rights(u32),
}

impl Regions {
    /// Registers memory under an unpredictable key.
    pub(crate) fn add(&mut self, memory: Arc<dyn Buffer>, access: Access) -> Region {
        let key = loop {
            let key = u32::from_ne_bytes(random_bytes());
            if self.registered().all(|region| region.key != key) {
                break key;
            }
        };
        let free = self.regions.iter().position(Option::is_none);
        let id = free.unwrap_or(self.regions.len());
        if free.is_none() {
            self.regions.push(None);
        }
        let (address, length) = (memory.address(), memory.length());
        self.regions[id] = Some(Registered {
            memory,
            address,
            length,
            access,
            key,
        });
        Region { id, address, key }
    }

    /// See [`crate::Endpoint::spare`].
    pub(crate) fn set_spare(&mut self, region: usize, parts: [Span; 2]) {
        self.spare = (region, parts);
    }

    /// How many bytes beyond this offset of a region that the peer writes to are free.
    pub(crate) fn spare_behind(&self, region: &Registered, end: usize) -> usize {
        let (number, parts) = self.spare;
        let named = self.regions.get(number).and_then(Option::as_ref);
        if named.is_none_or(|named| named.key != region.key) {
            return 0;
        }
        let ends = parts.map(|part| (part.offset, part.offset + part.length));
        let part = ends.iter().find(|(from, to)| (*from..*to).contains(&end));
        part.map_or(0, |(_, to)| (*to).min(region.length).saturating_sub(end))
    }

    /// A part of a region, counted from address zero; `None` if there is no such region (any more).
    pub(crate) fn place(&self, id: usize, part: Span) -> Option<Span> {
        let region = self.regions.get(id)?.as_ref()?;
        Some(part.addresses_in(region.memory.as_ref()))
    }

    /// Removes a region; its key becomes invalid. Returns its memory, if there was one.
    pub(crate) fn remove(&mut self, id: usize) -> Option<Arc<dyn Buffer>> {
        if self.spare.0 == id {
            self.spare.1 = [Span::new(0, 0); 2];
        }
        Some(self.regions.get_mut(id)?.take()?.memory)
    }

    /// The memory of a region.
    ///
    /// # Panics
    ///
    /// When there is no region with this number.
    pub(crate) fn memory(&self, id: usize) -> &Arc<dyn Buffer> {
        &self.region(id).memory
    }

    /// A region.
    ///
    /// # Panics
    ///
    /// When there is no region with this number.
    pub(crate) fn region(&self, id: usize) -> &Registered {
        self.regions[id].as_ref().expect("a region of ours")
    }

    /// Finds the region that a peer names, if the access is allowed. RFC 5040 8.1: key, bounds and
    /// rights are checked before a byte is placed.
    pub(crate) fn find(
        &self,
        remote: Remote,
        length: usize,
        wanted: Access,
    ) -> Result<(&Registered, Span), AccessError> {
        let Remote { address, key } = remote;
        let region = self
            .registered()
            .find(|region| region.key == key)
            .ok_or(AccessError::Key(key))?;
        if region.access != wanted {
            return Err(AccessError::Rights(key));
        }
        let span = span_within((region.address, region.length), address, length);
        let span = span.ok_or(AccessError::Bounds {
            key,
            address,
            length,
        })?;
        Ok((region, span))
    }

    fn registered(&self) -> impl Iterator<Item = &Registered> {
        self.regions.iter().flatten()
    }
}

/// `length` bytes at `address`, if all of them are in a memory of this address and length.
fn span_within((start, bytes): (u64, usize), address: u64, length: usize) -> Option<Span> {
    let offset = usize::try_from(address.checked_sub(start)?).ok()?;
    let end = offset.checked_add(length)?;
    (end <= bytes).then_some(Span::new(offset, length))
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;

    use super::*;
    use crate::buffer::HeapBuffer;

    fn buffer() -> Arc<dyn Buffer> {
        Arc::new(HeapBuffer::new(NonZeroUsize::new(4096).unwrap()))
    }

    #[test]
    fn a_peer_reaches_only_bytes_of_a_region_with_the_right_key_and_access() {
        let memory = buffer();
        let mut regions = Regions::default();
        let region = regions.add(Arc::clone(&memory), Access::RemoteWrite);
        let at = |offset: u64| Remote {
            address: region.address.wrapping_add(offset),
            key: region.key,
        };
        let find = |remote, length| {
            regions
                .find(remote, length, Access::RemoteWrite)
                .map(|(_, span)| span)
        };
        assert_eq!(find(at(96), 4000), Ok(Span::new(96, 4000)));
        assert_eq!(find(at(4096), 0), Ok(Span::new(4096, 0)));
        for (remote, length) in [
            (at(97), 4000),
            (at(4097), 0),
            (at(1_u64.wrapping_neg()), 1),
            (at(0), usize::MAX),
            (
                Remote {
                    address: 0,
                    ..at(0)
                },
                1,
            ),
        ] {
            let refused = find(remote, length);
            assert!(
                matches!(refused, Err(AccessError::Bounds { .. })),
                "{refused:?}"
            );
        }
        let stranger = Remote {
            key: region.key ^ 1,
            ..at(0)
        };
        assert_eq!(find(stranger, 1), Err(AccessError::Key(stranger.key)));
        let read = regions.find(at(0), 1, Access::RemoteRead);
        assert_eq!(read.map(drop), Err(AccessError::Rights(region.key)));
        regions.remove(region.id);
        let late = regions.find(at(0), 1, Access::RemoteWrite);
        assert_eq!(late.map(drop), Err(AccessError::Key(region.key)));
        assert_eq!(
            regions.add(Arc::clone(&memory), Access::Local).id,
            region.id
        );
    }

    /// Every place and length near the ends of small memories, of the address space and of the
    /// longest lengths, compared with arithmetic that cannot overflow.
    #[test]
    fn a_span_lies_within_its_memory_for_any_request() {
        const NEAR: u64 = 20;
        let ends = || (0..NEAR).chain(u64::MAX - NEAR..=u64::MAX);
        let lengths = || ends().map(|length| usize::try_from(length).unwrap());
        for (start, bytes) in ends().flat_map(|start| (0..8).map(move |bytes| (start, bytes))) {
            let end = u128::from(start) + bytes as u128;
            if end > u128::from(u64::MAX) {
                continue;
            }
            for (address, length) in
                ends().flat_map(|address| lengths().map(move |length| (address, length)))
            {
                let is_within = address >= start && u128::from(address) + length as u128 <= end;
                let expected = is_within.then(|| {
                    let offset = usize::try_from(address - start).unwrap();
                    Span::new(offset, length)
                });
                let found = span_within((start, bytes), address, length);
                assert_eq!(
                    found, expected,
                    "{length} at {address} of {bytes} at {start}"
                );
            }
        }
    }

    /// Every key, right and use of several regions.
    #[test]
    fn a_key_opens_its_own_region_for_its_own_use_only() {
        const ALL: [Access; 4] = [
            Access::Local,
            Access::Sink,
            Access::RemoteWrite,
            Access::RemoteRead,
        ];
        let mut regions = Regions::default();
        let memories: Vec<_> = ALL
            .into_iter()
            .chain(ALL)
            .map(|access| {
                let memory = buffer();
                let region = regions.add(Arc::clone(&memory), access);
                (memory, access, region)
            })
            .collect();
        for (address, key, wanted) in memories.iter().flat_map(|(memory, ..)| {
            let keys = memories.iter().map(|(.., region)| region.key);
            keys.flat_map(|key| ALL.map(|wanted| (memory.address(), key, wanted)))
        }) {
            let found = regions.find(Remote { address, key }, 4096, wanted);
            let owner = memories.iter().find(|(.., region)| region.key == key);
            let (memory, access, _) = owner.unwrap();
            let may = *access == wanted && memory.address() == address;
            assert_eq!(found.is_ok(), may, "{found:?}");
            if let Ok((found, span)) = found {
                assert!(Arc::ptr_eq(&found.memory, memory));
                assert_eq!(span, Span::new(0, 4096));
            }
        }
    }
}
