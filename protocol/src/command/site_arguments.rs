//! The values of arguments of `SITE` commands.

use std::fmt;

use jiff::Timestamp;

use super::arguments::{AlgorithmName, Checksum, Text};
use super::error::{ArgumentFault, CommandError};
use super::grammar::{Argument, Pair, pairs, text, whole_seconds};
use crate::excerpt::Excerpt;
use crate::time::TimeValue;

/// The synonyms for setting buffer sizes. globus-url-copy tries one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BufferVerb {
    /// `RETRBUFSIZE`.
    RetrBufSize,
    /// `RBUFSZ`.
    RBufSz,
    /// `RBUFSIZ`.
    RBufSiz,
    /// `STORBUFSIZE`.
    StorBufSize,
    /// `SBUFSZ`.
    SBufSz,
    /// `SBUFSIZ`.
    SBufSiz,
    /// `BUFSIZE`.
    BufSize,
    /// `SBUF`.
    SBuf,
}

/// The transfers that a buffer size applies to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BufferSide {
    /// Transfers that send files.
    Retrieve,
    /// Transfers that receive files.
    Store,
    /// All.
    Both,
}

impl BufferVerb {
    /// The transfers that it applies to.
    pub fn side(self) -> BufferSide {
        match self {
            Self::RetrBufSize | Self::RBufSz | Self::RBufSiz => BufferSide::Retrieve,
            Self::StorBufSize | Self::SBufSz | Self::SBufSiz => BufferSide::Store,
            Self::BufSize | Self::SBuf => BufferSide::Both,
        }
    }
}

/// Permission bits, including set-user-id, set-group-id and sticky.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileMode(u16);

impl FileMode {
    const BITS: u16 = 0o7777;

    /// A mode, or `None` if it has bits outside of `0o7777`.
    pub fn new(bits: u16) -> Option<Self> {
        (bits <= Self::BITS).then_some(Self(bits))
    }

    /// The bits.
    pub fn bits(self) -> u16 {
        self.0
    }
}

/// An authorization assertion. Never logged.
#[derive(Clone, PartialEq, Eq)]
pub struct Assertion(pub Text);

impl fmt::Debug for Assertion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// The stack that a client requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StackRequest {
    /// `default`: the configured stack.
    Default,
    /// A stack string, to be parsed by [`crate::stack`].
    Drivers(Text),
}

/// The attributes that `SITE STORATTR` sets.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StoreAttributes {
    /// `modify=`: the time of the last change, in whole seconds.
    pub modified: Option<Timestamp>,
    /// `checksum.<algorithm>=`: the checksum that the file must have.
    pub checksum: Option<(AlgorithmName, Checksum)>,
}

impl BufferVerb {
    pub(super) const ALL: [Self; 8] = [
        Self::RetrBufSize,
        Self::RBufSz,
        Self::RBufSiz,
        Self::StorBufSize,
        Self::SBufSz,
        Self::SBufSiz,
        Self::BufSize,
        Self::SBuf,
    ];

    /// Reads `SITE` and a name in capitals.
    pub(super) fn parse(verb: &str) -> Option<Self> {
        let name = verb.strip_prefix("SITE ")?;
        Self::ALL.into_iter().find(|verb| verb.name() == name)
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::RetrBufSize => "RETRBUFSIZE",
            Self::RBufSz => "RBUFSZ",
            Self::RBufSiz => "RBUFSIZ",
            Self::StorBufSize => "STORBUFSIZE",
            Self::SBufSz => "SBUFSZ",
            Self::SBufSiz => "SBUFSIZ",
            Self::BufSize => "BUFSIZE",
            Self::SBuf => "SBUF",
        }
    }
}

impl FileMode {
    /// Reads permission bits, or a complete `st_mode`, as gfal2 sends it: the file type is dropped, as in globus-gridftp-server 13.24.
    /// That server also accepts `999` and `u+x`, and sets wrong bits.
    pub(super) fn parse(word: &[u8]) -> Option<Self> {
        if !word.iter().all(|digit| (b'0'..=b'7').contains(digit)) {
            return None;
        }
        // S_IFMT and the permission bits together have 16 bits (inode(7)).
        let mode = u16::from_str_radix(std::str::from_utf8(word).ok()?, 8).ok()?;
        Self::new(mode & Self::BITS)
    }
}

impl StackRequest {
    pub(super) fn parse(argument: Argument<'_>) -> Result<Self, CommandError> {
        let text = argument.read(text("the stack"))?;
        Ok(if text.as_str().trim().eq_ignore_ascii_case("default") {
            Self::Default
        } else {
            Self::Drivers(text)
        })
    }

    pub(super) fn as_str(&self) -> &str {
        match self {
            Self::Default => "default",
            Self::Drivers(stack) => stack.as_str(),
        }
    }
}

impl StoreAttributes {
    pub(super) fn parse(argument: Argument<'_>) -> Result<Self, CommandError> {
        let mut attributes = Self::default();
        for pair in argument.read(pairs)? {
            attributes.set(&pair).ok_or_else(|| {
                argument.fault(ArgumentFault::Invalid {
                    what: "the attribute",
                    given: Excerpt::new(&[pair.key, b"=", pair.value].concat()),
                    expected: "modify=YYYYMMDDHHMMSS or checksum.algorithm=hexadecimal",
                })
            })?;
        }
        Ok(attributes)
    }

    fn set(&mut self, pair: &Pair<'_>) -> Option<()> {
        let key = std::str::from_utf8(pair.key).ok()?.to_ascii_lowercase();
        if key == "modify" {
            self.modified = Some(whole_seconds(pair.value).ok()?);
        } else {
            let algorithm = AlgorithmName::new(key.strip_prefix("checksum.")?)?;
            self.checksum = Some((algorithm, Checksum::parse(pair.value)?));
        }
        Some(())
    }

    pub(super) fn encode(&self) -> String {
        let mut line = String::new();
        if let Some(modified) = self.modified {
            line.push_str(&format!("modify={};", TimeValue(modified)));
        }
        if let Some((algorithm, checksum)) = &self.checksum {
            let algorithm = algorithm.as_str().to_ascii_lowercase();
            line.push_str(&format!("checksum.{algorithm}={checksum};"));
        }
        line
    }
}
