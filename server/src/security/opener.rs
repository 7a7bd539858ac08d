//! Opens files that the server may not be allowed to open any more.
//!
//! At most sites only root can read the host key, and only its owner the password file. The monitor, which keeps root's
//! right to read, opens the files that were configured at the start, and the server checks and reads them as if it had
//! opened them itself. It also opens logs again after a rotation, for appending.

use std::fs::{self, File, Metadata};
use std::io;
use std::path::Path;
use std::sync::Arc;

use gridhaul_accounts::{Monitor, OpenError};
use gridhaul_security::files::{OpenFiles, open_file};

use crate::telemetry::{OpenLogs, OwnRights};

/// Opens files and logs with the server's own rights, or through the monitor, if there is one.
#[derive(Debug, Clone, Default)]
pub(crate) struct Opener(Option<Arc<Monitor>>);

impl Opener {
    pub(crate) fn new(monitor: Option<Arc<Monitor>>) -> Self {
        Self(monitor)
    }

    /// The monitor, if there is one.
    pub(super) fn monitor(&self) -> Option<Arc<Monitor>> {
        self.0.clone()
    }
}

impl OpenLogs for Opener {
    /// The monitor first: this process follows any link of another account. Where the monitor opens nothing because the account
    /// of the server can replace the log anyway, the log is opened with the rights of that account.
    fn append(&self, log: &Path) -> io::Result<File> {
        let Some(monitor) = &self.0 else {
            return OwnRights.append(log);
        };
        let place = monitor.place_of_log(log).ok_or(OpenError::Unlisted);
        let refused = match place.and_then(|place| monitor.append(place)) {
            Ok(file) => return Ok(file),
            Err(error @ OpenError::Planted) => return Err(io::Error::other(error)),
            Err(error) => error,
        };
        match OwnRights.append(log) {
            Err(denied) if denied.kind() == io::ErrorKind::PermissionDenied => Err(
                io::Error::other(format!("{denied}; the monitor does not open it: {refused}")),
            ),
            opened => opened,
        }
    }
}

impl OpenFiles for Opener {
    fn open(&self, path: &Path) -> io::Result<File> {
        let denied = match open_file(path) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => error,
            opened => return opened,
        };
        let Some(monitor) = &self.0 else {
            return Err(denied);
        };
        let place = monitor.place(path).ok_or(OpenError::Unlisted);
        place
            .and_then(|place| monitor.open(place))
            .map_err(|error| {
                io::Error::other(format!("{denied}; the monitor does not open it: {error}"))
            })
    }

    /// The server may not be allowed to search the file's directory.
    fn metadata(&self, path: &Path) -> io::Result<Metadata> {
        match fs::metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                self.open(path)?.metadata()
            }
            found => found,
        }
    }
}
