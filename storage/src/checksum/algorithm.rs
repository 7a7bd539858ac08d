//! The algorithms and their names in FTP commands.

use std::fmt;
use std::str::FromStr;

/// A checksum algorithm that clients can request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ChecksumAlgorithm {
    /// Adler-32 (RFC 1950), the usual algorithm in grids.
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

    /// The name in `FEAT` and `CKSM`.
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

/// An unknown name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown checksum algorithm {name:?}; there are {}", known_names())]
pub struct UnknownChecksumAlgorithm {
    /// The requested name.
    pub name: String,
}

fn known_names() -> String {
    ChecksumAlgorithm::ALL
        .map(ChecksumAlgorithm::name)
        .join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
