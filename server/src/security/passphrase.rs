//! The passphrase of an encrypted host key: from a file, or asked for at the terminal when the server starts.

use std::io::{self, IsTerminal as _, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use gridhaul_security::files::OpenFiles;
use gridhaul_security::key::KeyError;
use zeroize::Zeroizing;

/// The maximum length of a passphrase in bytes.
const MAX_BYTES: usize = 4096;

/// The permission bits of accounts that are neither the owner nor in the group. systemd gives the group of a credential's file
/// to one account.
const OTHERS: u32 = 0o007;

/// Where passphrases come from. A typed one is kept, because a renewed key usually has the same; one in a file is read again when
/// it is needed.
#[derive(Default)]
pub(crate) struct Passphrase {
    file: Option<PathBuf>,
    typed: Mutex<Option<Zeroizing<Vec<u8>>>>,
}

impl std::fmt::Debug for Passphrase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Passphrase").finish_non_exhaustive()
    }
}

impl Passphrase {
    /// In a file if there is one; otherwise that which was typed for `previous`, or may be typed.
    pub(crate) fn new(file: Option<&Path>, previous: Option<&Self>) -> Self {
        let typed = previous.and_then(|previous| previous.typed().clone());
        Self {
            file: file.map(Path::to_owned),
            typed: Mutex::new(typed),
        }
    }

    /// The passphrase for the key in this file. A terminal is used only if `may_ask`: later it may belong to other programs.
    ///
    /// # Errors
    ///
    /// The reason why there is none.
    pub(crate) fn of(
        &self,
        key: &Path,
        opener: &dyn OpenFiles,
        may_ask: bool,
    ) -> Result<Zeroizing<Vec<u8>>, KeyError> {
        if let Some(file) = &self.file {
            return read(file, opener).map_err(|error| {
                KeyError::NoPassphrase(format!("key-passphrase: {}: {error}", file.display()))
            });
        }
        if let Some(typed) = &*self.typed() {
            return Ok(typed.clone());
        }
        let typed = match may_ask {
            true => ask(key)?,
            false => {
                return Err(KeyError::NoPassphrase(
                    "its passphrase is asked for only when the server starts: restart it, or set key-passphrase"
                        .to_owned(),
                ));
            }
        };
        *self.typed() = Some(typed.clone());
        Ok(typed)
    }

    /// The key does not need a passphrase any more.
    pub(crate) fn forget(&self) {
        *self.typed() = None;
    }

    fn typed(&self) -> std::sync::MutexGuard<'_, Option<Zeroizing<Vec<u8>>>> {
        // Every change is complete, so a panic elsewhere leaves no partial state.
        self.typed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Asks at the terminal, without echo. A process in the background would be stopped there, so it is not asked.
fn ask(key: &Path) -> Result<Zeroizing<Vec<u8>>, KeyError> {
    let stdin = io::stdin();
    let is_in_foreground =
        rustix::termios::tcgetpgrp(&stdin).is_ok_and(|group| group == rustix::process::getpgrp());
    if !stdin.is_terminal() || !is_in_foreground {
        return Err(KeyError::NoPassphrase(
            "there is no terminal to ask for its passphrase: set key-passphrase, or use a key without one".to_owned(),
        ));
    }
    let prompt = format!("Passphrase of {}: ", key.display());
    let typed = rpassword::prompt_password(prompt);
    let typed = typed.map_err(|error| KeyError::NoPassphrase(error.to_string()))?;
    Ok(Zeroizing::new(typed.into_bytes()))
}

/// The first line of a file.
fn read(path: &Path, opener: &dyn OpenFiles) -> io::Result<Zeroizing<Vec<u8>>> {
    let mut file = opener.open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::other("it is no file"));
    }
    if metadata.mode() & OTHERS != 0 {
        return Err(io::Error::other("it may be read by others: chmod 0600 it"));
    }
    // Of full size: a buffer that grows leaves copies.
    let mut content = Zeroizing::new(vec![0; MAX_BYTES + 1]);
    let mut length = 0;
    while length < content.len() {
        match file.read(&mut content[length..])? {
            0 => break,
            bytes => length += bytes,
        }
    }
    if length > MAX_BYTES {
        return Err(io::Error::other(format!(
            "it is longer than {MAX_BYTES} bytes"
        )));
    }
    let line = content[..length].split(|&byte| byte == b'\n').next();
    let line = line.unwrap_or_default();
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    Ok(Zeroizing::new(line.to_vec()))
}
