//! The value of the extended attribute that holds a file's checksums: its format and its authentication.
//!
//! Every account that may write to a file may also write its attributes, so a value is accepted only with a message
//! authentication code (HMAC-SHA256) under the server's key. The code also covers the file's inode, size and modification
//! time: a value that is copied to another file, or kept over a change of the content, fails the verification. Servers
//! that share a file system may share the key.

use std::fmt;
use std::time::Duration;

use aws_lc_rs::hmac;

use super::ChecksumAlgorithm;
use super::hash::hexadecimal;
use super::version::{FileId, Time, Version};

/// Checksums of one file, by algorithm.
pub(super) type Sums = Vec<(ChecksumAlgorithm, String)>;

/// The most by which writing a value may move the change time: some ticks of the file system's clock and a round trip to
/// a file server.
const WRITE_TIME: Duration = Duration::from_millis(50);

/// The version of the format, the first byte of a value.
const FORMAT: u8 = 1;

const CODE_BYTES: usize = 32;

/// The minimum length of a key.
const KEY_BYTES: usize = 32;

/// The key that authenticates values.
#[derive(Clone)]
pub struct ChecksumKey(hmac::Key);

/// A key that is too short to be a secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a key of {bytes} bytes is too short: it must have at least {KEY_BYTES}")]
pub struct ShortKey {
    /// Its length.
    pub bytes: usize,
}

impl ChecksumKey {
    /// A key of at least 32 unpredictable bytes.
    ///
    /// # Errors
    ///
    /// When there are fewer.
    pub fn new(secret: &[u8]) -> Result<Self, ShortKey> {
        if secret.len() < KEY_BYTES {
            let bytes = secret.len();
            return Err(ShortKey { bytes });
        }
        Ok(Self(hmac::Key::new(hmac::HMAC_SHA256, secret)))
    }

    /// The value for a file with these checksums. `changed` is the file's change time before the value is written.
    pub(super) fn seal(
        &self,
        file: FileId,
        version: Version,
        changed: Time,
        sums: &[(ChecksumAlgorithm, String)],
    ) -> Vec<u8> {
        let mut value = vec![FORMAT];
        put_time(&mut value, changed);
        for (algorithm, sum) in sums {
            value.push(tag(*algorithm));
            value.extend(bytes(sum));
        }
        let code = hmac::sign(&self.0, &covered(file, version, &value));
        value.extend_from_slice(code.as_ref());
        value
    }

    /// The checksums in a value, if it was made with this key for the present content of this file.
    pub(super) fn open(&self, value: &[u8], file: FileId, version: Version) -> Option<Sums> {
        let end = value.len().checked_sub(CODE_BYTES)?;
        let (body, code) = value.split_at(end);
        hmac::verify(&self.0, &covered(file, version, body), code).ok()?;
        let mut rest = body;
        if take::<1>(&mut rest)? != [FORMAT] {
            return None;
        }
        let changed = take_time(&mut rest)?;
        is_unchanged_since(version, changed).then_some(())?;
        let mut sums = Vec::new();
        while let Some([number]) = take(&mut rest) {
            let algorithm = algorithm(number)?;
            let (sum, others) = rest.split_at_checked(digest_bytes(algorithm))?;
            rest = others;
            sums.push((algorithm, hexadecimal(sum)));
        }
        Some(sums)
    }
}

impl fmt::Debug for ChecksumKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("ChecksumKey")
            .finish_non_exhaustive()
    }
}

/// Whether a file is unchanged since a value was written, when its change time was `changed`.
///
/// Writing the value moves the change time, and no program can set it. So the value cannot contain the change time that
/// results. But if the file's change time is at most [`WRITE_TIME`] later, writing the value was the last change.
pub(super) fn is_unchanged_since(version: Version, changed: Time) -> bool {
    let since = version.changed.since(changed);
    version.modified < changed && since.is_some_and(|since| since <= WRITE_TIME)
}

/// The bytes that the authentication code covers.
fn covered(file: FileId, version: Version, body: &[u8]) -> Vec<u8> {
    // The device number is left out: some file systems get another one each time they are mounted.
    let mut covered = b"gridhaul checksums of a file\0".to_vec();
    covered.extend_from_slice(&file.inode.to_le_bytes());
    covered.extend_from_slice(&version.size.to_le_bytes());
    put_time(&mut covered, version.modified);
    covered.extend_from_slice(body);
    covered
}

fn put_time(bytes: &mut Vec<u8>, time: Time) {
    bytes.extend_from_slice(&time.seconds.to_le_bytes());
    bytes.extend_from_slice(&time.nanoseconds.to_le_bytes());
}

fn take_time(rest: &mut &[u8]) -> Option<Time> {
    Some(Time {
        seconds: i64::from_le_bytes(take(rest)?),
        nanoseconds: u32::from_le_bytes(take(rest)?),
    })
}

fn take<const BYTES: usize>(rest: &mut &[u8]) -> Option<[u8; BYTES]> {
    let (first, others) = rest.split_first_chunk()?;
    *rest = others;
    Some(*first)
}

/// The number of an algorithm in a value. Existing numbers must not change: files have them.
fn tag(algorithm: ChecksumAlgorithm) -> u8 {
    use ChecksumAlgorithm as A;
    match algorithm {
        A::Adler32 => 1,
        A::Crc32 => 2,
        A::Crc32c => 3,
        A::Md5 => 4,
        A::Sha1 => 5,
        A::Sha256 => 6,
        A::Sha512 => 7,
    }
}

fn algorithm(number: u8) -> Option<ChecksumAlgorithm> {
    let mut all = ChecksumAlgorithm::ALL.into_iter();
    all.find(|&algorithm| tag(algorithm) == number)
}

fn digest_bytes(algorithm: ChecksumAlgorithm) -> usize {
    use ChecksumAlgorithm as A;
    match algorithm {
        A::Adler32 | A::Crc32 | A::Crc32c => 4,
        A::Md5 => 16,
        A::Sha1 => 20,
        A::Sha256 => 32,
        A::Sha512 => 64,
    }
}

/// The bytes of a checksum that is written in lower-case hexadecimal.
fn bytes(sum: &str) -> impl Iterator<Item = u8> {
    let digits = sum.as_bytes().chunks_exact(2);
    let digit = |digit: u8| match digit {
        b'0'..=b'9' => digit - b'0',
        b'a'..=b'f' => digit - b'a' + 10,
        _ => 0,
    };
    digits.map(move |pair| digit(pair[0]) << 4 | digit(pair[1]))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::tests::whole;
    use super::*;
    use crate::store::CHECKSUM_ATTRIBUTE_BYTES;

    const FILE: FileId = FileId {
        device: 1,
        inode: 77,
    };

    fn at(milliseconds: i64) -> Time {
        Time {
            seconds: 1_000 + milliseconds / 1000,
            nanoseconds: u32::try_from(milliseconds % 1000).unwrap() * 1_000_000,
        }
    }

    fn version(modified: i64, changed: i64) -> Version {
        Version {
            size: 9,
            modified: at(modified),
            changed: at(changed),
        }
    }

    fn key(byte: u8) -> ChecksumKey {
        ChecksumKey::new(&[byte; 32]).unwrap()
    }

    fn all_sums() -> Sums {
        ChecksumAlgorithm::ALL
            .map(|algorithm| (algorithm, whole(algorithm, b"Wikipedia")))
            .to_vec()
    }

    #[test]
    fn a_value_is_accepted_for_the_same_content_only() {
        let sums = all_sums();
        let value = key(1).seal(FILE, version(0, 2000), at(1990), &sums);
        assert!(value.len() <= CHECKSUM_ATTRIBUTE_BYTES);
        let open = |key: ChecksumKey, file, version| key.open(&value, file, version);
        assert_eq!(open(key(1), FILE, version(0, 2000)), Some(sums));
        assert_eq!(open(key(2), FILE, version(0, 2000)), None);
        let other = FileId { inode: 78, ..FILE };
        assert_eq!(open(key(1), other, version(0, 2000)), None);
        let longer = Version {
            size: 10,
            ..version(0, 2000)
        };
        assert_eq!(open(key(1), FILE, longer), None);
        assert_eq!(open(key(1), FILE, version(1, 2000)), None);
    }

    #[test]
    fn a_later_change_time_invalidates_a_value() {
        for (changed, accepted) in [(1989, false), (1990, true), (2040, true), (2041, false)] {
            let version = version(0, changed);
            let value = key(1).seal(FILE, version, at(1990), &all_sums());
            let opened = key(1).open(&value, FILE, version);
            assert_eq!(opened.is_some(), accepted, "{changed}");
        }
        // A write in the same tick of the clock could have left the same times.
        let version = version(1990, 1990);
        let value = key(1).seal(FILE, version, at(1990), &all_sums());
        assert_eq!(key(1).open(&value, FILE, version), None);
    }

    #[test]
    fn short_keys_are_refused() {
        let error = ChecksumKey::new(&[1; 31]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "a key of 31 bytes is too short: it must have at least 32"
        );
        assert_eq!(format!("{:?}", key(1)), "ChecksumKey { .. }");
    }

    proptest! {
        #[test]
        fn values_without_the_key_are_rejected(
            value in prop::collection::vec(any::<u8>(), 0..300),
        ) {
            prop_assert_eq!(key(1).open(&value, FILE, version(0, 2000)), None);
        }

        #[test]
        fn a_changed_value_is_rejected(
            place in any::<prop::sample::Index>(),
            change in 1..=u8::MAX,
            length in any::<prop::sample::Index>(),
        ) {
            let version = version(0, 2000);
            let mut value = key(1).seal(FILE, version, at(1990), &all_sums());
            let short = &value[..length.index(value.len())];
            prop_assert_eq!(key(1).open(short, FILE, version), None);
            let place = place.index(value.len());
            value[place] ^= change;
            prop_assert_eq!(key(1).open(&value, FILE, version), None);
        }
    }
}
