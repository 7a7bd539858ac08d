//! `gridhaul proxy show`.

use std::io;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use gridhaul_security::credential::Credential;
use gridhaul_security::files::{FileError, read_credential};
use gridhaul_security::proxy::{ProxyFamily, ProxyInfo, ProxyPolicy};
use serde::Serialize;

use super::arguments::ProxyShowArguments;
use super::{span, utc};
use crate::login::Environment;
use crate::program::output::{print, shown, shown_json};

/// Why a proxy cannot be shown or used.
#[derive(Debug, thiserror::Error)]
pub(super) enum ShowError {
    #[error("{}: there is no proxy: make one with 'gridhaul proxy create'", .0.display())]
    Missing(PathBuf),
    #[error(transparent)]
    File(#[from] FileError),
    #[error("{}: it has expired: make a new one with 'gridhaul proxy create'", .0.display())]
    Expired(PathBuf),
    #[error("{}: it is valid for {left} only", path.display())]
    TooShort { path: PathBuf, left: String },
    #[error("standard output: {0}")]
    Output(io::Error),
}

/// What a proxy file has.
#[derive(Debug, Serialize)]
struct Proxy {
    subject: String,
    issuer: String,
    /// Who the user is for servers.
    identity: String,
    #[serde(rename = "type")]
    kind: &'static str,
    key: String,
    path: String,
    /// In UTC.
    expires: String,
    seconds_left: u64,
}

pub(super) fn run(arguments: &ProxyShowArguments) -> Result<(), ShowError> {
    let given = arguments.file.clone();
    let path = given.unwrap_or_else(|| Environment::of_process().proxy());
    let credential = match read_credential(&path, &path) {
        Err(FileError::Io { error, .. }) if error.kind() == io::ErrorKind::NotFound => {
            return Err(ShowError::Missing(path));
        }
        read => read?,
    };
    let left = credential.expires().duration_since(SystemTime::now());
    let left = left.unwrap_or_default();
    let proxy = Proxy::of(&credential, path.display().to_string(), left);
    let printed = match arguments.json {
        // Strings and numbers always have a form in JSON.
        true => print(shown_json(&serde_json::json!(proxy).to_string())),
        false => print(proxy.text(left).trim_end()),
    };
    printed.map_err(ShowError::Output)?;
    if left.is_zero() {
        return Err(ShowError::Expired(path));
    }
    match left < Duration::from_secs(u64::from(arguments.hours) * 3600) {
        true => Err(ShowError::TooShort {
            path,
            left: span(left),
        }),
        false => Ok(()),
    }
}

impl Proxy {
    fn of(credential: &Credential, path: String, left: Duration) -> Self {
        let leaf = credential.leaf();
        Self {
            subject: leaf.subject().one_line().to_owned(),
            issuer: leaf.issuer().one_line().to_owned(),
            identity: credential.identity().one_line().to_owned(),
            kind: kind(leaf.proxy()),
            key: leaf.key_description(),
            path,
            expires: utc(credential.expires()),
            seconds_left: left.as_secs(),
        }
    }

    fn text(&self, left: Duration) -> String {
        let left = match left.is_zero() {
            true => "expired".to_owned(),
            false => format!("{} left", span(left)),
        };
        let lines = [
            ("subject", self.subject.clone()),
            ("issuer", self.issuer.clone()),
            ("identity", self.identity.clone()),
            ("type", self.kind.to_owned()),
            ("key", self.key.clone()),
            ("until", format!("{} ({left})", self.expires)),
            ("path", self.path.clone()),
        ];
        let lines = lines.iter();
        lines
            .map(|(name, value)| format!("{name:<10} {}\n", shown(value.as_bytes())))
            .collect()
    }
}

fn kind(proxy: Option<&ProxyInfo>) -> &'static str {
    use ProxyFamily::{Gsi3, Rfc3820};
    use ProxyPolicy::{Independent, InheritAll, Limited, Other};

    match proxy.map(|proxy| (proxy.family, &proxy.policy)) {
        None => "certificate, no proxy",
        Some((Rfc3820, InheritAll)) => "RFC 3820 proxy",
        Some((Rfc3820, Limited)) => "RFC 3820 limited proxy",
        Some((Rfc3820, Independent)) => "RFC 3820 independent proxy",
        Some((Rfc3820, Other)) => "RFC 3820 proxy with a policy that is not known",
        Some((Gsi3, InheritAll)) => "GSI-3 proxy",
        Some((Gsi3, Limited)) => "GSI-3 limited proxy",
        Some((Gsi3, Independent)) => "GSI-3 independent proxy",
        Some((Gsi3, Other)) => "GSI-3 proxy with a policy that is not known",
    }
}
