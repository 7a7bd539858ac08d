//! The certificates and keys of this server, and the secret of administrators: what the server would refuse when it reads them.

use gridhaul_security::credential::{Credential, CredentialError};
use gridhaul_security::files::{FileError, OwnRights, open_file, read_encrypted_credential};
use gridhaul_security::key::KeyError;
use gridhaul_security::tls::HostCertificate;

use super::Validated;
use crate::admin::{AdminError, examine};
use crate::config::{Config, HostFiles};
use crate::security::Passphrase;

/// The server's own certificate, unless one of its files cannot be opened.
pub(super) fn check_host(validated: &mut Validated, config: &Config) {
    let Some(host) = &config.security.host else {
        return;
    };
    if ["cert", "key", "key-passphrase"]
        .iter()
        .any(|key| validated.is_wrong(key))
    {
        return;
    }
    // A passphrase is asked for when the server starts, once.
    let passphrase = Passphrase::new(host.passphrase.as_deref(), None);
    let unlock = || passphrase.of(&host.key, &OwnRights, false);
    let read = read_encrypted_credential(&host.certificates, &host.key, open_file, unlock);
    let error = match read {
        Ok(credential) => return check_between_hosts(validated, config, &credential),
        Err(error) => error,
    };
    let Some((key, remedy)) = remedy(host, &error) else {
        return;
    };
    // With one file for both there may be no `key`.
    let key = match validated.sources.is_given(key) {
        true => key,
        false => "cert",
    };
    validated.error(key, format!("{key}: {error}{remedy}"));
}

/// Data nodes and control servers refuse each other's certificate if it is a proxy.
fn check_between_hosts(validated: &mut Validated, config: &Config, credential: &Credential) {
    if config.node.is_none() && config.nodes.is_empty() {
        return;
    }
    if let Err(error) = HostCertificate::new(credential.chain(), credential.key().signing_key()) {
        validated.error("cert", format!("cert: {error}"));
    }
}

/// The setting that is wrong, and what to do, if the error does not tell. `None` for a passphrase that may be typed.
fn remedy(host: &HostFiles, error: &FileError) -> Option<(&'static str, &'static str)> {
    Some(match error {
        FileError::Credential { error, .. } => match error {
            CredentialError::Key(KeyError::NoPassphrase(_)) if host.passphrase.is_none() => {
                return None;
            }
            CredentialError::Key(KeyError::NoPassphrase(_) | KeyError::WrongPassphrase) => (
                "key-passphrase",
                "; write the passphrase of this key into the file, which is for its owner alone",
            ),
            CredentialError::Key(_) => ("key", "; name the file with the private key with --key"),
            CredentialError::KeyMismatch(_) => {
                ("key", "; name the key of this certificate with --key")
            }
            _ => (
                "cert",
                "; name the file with the server's certificate with --cert",
            ),
        },
        FileError::Swapped { .. } => ("cert", ""),
        FileError::Permissions { .. } => ("key", ""),
        FileError::Io { path, .. } if *path == host.key => ("key", "; name another one with --key"),
        _ => ("cert", "; name another one with --cert"),
    })
}

/// The files about administrators.
pub(super) fn check_administrators(validated: &mut Validated, config: &Config) {
    const KEYS: [&str; 4] = ["admin-token", "admin-cert", "admin-key", "admin-clients"];

    if KEYS.iter().any(|key| validated.is_wrong(key)) {
        return;
    }
    let Err(error) = examine(&config.admin) else {
        return;
    };
    let key = match &error {
        AdminError::Token(_) => "admin-token",
        AdminError::Tls(error) => error.key(),
        AdminError::Socket(_) => "admin-socket",
    };
    validated.error(key, error);
}
