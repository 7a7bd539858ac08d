//! The versions of TLS that are configured for Globus programs on this machine.

use std::fs;
use std::path::Path;

use gridhaul_security::tls::TlsVersions;

use super::error::ConfigError;

/// The configuration of Globus programs on a machine. Each key may also be an environment variable, with [`PREFIX`] in front.
const GSI_CONF: &str = "/etc/grid-security/gsi.conf";
const PREFIX: &str = "GLOBUS_GSSAPI_";
const LEAST: &str = "MIN_TLS_PROTOCOL";
const MOST: &str = "MAX_TLS_PROTOCOL";

/// The versions in the environment, else in `gsi.conf`, else all.
pub(super) fn of_machine() -> Result<TlsVersions, ConfigError> {
    // Most machines have no such file.
    let file = fs::read_to_string(Path::new(GSI_CONF)).unwrap_or_default();
    configured(&|name| std::env::var(name).ok(), &file)
}

fn configured(
    variable: &dyn Fn(&str) -> Option<String>,
    file: &str,
) -> Result<TlsVersions, ConfigError> {
    let value = |key: &str| {
        let in_file = || {
            let mut lines = file.lines().filter_map(|line| line.split_once('='));
            lines.find_map(|(name, value)| (name.trim() == key).then(|| value.trim().to_owned()))
        };
        variable(&format!("{PREFIX}{key}")).or_else(in_file)
    };
    let minor = |key: &'static str| match value(key) {
        Some(value) => match value.as_str() {
            "" | "0" => Ok(None),
            "TLS1_VERSION_DEPRECATED" => Ok(Some(0)),
            "TLS1_1_VERSION_DEPRECATED" => Ok(Some(1)),
            "TLS1_2_VERSION" => Ok(Some(2)),
            "TLS1_3_VERSION" => Ok(Some(3)),
            _ => Err(ConfigError::TlsProtocol { key, value }),
        },
        None => Ok(None),
    };
    // Versions before TLS 1.2 are never used.
    let least = minor(LEAST)?.unwrap_or(2).max(2);
    match (least, minor(MOST)?.unwrap_or(3)) {
        (2, 3) => Ok(TlsVersions::From12To13),
        (2, 2) => Ok(TlsVersions::Only12),
        (3, 3) => Ok(TlsVersions::Only13),
        _ => Err(ConfigError::NoTlsVersion),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(variables: &[(&str, &str)], file: &str) -> Result<TlsVersions, String> {
        let variable = |name: &str| {
            let (_, value) = variables.iter().find(|(known, _)| *known == name)?;
            Some((*value).to_owned())
        };
        configured(&variable, file).map_err(|error| error.to_string())
    }

    #[test]
    fn the_variable_wins_over_the_file() {
        let file = "# comment\nMIN_TLS_PROTOCOL=TLS1_3_VERSION\nMAX_TLS_PROTOCOL = 0\n";
        assert_eq!(with(&[], ""), Ok(TlsVersions::From12To13));
        assert_eq!(with(&[], file), Ok(TlsVersions::Only13));
        let variable = [("GLOBUS_GSSAPI_MIN_TLS_PROTOCOL", "0")];
        assert_eq!(with(&variable, file), Ok(TlsVersions::From12To13));
        let variable = [("GLOBUS_GSSAPI_MAX_TLS_PROTOCOL", "TLS1_2_VERSION")];
        assert_eq!(with(&variable, ""), Ok(TlsVersions::Only12));
    }

    #[test]
    fn nothing_older_than_tls_1_2_is_spoken() {
        let least = [("GLOBUS_GSSAPI_MIN_TLS_PROTOCOL", "TLS1_VERSION_DEPRECATED")];
        assert_eq!(with(&least, ""), Ok(TlsVersions::From12To13));
        let most = [(
            "GLOBUS_GSSAPI_MAX_TLS_PROTOCOL",
            "TLS1_1_VERSION_DEPRECATED",
        )];
        let error = with(&most, "").expect_err("nothing is left");
        assert!(error.contains("TLS 1.2"), "{error}");
        let wrong = [("GLOBUS_GSSAPI_MAX_TLS_PROTOCOL", "TLS2")];
        let error = with(&wrong, "").expect_err("no version");
        assert!(
            error.contains("MAX_TLS_PROTOCOL") && error.contains("'TLS2'"),
            "{error}"
        );
    }
}
