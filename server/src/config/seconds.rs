//! Times in settings.

use std::fmt;
use std::str::FromStr;

use super::texts::deserialize_as_number_or_text;
use super::values::ValueError;

/// A time in whole seconds: `600`, `30s`, `10m`, `2h`, `1d`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Seconds(pub u64);

impl FromStr for Seconds {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parse = || {
            let digits = text.bytes().take_while(u8::is_ascii_digit).count();
            let (number, unit) = text.split_at(digits);
            let unit = match unit {
                "" | "s" => 1,
                "m" => 60,
                "h" => 3600,
                "d" => 24 * 3600,
                _ => return None,
            };
            number.parse::<u64>().ok()?.checked_mul(unit).map(Self)
        };
        parse()
            .ok_or_else(|| ValueError::new(text, "a time, like 600 (seconds), 30s, 10m, 2h or 1d"))
    }
}

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}s", self.0)
    }
}

impl From<Seconds> for u64 {
    fn from(seconds: Seconds) -> Self {
        seconds.0
    }
}

deserialize_as_number_or_text!(Seconds);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_number_is_seconds_and_units_are_short() {
        for (text, seconds) in [
            ("0", 0),
            ("600", 600),
            ("30s", 30),
            ("10m", 600),
            ("2h", 7200),
            ("1d", 86_400),
        ] {
            assert_eq!(text.parse(), Ok(Seconds(seconds)), "{text}");
        }
        for text in [
            "",
            "m",
            "-1",
            "+1",
            "1.5h",
            "10 m",
            "10min",
            "1w",
            "99999999999999999d",
        ] {
            let error = text.parse::<Seconds>().expect_err(text).to_string();
            assert!(error.contains("10m"), "{error}");
        }
    }
}
