//! Memory for hashing, reused between computations.

use std::fmt;

use argon2::Block;
use zeroize::Zeroize;

/// The memory of one computation at a time.
///
/// argon2 overwrites every block before it reads it (RFC 9106 3.2), so the next computation cannot read the last one. The
/// memory is wiped so that it does not appear in a core dump or leak through another fault. Allocating it each time left a
/// copy for each thread that ever computed, since malloc does not return memory of threads.
#[derive(Default)]
pub(crate) struct Memory {
    blocks: Vec<Block>,
}

/// Memory that is kept between two computations, in blocks of 1 KiB: enough for the parameters of `gridhaul-server passwd`
/// and of other programs.
const KEPT: usize = 64 * 1024;

/// Without the content.
impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory")
            .field("blocks", &self.blocks.len())
            .finish()
    }
}

impl Memory {
    /// Lends `count` blocks to `compute`, and wipes them afterwards.
    pub(super) fn lend<T>(&mut self, count: usize, work: impl FnOnce(&mut [Block]) -> T) -> T {
        if self.blocks.len() < count {
            self.blocks.resize(count, Block::default());
        }
        let lent = &mut self.blocks[..count];
        let done = work(lent);
        for block in lent {
            block.zeroize();
        }
        if self.blocks.len() > KEPT {
            self.blocks.truncate(KEPT);
            self.blocks.shrink_to_fit();
        }
        done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_wiped_and_used_again() {
        let mut memory = Memory::default();
        let place = memory.lend(100, |blocks| {
            assert_eq!(blocks.len(), 100);
            for block in &mut *blocks {
                block.as_mut().fill(7);
            }
            blocks.as_ptr()
        });
        memory.lend(50, |blocks| {
            assert_eq!(blocks.as_ptr(), place, "the same memory");
            assert_eq!(blocks.len(), 50);
        });
        let words = |block: &Block| block.as_ref().iter().all(|word| *word == 0);
        assert!(memory.blocks.iter().all(words));
    }

    #[test]
    fn what_unusual_parameters_need_is_given_back() {
        let mut memory = Memory::default();
        memory.lend(KEPT + 1, |_| ());
        assert!(memory.blocks.capacity() <= KEPT);
    }
}
