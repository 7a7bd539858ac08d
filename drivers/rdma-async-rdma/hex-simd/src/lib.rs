//! What async-rdma 0.5.0 uses of the crate hex-simd 0.5: the name of a device as hexadecimal digits.
//!
//! The real one needs simd-abstraction 0.5, of which every version was withdrawn from the registry.

use std::mem::MaybeUninit;

/// Which letters are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AsciiCase {
    /// a to f.
    Lower,
    /// A to F.
    Upper,
}

/// Where the digits go.
#[derive(Debug)]
pub struct OutBuf<'a>(&'a mut [MaybeUninit<u8>]);

impl<'a> OutBuf<'a> {
    /// Two bytes for each one that is encoded.
    pub fn from_uninit_mut(bytes: &'a mut [MaybeUninit<u8>]) -> Self {
        Self(bytes)
    }
}

/// Two digits for each byte need more room than there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Error;

/// Writes `source` as digits.
///
/// # Errors
///
/// When there is too little room.
pub fn encode_as_str<'a>(
    source: &[u8],
    destination: OutBuf<'a>,
    case: AsciiCase,
) -> Result<&'a mut str, Error> {
    let digits = match case {
        AsciiCase::Lower => b"0123456789abcdef",
        AsciiCase::Upper => b"0123456789ABCDEF",
    };
    let digits = source
        .iter()
        .flat_map(|byte| [byte >> 4, byte & 15])
        .map(|digit| digits[usize::from(digit)]);
    let room = destination.0.get_mut(..2 * source.len()).ok_or(Error)?;
    room.fill(MaybeUninit::new(b'0'));
    for (place, digit) in room.iter_mut().zip(digits) {
        place.write(digit);
    }
    // SAFETY: every byte of it was written.
    let text = unsafe { room.assume_init_mut() };
    str::from_utf8_mut(text).map_err(|_| Error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_become_digits() {
        let encode = |case| {
            let mut room = [MaybeUninit::uninit(); 6];
            encode_as_str(
                &[0x26, 0xfe, 0x01],
                OutBuf::from_uninit_mut(&mut room),
                case,
            )
            .map(|text| text.to_owned())
        };
        assert_eq!(encode(AsciiCase::Lower).as_deref(), Ok("26fe01"));
        assert_eq!(encode(AsciiCase::Upper).as_deref(), Ok("26FE01"));
        let mut room = [MaybeUninit::uninit(); 1];
        let short = encode_as_str(&[1], OutBuf::from_uninit_mut(&mut room), AsciiCase::Lower);
        assert_eq!(short, Err(Error));
    }
}
