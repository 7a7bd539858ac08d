//! The values of options: sizes, rates, times, numbers and switches.

use std::time::Duration;

/// A size in bytes: `65536`, `64K`, `16M`, `1G`, `1T`. The units are powers of 1024, also as `64KB` or `64KiB`.
///
/// # Errors
///
/// A reason for [`Options::value`](super::Options::value).
pub fn bytes(text: &str) -> Result<u64, String> {
    let ends = [(3, "ib"), (2, "b")].into_iter().find(|(length, end)| {
        let tail = text
            .len()
            .checked_sub(*length)
            .and_then(|at| text.get(at..));
        tail.is_some_and(|tail| {
            tail.starts_with(|unit: char| "kmgt".contains(unit.to_ascii_lowercase()))
                && tail[1..].eq_ignore_ascii_case(end)
        })
    });
    let text = match ends {
        Some((length, _)) => &text[..text.len() - length + 1],
        None => text,
    };
    scaled(text, 1024).ok_or_else(|| "it is not a number of bytes".to_owned())
}

/// A data rate, in bytes per second. A plain number is in bytes per second. With `k`, `m` or `g` it is in bits per second, in
/// powers of 1000, as circuits are specified: `5g` is 625,000,000 bytes per second.
///
/// # Errors
///
/// A reason for [`Options::value`](super::Options::value).
pub fn rate(text: &str) -> Result<u64, String> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit());
    scaled(text, 1000)
        .map(|rate| if is_plain { rate } else { rate / 8 })
        .filter(|rate| *rate > 0)
        .ok_or_else(|| {
            "it is neither a number of bytes per second nor of bits per second with k, m or g"
                .to_owned()
        })
}

/// A time: `250us`, `20ms`, `30s`, `2m`; a plain number is seconds.
///
/// # Errors
///
/// A reason for [`Options::value`](super::Options::value).
pub fn duration(text: &str) -> Result<Duration, String> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let microseconds = match unit {
        "us" => 1,
        "ms" => 1_000,
        "" | "s" => 1_000_000,
        "m" => 60_000_000,
        _ => return Err("the units of time are us, ms, s and m".to_owned()),
    };
    number
        .parse::<u64>()
        .ok()
        .and_then(|number| number.checked_mul(microseconds))
        .map(Duration::from_micros)
        .ok_or_else(|| "it is not a time".to_owned())
}

/// A switch: `on` or `off`.
///
/// # Errors
///
/// A reason for [`Options::value`](super::Options::value).
pub fn switch(text: &str) -> Result<bool, String> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err("it is neither on nor off".to_owned()),
    }
}

/// A plain number greater than zero.
///
/// # Errors
///
/// A reason for [`Options::value`](super::Options::value).
pub fn positive(text: &str) -> Result<u64, String> {
    number(text)
        .ok()
        .filter(|number| *number > 0)
        .ok_or_else(|| "it is not a number greater than 0".to_owned())
}

/// A plain number.
///
/// # Errors
///
/// A reason for [`Options::value`](super::Options::value).
pub fn number(text: &str) -> Result<u64, String> {
    scaled(text, 0).ok_or_else(|| "it is not a number".to_owned())
}

/// A number with an optional unit, one of the powers of `thousand`; 0 allows no unit.
fn scaled(text: &str, thousand: u64) -> Option<u64> {
    let (number, exponent) = match text.as_bytes().last()? {
        b'k' | b'K' => (&text[..text.len() - 1], 1),
        b'm' | b'M' => (&text[..text.len() - 1], 2),
        b'g' | b'G' => (&text[..text.len() - 1], 3),
        b't' | b'T' => (&text[..text.len() - 1], 4),
        _ => (text, 0),
    };
    // `parse` alone would accept a sign.
    if (exponent > 0 && thousand == 0) || !number.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    number
        .parse::<u64>()
        .ok()?
        .checked_mul(thousand.pow(exponent))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_binary_and_bounded() {
        assert_eq!(bytes("0"), Ok(0));
        assert_eq!(bytes("65536"), Ok(65536));
        assert_eq!(bytes("64K"), Ok(65536));
        assert_eq!(bytes("64k"), Ok(65536));
        assert_eq!(bytes("16M"), Ok(16 << 20));
        assert_eq!(bytes("1g"), Ok(1 << 30));
        assert_eq!(bytes("1T"), Ok(1 << 40));
        for four in ["4G", "4GB", "4gb", "4GiB", "4gib"] {
            assert_eq!(bytes(four), Ok(4 << 30), "{four}");
        }
        for wrong in [
            "",
            "K",
            "-1",
            "+1",
            "1 M",
            "1P",
            "64B",
            "64iB",
            "GB",
            "4GiBB",
            "4Gi",
            "1.5M",
            "99999999999G",
            "99999999T",
            "4\u{e9}B",
            "\u{661}",
        ] {
            assert!(bytes(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn rates_with_a_unit_are_bits() {
        assert_eq!(rate("5g"), Ok(625_000_000));
        assert_eq!(rate("800K"), Ok(100_000));
        assert_eq!(rate("1000000"), Ok(1_000_000));
        for wrong in ["", "0", "0g", "g", "-5g", "5gbit"] {
            assert!(rate(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn times_have_units() {
        assert_eq!(duration("250us"), Ok(Duration::from_micros(250)));
        assert_eq!(duration("20ms"), Ok(Duration::from_millis(20)));
        assert_eq!(duration("30"), Ok(Duration::from_secs(30)));
        assert_eq!(duration("2m"), Ok(Duration::from_secs(120)));
        for wrong in ["", "ms", "1h", "-1s", "1.5s", "999999999999999999m"] {
            assert!(duration(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn plain_numbers_have_no_unit() {
        assert_eq!(number("0"), Ok(0));
        assert_eq!(positive("7"), Ok(7));
        assert!(number("1k").is_err());
        assert!(positive("0").is_err());
        assert_eq!(switch("off"), Ok(false));
        assert!(switch("no").is_err());
    }
}
