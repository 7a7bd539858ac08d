//! Checksums of parts of a file, which are combined to that of the whole file.
//!
//! Adler-32 and the CRCs are sums modulo a number or a polynomial, so the value of a concatenation follows from the values
//! of both parts and the length of the second. Parts are therefore computed in any order and on any thread, while their
//! bytes are in the cache. MD5 and the SHA family have no such rule.

use std::fmt;

use crc_fast::{CrcAlgorithm, Digest};
use simd_adler32::Adler32;

use super::ChecksumAlgorithm;

/// The checksum of a part of a file, fed piece by piece from the start of the part.
#[derive(Clone)]
pub struct PartialChecksum {
    length: u64,
    sum: Sum,
}

#[derive(Clone)]
enum Sum {
    Adler32(Adler32),
    Crc(Polynomial, Box<Digest>),
}

/// The algorithms whose values can be combined.
#[derive(Debug, Clone, Copy)]
pub(super) enum Kind {
    Adler32,
    Crc32,
    Crc32c,
}

impl PartialChecksum {
    /// Starts with no bytes; `None` for an algorithm whose values cannot be combined.
    pub fn new(algorithm: ChecksumAlgorithm) -> Option<Self> {
        let kind = match algorithm {
            ChecksumAlgorithm::Adler32 => Kind::Adler32,
            ChecksumAlgorithm::Crc32 => Kind::Crc32,
            ChecksumAlgorithm::Crc32c => Kind::Crc32c,
            _ => return None,
        };
        Some(Self::of_kind(kind))
    }

    pub(super) fn of_kind(kind: Kind) -> Self {
        let crc = |polynomial: Polynomial| {
            Sum::Crc(polynomial, Box::new(Digest::new(polynomial.algorithm())))
        };
        let sum = match kind {
            Kind::Adler32 => Sum::Adler32(Adler32::new()),
            Kind::Crc32 => crc(Polynomial::Ethernet),
            Kind::Crc32c => crc(Polynomial::Castagnoli),
        };
        Self { length: 0, sum }
    }

    /// Takes the next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.length += bytes.len() as u64;
        match &mut self.sum {
            Sum::Adler32(sum) => sum.write(bytes),
            Sum::Crc(_, sum) => sum.update(bytes),
        }
    }

    /// Appends the part that follows this one in the file. Both must be of the same algorithm; otherwise this has no
    /// effect.
    pub fn append(&mut self, next: &Self) {
        match (&mut self.sum, &next.sum) {
            (Sum::Adler32(sum), Sum::Adler32(next_sum)) => {
                let both = joined_adler32(sum.finish(), next_sum.finish(), next.length);
                *sum = Adler32::from_checksum(both);
            }
            (Sum::Crc(polynomial, sum), Sum::Crc(_, next_sum)) => {
                let both = polynomial.join(crc_value(sum), crc_value(next_sum), next.length);
                **sum = Digest::new_with_init_state(polynomial.algorithm(), u64::from(!both));
            }
            _ => return,
        }
        self.length += next.length;
    }

    /// Appends zeros, in time logarithmic in their number.
    pub fn append_zeros(&mut self, count: u64) {
        let kind = match &self.sum {
            Sum::Adler32(_) => Kind::Adler32,
            Sum::Crc(Polynomial::Ethernet, _) => Kind::Crc32,
            Sum::Crc(Polynomial::Castagnoli, _) => Kind::Crc32c,
        };
        // Runs of 1, 2, 4 ... zeros: those are appended whose bit is set in the number.
        let mut run = Self::of_kind(kind);
        run.update(&[0]);
        let mut left = count;
        while left > 0 {
            if left & 1 == 1 {
                self.append(&run);
            }
            left >>= 1;
            if left > 0 {
                let same = run.clone();
                run.append(&same);
            }
        }
    }

    /// The number of bytes taken.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// The checksum of all bytes taken, in lower-case hexadecimal with all leading zeros.
    pub fn finish(&self) -> String {
        let value = match &self.sum {
            Sum::Adler32(sum) => sum.finish(),
            Sum::Crc(_, sum) => crc_value(sum),
        };
        format!("{value:08x}")
    }
}

impl fmt::Debug for PartialChecksum {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("PartialChecksum")
            .field("length", &self.length)
            .finish_non_exhaustive()
    }
}

/// The value of a CRC with 32 bits.
fn crc_value(digest: &Digest) -> u32 {
    u32::try_from(digest.finalize() & u64::from(u32::MAX)).expect("masked to 32 bits")
}

/// RFC 1950 8.2: `a` is 1 plus the sum of all bytes, and `b` is the sum of all intermediate values of `a`. In the second
/// part each intermediate `a` is larger by the sum of the first part's bytes.
fn joined_adler32(first: u32, second: u32, second_length: u64) -> u32 {
    const BASE: u64 = 65_521;
    let halves = |value: u32| (u64::from(value & 0xffff), u64::from(value >> 16));
    let ((a1, b1), (a2, b2)) = (halves(first), halves(second));
    let added = (a1 + BASE - 1) % BASE;
    let a = (added + a2) % BASE;
    let b = (b1 + b2 + second_length % BASE * added) % BASE;
    u32::try_from((b << 16) | a).expect("both are below 2^16")
}

/// The generator polynomial of a CRC over GF(2), in reflected bit order.
#[derive(Debug, Clone, Copy)]
enum Polynomial {
    /// Of `CRC32`.
    Ethernet,
    /// Of `CRC32C`.
    Castagnoli,
}

/// `x^(2^n)` for each bit of a length in bits.
type Powers = [u32; 64 + BITS_OF_BYTE];

/// Eight bits are `2^3`.
const BITS_OF_BYTE: usize = 3;

impl Polynomial {
    fn algorithm(self) -> CrcAlgorithm {
        match self {
            Self::Ethernet => CrcAlgorithm::Crc32IsoHdlc,
            Self::Castagnoli => CrcAlgorithm::Crc32Iscsi,
        }
    }

    /// The CRC of a concatenation. The first CRC is multiplied by `x^bits` for the length of the second part; initial and
    /// final inversion cancel out (as in `crc32_combine` of zlib 1.2.12). Takes some hundred steps for any length.
    fn join(self, first: u32, second: u32, second_bytes: u64) -> u32 {
        const ETHERNET: Powers = powers(ETHERNET_BITS);
        const CASTAGNOLI: Powers = powers(CASTAGNOLI_BITS);
        let (bits, powers) = match self {
            Self::Ethernet => (ETHERNET_BITS, &ETHERNET),
            Self::Castagnoli => (CASTAGNOLI_BITS, &CASTAGNOLI),
        };
        let moved = (0..64)
            .filter(|bit| (second_bytes >> bit) & 1 == 1)
            .map(|bit| powers[bit + BITS_OF_BYTE])
            .fold(first, |product, power| multiply(bits, product, power));
        moved ^ second
    }
}

const ETHERNET_BITS: u32 = 0xedb8_8320;
const CASTAGNOLI_BITS: u32 = 0x82f6_3b78;

/// `x`, in the reflected order: the highest bit is `x^0`.
const X: u32 = 1 << 30;

const fn powers(polynomial: u32) -> Powers {
    let mut powers = [X; 64 + BITS_OF_BYTE];
    let mut n = 1;
    while n < powers.len() {
        powers[n] = multiply(polynomial, powers[n - 1], powers[n - 1]);
        n += 1;
    }
    powers
}

/// The product of two polynomials, modulo a third.
const fn multiply(polynomial: u32, a: u32, mut b: u32) -> u32 {
    let mut product = 0;
    let mut bit = 1 << 31;
    while bit != 0 {
        if a & bit != 0 {
            product ^= b;
        }
        b = (b >> 1) ^ ((b & 1) * polynomial);
        bit >>= 1;
    }
    product
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::tests::whole;
    use super::*;

    const COMBINING: [ChecksumAlgorithm; 3] = [
        ChecksumAlgorithm::Adler32,
        ChecksumAlgorithm::Crc32,
        ChecksumAlgorithm::Crc32c,
    ];

    fn part(algorithm: ChecksumAlgorithm, bytes: &[u8]) -> PartialChecksum {
        let mut part = PartialChecksum::new(algorithm).expect("it can be combined");
        part.update(bytes);
        part
    }

    #[test]
    fn hashes_cannot_be_combined() {
        for algorithm in ChecksumAlgorithm::ALL {
            let combines = PartialChecksum::new(algorithm).is_some();
            assert_eq!(combines, COMBINING.contains(&algorithm), "{algorithm}");
        }
    }

    #[test]
    fn long_parts_are_combined() {
        // Long enough for both sums of Adler-32 to wrap many times.
        let bytes = vec![0xff; 3 << 20];
        for algorithm in COMBINING {
            let (first, second) = bytes.split_at(1 << 20);
            let mut both = part(algorithm, first);
            both.append(&part(algorithm, second));
            assert_eq!(both.length(), 3 << 20);
            assert_eq!(both.finish(), whole(algorithm, &bytes));
        }
    }

    proptest! {
        #[test]
        fn parts_make_the_whole(
            first in prop::collection::vec(any::<u8>(), 0..300),
            second in prop::collection::vec(any::<u8>(), 0..300),
            third in prop::collection::vec(any::<u8>(), 0..300),
        ) {
            let all = [first.as_slice(), &second, &third].concat();
            for algorithm in COMBINING {
                let mut tail = part(algorithm, &second);
                tail.append(&part(algorithm, &third));
                let mut joined = part(algorithm, &first);
                joined.append(&tail);
                prop_assert_eq!(joined.finish(), whole(algorithm, &all));
                // A combined value can be continued like any other.
                let mut continued = part(algorithm, &first);
                continued.append(&part(algorithm, &second));
                continued.update(&third);
                prop_assert_eq!(continued.finish(), whole(algorithm, &all));
            }
        }
    }
}
