//! Checksums of files and of parts of files, as `CKSM` and `SCKS` name them.
//!
//! The algorithms are other people's; this module knows their names and how their values are written.

use std::fmt;
use std::str::FromStr;

use rustix::fs::Advice;
use rustix::io::Errno;
use simd_adler32::Adler32;

use crate::{OpenedFile, StorageError};

/// Bytes that are read at a time, and so the memory that a checksum needs.
const READ_SIZE: usize = 512 * 1024;

/// A checksum algorithm that clients may ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ChecksumAlgorithm {
    /// Adler-32 (RFC 1950), what grids compare files by.
    Adler32,
    /// The CRC-32 of Ethernet, zip and `cksum -a crc32b`.
    Crc32,
    /// The CRC-32 of iSCSI (Castagnoli).
    Crc32c,
    /// MD5 (RFC 1321).
    Md5,
    /// SHA-1.
    Sha1,
    /// SHA-2 with 256 bits.
    Sha256,
    /// SHA-2 with 512 bits.
    Sha512,
}

impl ChecksumAlgorithm {
    /// All algorithms, in the order of their names.
    pub const ALL: [Self; 7] = [
        Self::Adler32,
        Self::Crc32,
        Self::Crc32c,
        Self::Md5,
        Self::Sha1,
        Self::Sha256,
        Self::Sha512,
    ];

    /// The name as it stands in `FEAT` and `CKSM`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Adler32 => "ADLER32",
            Self::Crc32 => "CRC32",
            Self::Crc32c => "CRC32C",
            Self::Md5 => "MD5",
            Self::Sha1 => "SHA1",
            Self::Sha256 => "SHA256",
            Self::Sha512 => "SHA512",
        }
    }
}

impl fmt::Display for ChecksumAlgorithm {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

impl FromStr for ChecksumAlgorithm {
    type Err = UnknownChecksumAlgorithm;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|algorithm| algorithm.name().eq_ignore_ascii_case(name))
            .ok_or_else(|| UnknownChecksumAlgorithm {
                name: name.to_owned(),
            })
    }
}

/// A name that no algorithm has.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown checksum algorithm {name:?}; there are {}", known_names())]
pub struct UnknownChecksumAlgorithm {
    /// What was asked for.
    pub name: String,
}

fn known_names() -> String {
    ChecksumAlgorithm::ALL
        .map(ChecksumAlgorithm::name)
        .join(", ")
}

/// A checksum in the making, fed piece by piece.
pub struct Checksum {
    algorithm: ChecksumAlgorithm,
    state: State,
}

enum State {
    Adler32(Adler32),
    Crc(Box<crc_fast::Digest>),
    Hash(Box<dyn md5::digest::DynDigest + Send>),
}

impl Checksum {
    /// Starts with nothing read.
    pub fn new(algorithm: ChecksumAlgorithm) -> Self {
        use crc_fast::{CrcAlgorithm, Digest};
        let crc = |algorithm| State::Crc(Box::new(Digest::new(algorithm)));
        let state = match algorithm {
            ChecksumAlgorithm::Adler32 => State::Adler32(Adler32::new()),
            ChecksumAlgorithm::Crc32 => crc(CrcAlgorithm::Crc32IsoHdlc),
            ChecksumAlgorithm::Crc32c => crc(CrcAlgorithm::Crc32Iscsi),
            ChecksumAlgorithm::Md5 => State::Hash(Box::<md5::Md5>::default()),
            ChecksumAlgorithm::Sha1 => State::Hash(Box::<sha1::Sha1>::default()),
            ChecksumAlgorithm::Sha256 => State::Hash(Box::<sha2::Sha256>::default()),
            ChecksumAlgorithm::Sha512 => State::Hash(Box::<sha2::Sha512>::default()),
        };
        Self { algorithm, state }
    }

    /// Takes the next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        match &mut self.state {
            State::Adler32(state) => state.write(bytes),
            State::Crc(state) => state.update(bytes),
            State::Hash(state) => state.update(bytes),
        }
    }

    /// The checksum of all bytes taken, in lower-case hexadecimal with all leading zeros.
    pub fn finish(self) -> String {
        match self.state {
            State::Adler32(state) => format!("{:08x}", state.finish()),
            State::Crc(state) => format!("{:08x}", state.finalize()),
            State::Hash(state) => hexadecimal(&state.finalize()),
        }
    }
}

impl fmt::Debug for Checksum {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Checksum")
            .field("algorithm", &self.algorithm)
            .finish_non_exhaustive()
    }
}

/// The checksum of `length` bytes of `file` from `offset`, in lower-case hexadecimal.
///
/// Without a length, or with one that passes the end, the part goes to the end; a part that starts
/// past the end is empty. Memory is bounded, whatever the length.
///
/// # Errors
///
/// Every read error; `ECANCELED` as soon as `cancelled` says so, which is asked before each read.
pub fn checksum(
    file: &OpenedFile,
    algorithm: ChecksumAlgorithm,
    offset: u64,
    length: Option<u64>,
    cancelled: &dyn Fn() -> bool,
) -> Result<String, StorageError> {
    let mut checksum = Checksum::new(algorithm);
    let mut buffer = vec![0; READ_SIZE];
    let mut offset = offset;
    // No file reaches past what the kernel can count, and a read that would is an error.
    let reachable = i64::MAX.unsigned_abs().saturating_sub(offset);
    let mut remaining = length.unwrap_or(reachable).min(reachable);
    // Only a hint: where it is refused, reading is as correct and a little slower.
    let _ = rustix::fs::fadvise(file, offset, None, Advice::Sequential);
    while remaining > 0 {
        if cancelled() {
            return Err(StorageError::new("read", Errno::CANCELED));
        }
        let wanted = usize::try_from(remaining).map_or(READ_SIZE, |bytes| bytes.min(READ_SIZE));
        let read = match rustix::io::pread(file, &mut buffer[..wanted], offset) {
            Ok(0) => break,
            Ok(read) => read,
            Err(Errno::INTR) => continue,
            Err(errno) => return Err(StorageError::new("read", errno)),
        };
        checksum.update(&buffer[..read]);
        offset += read as u64;
        remaining -= read as u64;
    }
    Ok(checksum.finish())
}

fn hexadecimal(bytes: &[u8]) -> String {
    use fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}
