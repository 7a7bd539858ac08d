//! The option of the drivers.

use gridhaul_stack::StackError;
use gridhaul_stack::options::{Audience, OptionDoc, OptionKind, Options};

use crate::engine::EngineChoice;
use crate::trial::PIECE_BYTES;

/// The option of the drivers.
pub const OPTION: OptionDoc = OptionDoc {
    name: "direct",
    meaning: "moves files past the page cache: 1 over io_uring where the kernel has it, otherwise as threads; threads with helper threads; auto, the default of rdma, where that pays, as measured; 0, the default of splice, never",
    example: "1",
    kind: OptionKind::Word,
    // Each channel has its own buffers and its own ring or threads, and popular files are read from the disk each time.
    audience: Audience::Administrator("it takes memory, threads and the disk from other users"),
};

/// Which ranges of files go past the page cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DirectUse {
    /// All that can.
    Always(EngineChoice),
    /// Those of a channel and a file system where that pays, as measured ([`crate::Trial`]).
    Measured,
}

impl DirectUse {
    /// Reads the option, whose default is `usual`; `None` means the page cache.
    ///
    /// # Errors
    ///
    /// When the value is none of the option's.
    pub fn parse(options: &Options<'_>, usual: Option<Self>) -> Result<Option<Self>, StackError> {
        let usage = options.value(OPTION.name, |text| match text {
            "0" => Ok(None),
            "1" => Ok(Some(Self::Always(EngineChoice::Best))),
            "threads" => Ok(Some(Self::Always(EngineChoice::Threads))),
            "auto" => Ok(Some(Self::Measured)),
            _ => Err("it is none of 0, 1, threads and auto".to_owned()),
        })?;
        Ok(usage.unwrap_or(usual))
    }

    /// The engine that it needs.
    pub fn engine(self) -> EngineChoice {
        match self {
            Self::Always(engine) => engine,
            Self::Measured => EngineChoice::Best,
        }
    }

    /// How many of the `left` bytes of a range are moved in the same way.
    pub fn piece_bytes(self, left: u64) -> u64 {
        match self {
            // What is left of the range joins the last piece, which would be short otherwise.
            Self::Measured if left >= 2 * PIECE_BYTES => PIECE_BYTES,
            Self::Measured | Self::Always(_) => left,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_cut_for_measurements_only_and_no_piece_is_short() {
        let always = DirectUse::Always(EngineChoice::Best);
        let lengths = [
            1,
            PIECE_BYTES,
            2 * PIECE_BYTES - 1,
            2 * PIECE_BYTES,
            1 << 40,
        ];
        assert_eq!(lengths.map(|left| always.piece_bytes(left)), lengths);
        let measured = lengths.map(|left| DirectUse::Measured.piece_bytes(left));
        let [one, piece, longest, ..] = lengths;
        assert_eq!(measured, [one, piece, longest, PIECE_BYTES, PIECE_BYTES]);
    }
}
