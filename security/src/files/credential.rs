//! Credentials in files.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use zeroize::Zeroizing;

use super::FileError;
use super::read::{failed, open_file, read_opened};
use crate::certificate::Certificate;
use crate::credential::{Credential, CredentialError};
use crate::key::{KeyError, PrivateKey};

/// The maximum size of a file.
const MAX_BYTES: u64 = 1 << 20;

/// The permission bits of group and others.
const OTHERS: u32 = 0o077;

/// Reads a certificate chain and its key, which may be in the same file.
///
/// # Errors
///
/// When a file cannot be read or used, or the key's file has permission bits for group or others. globus-gridftp-server
/// refuses such keys as well.
pub fn read_credential(certificates: &Path, key: &Path) -> Result<Credential, FileError> {
    read_credential_with(certificates, key, open_file)
}

/// As [`read_credential`], with another way to open files.
///
/// # Errors
///
/// As for [`read_credential`].
pub fn read_credential_with(
    certificates: &Path,
    key: &Path,
    open: impl Fn(&Path) -> io::Result<File>,
) -> Result<Credential, FileError> {
    read_encrypted_credential(certificates, key, open, || Err(KeyError::Encrypted))
}

/// As [`read_credential_with`]; `passphrase` is called if the key is encrypted.
///
/// # Errors
///
/// As for [`read_credential`], and when there is no passphrase or a wrong one.
pub fn read_encrypted_credential(
    certificates: &Path,
    key: &Path,
    open: impl Fn(&Path) -> io::Result<File>,
    passphrase: impl FnOnce() -> Result<Zeroizing<Vec<u8>>, KeyError>,
) -> Result<Credential, FileError> {
    let read = read_parts(certificates, key, &open, passphrase);
    // Other errors would send the administrator the wrong way: a certificate is open to all users, and is no key.
    read.map_err(|error| match are_swapped(certificates, key, &open) {
        true => FileError::Swapped {
            certificates: certificates.to_owned(),
            key: key.to_owned(),
        },
        false => error,
    })
}

/// As [`read_credential`], for a file with a certificate chain and its key whose key may be given to servers
/// ([`Credential::of_session`]). The file is read once, so that what is checked is what is given.
///
/// # Errors
///
/// As for [`read_credential`].
pub fn read_session_credential(path: &Path) -> Result<Credential, FileError> {
    let pem = read_key(path, open_file(path).map_err(failed(path))?)?;
    Credential::of_session(&pem).map_err(|error| FileError::Credential {
        path: path.to_owned(),
        error,
    })
}

fn read_parts(
    certificates: &Path,
    key: &Path,
    open: impl Fn(&Path) -> io::Result<File>,
    passphrase: impl FnOnce() -> Result<Zeroizing<Vec<u8>>, KeyError>,
) -> Result<Credential, FileError> {
    let wrong = |path: &Path, error| FileError::Credential {
        path: path.to_owned(),
        error,
    };
    let pem = read_key(key, open(key).map_err(failed(key))?)?;
    let private =
        PrivateKey::from_pem_with(&pem, passphrase).map_err(|error| wrong(key, error.into()))?;
    let chain = if certificates == key {
        Certificate::all_from_pem(&pem)
    } else {
        let pem = open(certificates).and_then(|file| read_opened(file, MAX_BYTES));
        let pem = pem.map_err(failed(certificates))?;
        Certificate::all_from_pem(&pem)
    };
    chain
        .map_err(CredentialError::from)
        .and_then(|chain| Credential::new(chain, private))
        .map_err(|error| wrong(certificates, error))
}

/// Whether the one file has only a private key, and the other only certificates. Errors are for those who read the files.
fn are_swapped(certificates: &Path, key: &Path, open: impl Fn(&Path) -> io::Result<File>) -> bool {
    let sections = |path: &Path| Some(Sections::of(&read_whole(open(path).ok()?).ok()?));
    let (Some(first), Some(second)) = (sections(certificates), sections(key)) else {
        return false;
    };
    let has_only_key = first.has_key && !first.has_certificate;
    has_only_key && second.has_certificate && !second.has_key
}

/// What a PEM text has.
struct Sections {
    has_certificate: bool,
    has_key: bool,
}

impl Sections {
    fn of(pem: &[u8]) -> Self {
        let lines = pem.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii_end);
        let labels = lines.filter_map(|line| line.strip_prefix(b"-----BEGIN "));
        let mut found = Self {
            has_certificate: false,
            has_key: false,
        };
        for label in labels {
            found.has_certificate |= label.starts_with(b"CERTIFICATE-----");
            found.has_key |= label.ends_with(b"PRIVATE KEY-----");
        }
        found
    }
}

fn read_key(path: &Path, file: File) -> Result<Zeroizing<Vec<u8>>, FileError> {
    let mode = file.metadata().map_err(failed(path))?.mode() & 0o7777;
    let pem = read_whole(file).map_err(failed(path))?;
    // Another file by mistake, such as a certificate, may be open to all users.
    if mode & OTHERS != 0 && Sections::of(&pem).has_key {
        return Err(FileError::Permissions {
            path: path.to_owned(),
            mode,
        });
    }
    Ok(pem)
}

/// Reads a file that may have a key into a buffer of the full size: growing it would leave copies of the key in freed memory.
fn read_whole(mut file: File) -> io::Result<Zeroizing<Vec<u8>>> {
    let metadata = file.metadata()?;
    let size = metadata.len();
    if !metadata.is_file() || size > MAX_BYTES {
        let words = format!("it is no file of at most {MAX_BYTES} bytes");
        return Err(io::Error::other(words));
    }
    let mut pem = Zeroizing::new(vec![0; usize::try_from(size).unwrap_or(0)]);
    file.read_exact(&mut pem)?;
    Ok(pem)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::test_pki::{FULL, Pki, USER};

    fn set_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, Permissions::from_mode(mode)).expect("our file");
    }

    #[test]
    fn certificate_and_key_may_be_two_files() {
        let pki = Pki::new();
        let host = pki.root("/CN=host");
        set_mode(&host.key_file, 0o400);
        let credential = read_credential(&host.certificate_file, &host.key_file);
        assert_eq!(*credential.expect("sound").leaf(), host.certificate);
    }

    #[test]
    fn swapped_files_are_told_from_open_permissions_and_broken_files() {
        let pki = Pki::new();
        let host = pki.root("/CN=host");
        // As a certificate usually is, and a key must not be.
        set_mode(&host.certificate_file, 0o644);
        set_mode(&host.key_file, 0o600);
        let error = read_credential(&host.key_file, &host.certificate_file);
        let words = error.expect_err("swapped").to_string();
        assert!(words.contains("they are swapped"), "{words}");
        let error = read_credential(&host.certificate_file, &host.certificate_file);
        let words = error.expect_err("no key").to_string();
        assert!(words.contains("there is no private key in it"), "{words}");
    }

    #[test]
    fn a_proxy_is_one_file() {
        let pki = Pki::new();
        let user = pki.issue(&pki.root("/CN=Root"), "/CN=Alice", USER);
        let proxy = pki.proxy(&user, FULL);
        let file = pki.path().join("proxy");
        fs::write(&file, [proxy.pem(), proxy.key_pem(), user.pem()].concat()).expect("written");
        set_mode(&file, 0o600);
        let credential = read_credential(&file, &file).expect("sound");
        assert_eq!(credential.identity(), user.certificate.subject());
    }

    #[test]
    fn a_key_that_others_may_read_is_refused_with_advice() {
        let pki = Pki::new();
        let host = pki.root("/CN=host");
        for mode in [0o604, 0o640, 0o610] {
            set_mode(&host.key_file, mode);
            let error = read_credential(&host.certificate_file, &host.key_file);
            let words = error.expect_err("too open").to_string();
            assert!(words.contains(&format!("{mode:04o}")), "{words}");
            assert!(words.contains("chmod 0600"), "{words}");
        }
    }

    #[test]
    fn each_error_names_its_file() {
        let pki = Pki::new();
        let (host, other) = (pki.root("/CN=host"), pki.root("/CN=other"));
        for key in [&host.key_file, &other.key_file] {
            set_mode(key, 0o600);
        }
        let missing = pki.path().join("missing");
        let empty = pki.path().join("empty");
        fs::write(&empty, "").expect("written");
        set_mode(&empty, 0o600);
        for (certificates, key, named) in [
            (&missing, &host.key_file, &missing),
            (&host.certificate_file, &missing, &missing),
            (&empty, &host.key_file, &empty),
            (&host.certificate_file, &empty, &empty),
            (
                &host.certificate_file,
                &other.key_file,
                &host.certificate_file,
            ),
        ] {
            let error = read_credential(certificates, key).expect_err("refused");
            let words = error.to_string();
            assert!(words.contains(&named.display().to_string()), "{words}");
        }
    }

    #[test]
    fn a_directory_is_refused() {
        let pki = Pki::new();
        set_mode(pki.path(), 0o700);
        assert!(read_credential(pki.path(), pki.path()).is_err());
    }
}
