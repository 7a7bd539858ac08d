//! `tls-versions`: the versions of TLS in GSI sessions.

use std::str::FromStr;

use gridhaul_security::tls::TlsVersions;

use super::texts::deserialize_as_text;
use super::values::ValueError;

/// The setting: `1.2`, `1.3` or `1.2-1.3`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TlsRange(pub TlsVersions);

impl FromStr for TlsRange {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "1.2" => Ok(Self(TlsVersions::Only12)),
            "1.3" => Ok(Self(TlsVersions::Only13)),
            "1.2-1.3" => Ok(Self(TlsVersions::From12To13)),
            _ => Err(ValueError::new(
                text,
                "versions of TLS: 1.2, 1.3 or 1.2-1.3",
            )),
        }
    }
}

deserialize_as_text!(TlsRange);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_setting_has_words_of_its_own() {
        assert_eq!("1.3".parse(), Ok(TlsRange(TlsVersions::Only13)));
        let error = "1.1".parse::<TlsRange>().expect_err("too old").to_string();
        assert_eq!(error, "'1.1' is not versions of TLS: 1.2, 1.3 or 1.2-1.3");
    }
}
