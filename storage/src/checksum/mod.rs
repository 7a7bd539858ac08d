//! Checksums of files and of parts of files, as `CKSM` and `SCKS` name them.
//!
//! Libraries implement the algorithms. This module has their names and the format of their values, combines the values
//! of parts of a file ([`PartialChecksum`]), reads files ([`Checksums`]), and remembers values for as long as they are
//! valid ([`ChecksumMemory`]).
//!
//! ```text
//! service ──> memory ──> known_files      remembered values, and the files being received
//!    │           └─────> attribute ──> seal     values stored with files
//!    └──────> compute ──> parallel, reader      values computed from the content
//! writing, relabel                        keep the memory right while this process changes files
//! ```

mod algorithm;
mod attribute;
mod compute;
mod hash;
mod known_files;
mod md5;
mod memory;
#[cfg(test)]
mod model;
mod parallel;
mod partial;
mod pieces;
mod reader;
mod relabel;
mod seal;
mod service;
#[cfg(test)]
mod site;
mod threads;
mod version;
mod writing;

pub use algorithm::{ChecksumAlgorithm, UnknownChecksumAlgorithm};
pub use memory::ChecksumMemory;
pub use partial::PartialChecksum;
pub use pieces::ChecksumPieces;
pub use reader::ChecksumWatch;
pub use seal::{ChecksumKey, ShortKey};
pub use service::{ChecksumSource, Checksums, FoundChecksum};
pub use writing::Writing;

use std::fmt;

use self::hash::Hash;

/// The computation of a checksum, fed piece by piece from the start.
pub struct Checksum {
    algorithm: ChecksumAlgorithm,
    state: State,
}

enum State {
    Partial(PartialChecksum),
    Hash(Hash),
}

impl Checksum {
    /// Starts with no bytes.
    pub fn new(algorithm: ChecksumAlgorithm) -> Self {
        use ChecksumAlgorithm as A;
        let partial = |kind| State::Partial(PartialChecksum::of_kind(kind));
        let state = match algorithm {
            A::Adler32 => partial(partial::Kind::Adler32),
            A::Crc32 => partial(partial::Kind::Crc32),
            A::Crc32c => partial(partial::Kind::Crc32c),
            A::Md5 => State::Hash(Hash::md5()),
            A::Sha1 => State::Hash(Hash::sha1()),
            A::Sha256 => State::Hash(Hash::sha256()),
            A::Sha512 => State::Hash(Hash::sha512()),
        };
        Self { algorithm, state }
    }

    /// Takes the next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        match &mut self.state {
            State::Partial(state) => state.update(bytes),
            State::Hash(state) => state.update(bytes),
        }
    }

    /// The checksum of all bytes taken, in lower-case hexadecimal with all leading zeros.
    pub fn finish(self) -> String {
        match self.state {
            State::Partial(state) => state.finish(),
            State::Hash(state) => state.finish(),
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

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// The checksum of bytes in memory: the reference for all other computations.
    pub(crate) fn whole(algorithm: ChecksumAlgorithm, bytes: &[u8]) -> String {
        let mut checksum = Checksum::new(algorithm);
        checksum.update(bytes);
        checksum.finish()
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
}
