//! `gridhaul proxy create`.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use gridhaul_security::credential::{Credential, credential_pem};
use gridhaul_security::delegation::{DelegationError, issue};
use gridhaul_security::files::{FileError, open_file, read_encrypted_credential};
use gridhaul_security::key::{KeyError, PrivateKey, RsaBits};
use gridhaul_security::proxy::ProxyPolicy;
use zeroize::Zeroizing;

use super::arguments::{ProxyBits, ProxyCreateArguments};
use super::place::replace;
use super::{span, utc};
use crate::login::{Environment, IdentityError};
use crate::program::output::{print, warn};
use crate::program::place::PlaceError;
use crate::program::secret;

/// Why there is no proxy.
#[derive(Debug, thiserror::Error)]
pub(super) enum CreateError {
    #[error(transparent)]
    Identity(#[from] IdentityError),
    #[error(transparent)]
    File(#[from] FileError),
    #[error("{0}: the certificate has expired, and no proxy can be made from it: renew it")]
    Expired(String),
    #[error("{certificate}: the certificate is valid from {from}, which is in the future")]
    NotYet { certificate: String, from: String },
    #[error(
        "{0}: the proxy would replace the certificate or the key that it is made from: give --out FILE"
    )]
    Itself(String),
    #[error(transparent)]
    Delegation(#[from] DelegationError),
    #[error(transparent)]
    Key(#[from] KeyError),
    #[error(transparent)]
    Place(#[from] PlaceError),
    #[error("the proxy could not be made: {0}")]
    Thread(#[from] tokio::task::JoinError),
    #[error("standard output: {0}")]
    Output(io::Error),
}

pub(super) async fn run(arguments: &ProxyCreateArguments) -> Result<(), CreateError> {
    let arguments = arguments.clone();
    // Typing, and making a key, take long.
    tokio::task::spawn_blocking(move || make(&arguments)).await?
}

fn make(arguments: &ProxyCreateArguments) -> Result<(), CreateError> {
    let environment = Environment::of_process();
    let (certificate, key) = issuer_files(arguments, &environment)?;
    let out = arguments.out.clone();
    let out = out.unwrap_or_else(|| environment.proxy());
    if [&certificate, &key]
        .into_iter()
        .any(|file| is_same(file, &out))
    {
        return Err(CreateError::Itself(out.display().to_string()));
    }
    let passphrase = || passphrase(arguments, &key);
    let issuer = read_encrypted_credential(&certificate, &key, open_file, passphrase)?;
    let now = SystemTime::now();
    check_validity(&issuer, &certificate.display().to_string(), now)?;

    let policy = match arguments.limited {
        true => ProxyPolicy::Limited,
        false => ProxyPolicy::InheritAll,
    };
    let wanted = Duration::from_secs(u64::from(arguments.hours) * 3600);
    let proxy = issue(&issuer, new_key(arguments)?, policy, now, wanted)?;
    let pem = credential_pem(proxy.key(), proxy.chain())?;
    replace(&out, &pem)?;
    say(&proxy, &issuer, &out.display().to_string(), now, wanted)
}

fn issuer_files(
    arguments: &ProxyCreateArguments,
    environment: &Environment,
) -> Result<(PathBuf, PathBuf), IdentityError> {
    let Some(certificate) = &arguments.cert else {
        return environment.issuer();
    };
    let extension = certificate.extension().unwrap_or_default();
    if extension == "p12" || extension == "pfx" {
        return Err(IdentityError::Pkcs12(certificate.display().to_string()));
    }
    let key = arguments.key.as_ref().unwrap_or(certificate);
    Ok((certificate.clone(), key.clone()))
}

/// Whether two paths lead to the same file.
fn is_same(one: &Path, other: &Path) -> bool {
    let (one, other) = (one.canonicalize(), other.canonicalize());
    matches!((one, other), (Ok(one), Ok(other)) if one == other)
}

/// The passphrase of the key: the first line of the file, or what is typed.
fn passphrase(
    arguments: &ProxyCreateArguments,
    key: &Path,
) -> Result<Zeroizing<Vec<u8>>, KeyError> {
    if let Some(file) = &arguments.passphrase_file {
        let read = secret::read(file);
        return read
            .map_err(|error| KeyError::NoPassphrase(format!("{}: {error}", file.display())));
    }
    let typed = secret::ask_here(&format!("Passphrase of {}: ", key.display()));
    let typed = typed.map_err(|error| {
        KeyError::NoPassphrase(format!(
            "the passphrase cannot be read at the terminal: {error}"
        ))
    })?;
    typed.ok_or_else(|| {
        KeyError::NoPassphrase("give --passphrase-file FILE, or use a terminal".to_owned())
    })
}

fn check_validity(issuer: &Credential, file: &str, now: SystemTime) -> Result<(), CreateError> {
    if issuer.expires() <= now {
        return Err(CreateError::Expired(file.to_owned()));
    }
    let from = issuer.leaf().validity().not_before;
    if from > now {
        return Err(CreateError::NotYet {
            certificate: file.to_owned(),
            from: utc(from),
        });
    }
    Ok(())
}

fn new_key(arguments: &ProxyCreateArguments) -> Result<PrivateKey, KeyError> {
    if arguments.ec {
        return PrivateKey::generate_ec();
    }
    PrivateKey::generate_rsa_of(match arguments.bits {
        ProxyBits::Rsa2048 => RsaBits::Rsa2048,
        ProxyBits::Rsa3072 => RsaBits::Rsa3072,
        ProxyBits::Rsa4096 => RsaBits::Rsa4096,
    })
}

fn say(
    proxy: &Credential,
    issuer: &Credential,
    out: &str,
    now: SystemTime,
    wanted: Duration,
) -> Result<(), CreateError> {
    let expires = proxy.expires();
    let left = expires.duration_since(now).unwrap_or_default();
    if issuer.expires() <= expires && now + wanted > expires {
        warn(format_args!(
            "the certificate is valid for {} only, and so is the proxy",
            span(left)
        ));
    }
    let identity = proxy.identity().one_line();
    // Rounds up what the fraction of a second takes.
    let left = span(left + Duration::from_secs(1));
    let until = utc(expires);
    print(format_args!(
        "{out}: {identity}, until {until} ({left} left)"
    ))
    .map_err(CreateError::Output)
}
