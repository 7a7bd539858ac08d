//! The memory that an endpoint has registered, as peers may use it.

use std::sync::Arc;

use crate::memory::{Memory, Span};
use crate::provider::{Access, Region, Remote};
use crate::random::random_bytes;

/// What an endpoint has registered. Another endpoint's keys mean nothing here.
#[derive(Debug, Default)]
pub(super) struct Regions {
    /// Each has its place as its name.
    regions: Vec<Option<Registered>>,
    /// See [`crate::provider::Endpoint::spare`].
    spare: [Span; 2],
}

#[derive(Debug)]
struct Registered {
    memory: Arc<Memory>,
    access: Access,
    key: u32,
}

/// Why a peer may not do what it asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum AccessError {
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
    /// Registers memory under a key that cannot be guessed from another.
    pub(super) fn add(&mut self, memory: &Arc<Memory>, access: Access) -> Region {
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
        self.regions[id] = Some(Registered {
            memory: Arc::clone(memory),
            access,
            key,
        });
        Region {
            id,
            address: memory.address(),
            key,
        }
    }

    /// See [`crate::provider::Endpoint::spare`]; an endpoint has one region that its peer may write to.
    pub(super) fn set_spare(&mut self, parts: [Span; 2]) {
        self.spare = parts;
    }

    /// How many bytes behind this place of memory that the peer writes to are not needed.
    pub(super) fn spare_behind(&self, memory: &Memory, end: usize) -> usize {
        let ends = self
            .spare
            .map(|part| (part.offset, part.offset + part.length));
        let part = ends.iter().find(|(from, to)| (*from..*to).contains(&end));
        part.map_or(0, |(_, to)| (*to).min(memory.length()).saturating_sub(end))
    }

    /// Forgets a region of ours: its key means nothing any more.
    pub(super) fn remove(&mut self, id: usize) {
        self.regions[id] = None;
    }

    /// The memory of a region of ours.
    ///
    /// # Panics
    ///
    /// When nothing was registered under this number.
    pub(super) fn memory(&self, id: usize) -> &Arc<Memory> {
        &self.region(id).memory
    }

    /// The key of a region of ours.
    ///
    /// # Panics
    ///
    /// When nothing was registered under this number.
    pub(super) fn key(&self, id: usize) -> u32 {
        self.region(id).key
    }

    /// Finds what a peer names, if it may be used so.
    // RFC 5040 8.1: key, bounds and rights are checked before a byte is placed.
    pub(super) fn find(
        &self,
        remote: Remote,
        length: usize,
        wanted: Access,
    ) -> Result<(&Arc<Memory>, Span), AccessError> {
        let Remote { address, key } = remote;
        let region = self
            .registered()
            .find(|region| region.key == key)
            .ok_or(AccessError::Key(key))?;
        if region.access != wanted {
            return Err(AccessError::Rights(key));
        }
        let offset = address
            .checked_sub(region.memory.address())
            .and_then(|offset| usize::try_from(offset).ok())
            .filter(|offset| {
                offset
                    .checked_add(length)
                    .is_some_and(|end| end <= region.memory.length())
            })
            .ok_or(AccessError::Bounds {
                key,
                address,
                length,
            })?;
        Ok((&region.memory, Span::new(offset, length)))
    }

    fn region(&self, id: usize) -> &Registered {
        self.regions[id].as_ref().expect("a region of ours")
    }

    fn registered(&self) -> impl Iterator<Item = &Registered> {
        self.regions.iter().flatten()
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;

    use super::*;

    #[test]
    fn a_peer_gets_what_it_may_have_and_no_byte_more() {
        let memory = Arc::new(Memory::new(NonZeroUsize::new(4096).unwrap()).unwrap());
        let mut regions = Regions::default();
        let region = regions.add(&memory, Access::RemoteWrite);
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
        assert_eq!(regions.add(&memory, Access::Local).id, region.id);
    }
}
