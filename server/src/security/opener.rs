//! Files that the server may have lost the right to open.
//!
//! Sites let only root read their host key, and a password file is its owner's only. The monitor, which
//! keeps root's right to read, opens the files that were configured when the server started, and the server
//! judges and reads them as if it had opened them itself.

use std::fs::{self, File, Metadata};
use std::io;
use std::path::Path;
use std::sync::Arc;

use gridhaul_accounts::{Monitor, OpenError};
use gridhaul_security::files::OpenFiles;

/// Opens files by the server's own rights, and where they do not suffice by those of the monitor, if there
/// is one.
#[derive(Debug, Clone, Default)]
pub(crate) struct Opener(Option<Arc<Monitor>>);

impl Opener {
    pub(crate) fn new(monitor: Option<Arc<Monitor>>) -> Self {
        Self(monitor)
    }
}

impl OpenFiles for Opener {
    fn open(&self, path: &Path) -> io::Result<File> {
        let denied = match File::open(path) {
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

    /// The file may lie where the server does not get to.
    fn metadata(&self, path: &Path) -> io::Result<Metadata> {
        match fs::metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                self.open(path)?.metadata()
            }
            found => found,
        }
    }
}
