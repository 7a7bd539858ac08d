//! Checksums of files and of parts of files, as `CKSM` and `SCKS` name them.
//!
//! The algorithms are other people's; this module knows their names and how their values are written.

use std::fmt;
use std::str::FromStr;

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

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::fs::File;
    use std::io::Write as _;

    use proptest::prelude::*;

    use super::*;

    fn whole(algorithm: ChecksumAlgorithm, bytes: &[u8]) -> String {
        let mut checksum = Checksum::new(algorithm);
        checksum.update(bytes);
        checksum.finish()
    }

    fn file(bytes: &[u8]) -> OpenedFile {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        OpenedFile::new(file.into(), bytes.len() as u64)
    }

    #[test]
    fn known_values() {
        use ChecksumAlgorithm as A;
        // RFC 1321 A.5, FIPS 180-2 (B.1, C.1), and the check values of the CRC catalogue.
        let sha512_of_abc = "ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a\
                             2192992a274fc1a836ba3c23a3feebbd454d4423643ce80e2a9ac94fa54ca49f";
        let sha512_of_nothing = "cf83e1357eefb8bdf1542850d66d8007d620e4050b5715dc83f4a921d36ce9ce\
                                 47d0d13c5d85f2b0ff8318d2877eec2f63b931bd47417a81a538327af927da3e";
        let sha256_of_abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        let sha256_of_nothing = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        for (algorithm, bytes, expected) in [
            (A::Adler32, "", "00000001"),
            (A::Adler32, "Wikipedia", "11e60398"),
            (A::Crc32, "", "00000000"),
            (A::Crc32, "123456789", "cbf43926"),
            (A::Crc32c, "", "00000000"),
            (A::Crc32c, "123456789", "e3069283"),
            (A::Md5, "", "d41d8cd98f00b204e9800998ecf8427e"),
            (A::Md5, "message digest", "f96b697d7cb7938d525a2f31aaf161d0"),
            (A::Sha1, "", "da39a3ee5e6b4b0d3255bfef95601890afd80709"),
            (A::Sha1, "abc", "a9993e364706816aba3e25717850c26c9cd0d89d"),
            (A::Sha256, "", sha256_of_nothing),
            (A::Sha256, "abc", sha256_of_abc),
            (A::Sha512, "", sha512_of_nothing),
            (A::Sha512, "abc", sha512_of_abc),
        ] {
            assert_eq!(
                whole(algorithm, bytes.as_bytes()),
                expected,
                "{algorithm} {bytes:?}"
            );
        }
    }

    #[test]
    fn names_go_both_ways_without_case() {
        for algorithm in ChecksumAlgorithm::ALL {
            assert_eq!(algorithm.name().parse(), Ok(algorithm));
            assert_eq!(algorithm.name().to_lowercase().parse(), Ok(algorithm));
        }
        let unknown = "SHA384".parse::<ChecksumAlgorithm>().unwrap_err();
        assert_eq!(
            unknown.to_string(),
            "unknown checksum algorithm \"SHA384\"; there are ADLER32, CRC32, CRC32C, MD5, SHA1, \
             SHA256, SHA512"
        );
    }

    #[test]
    fn large_files_are_read_piece_by_piece() {
        let bytes: Vec<u8> = (0..251).cycle().take(3 * READ_SIZE + 7).collect();
        let file = file(&bytes);
        for algorithm in ChecksumAlgorithm::ALL {
            let sum = checksum(&file, algorithm, 0, None, &|| false).unwrap();
            assert_eq!(sum, whole(algorithm, &bytes));
            let piece = checksum(&file, algorithm, 5, Some(2 * READ_SIZE as u64 + 1), &|| {
                false
            });
            assert_eq!(
                piece.unwrap(),
                whole(algorithm, &bytes[5..2 * READ_SIZE + 6])
            );
        }
        let asked = Cell::new(0);
        let at_third = || {
            asked.set(asked.get() + 1);
            asked.get() == 3
        };
        let error = checksum(&file, ChecksumAlgorithm::Md5, 0, None, &at_third).unwrap_err();
        assert_eq!((error.call, error.errno), ("read", Errno::CANCELED));
        assert_eq!(asked.get(), 3);
    }

    #[test]
    fn read_errors_are_reported() {
        let directory = File::open("/").unwrap();
        let file = OpenedFile::new(directory.into(), 4096);
        let error = checksum(&file, ChecksumAlgorithm::Adler32, 0, None, &|| false).unwrap_err();
        assert_eq!(error.to_string(), "System error in read: Is a directory");
    }

    proptest! {
        #[test]
        fn ranges_are_slices(
            bytes in prop::collection::vec(any::<u8>(), 0..300),
            offset in prop_oneof![0..400_u64, (u64::MAX - 400)..=u64::MAX, i64::MAX as u64 - 9..],
            length in prop::option::of(prop_oneof![0..400_u64, (u64::MAX - 9)..=u64::MAX]),
        ) {
            let start = usize::try_from(offset).unwrap().min(bytes.len());
            let rest = &bytes[start..];
            let length_here = length.map_or(rest.len(), |length| {
                usize::try_from(length).unwrap().min(rest.len())
            });
            let file = file(&bytes);
            for algorithm in ChecksumAlgorithm::ALL {
                let sum = checksum(&file, algorithm, offset, length, &|| false).unwrap();
                prop_assert_eq!(sum, whole(algorithm, &rest[..length_here]));
            }
        }
    }
}
