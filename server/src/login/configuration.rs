//! Opens the configuration file and the logs in the serving process, whose account may not be allowed to open them.

use std::fs::{self, File, Metadata};
use std::io;
use std::path::Path;
use std::sync::Arc;

use gridhaul_security::files::OpenFiles;

use super::LoginClient;
use crate::telemetry::{OpenLogs, OwnRights};

/// Opens the configuration file with the rights of this process, or through the login process if they do not suffice. The
/// login process opens the file that the server was started with, and no other.
#[derive(Debug)]
pub(crate) struct ConfigurationFile(Arc<LoginClient>);

impl ConfigurationFile {
    pub(crate) fn new(client: Arc<LoginClient>) -> Self {
        Self(client)
    }

    /// Makes the login process open its logs again, with the running configuration.
    ///
    /// # Errors
    ///
    /// The reason: then the old ones stay in use.
    pub(crate) fn reopen_logs(&self) -> Result<(), String> {
        self.0.reopen_logs()
    }
}

impl OpenFiles for ConfigurationFile {
    fn open(&self, path: &Path) -> io::Result<File> {
        match File::open(path) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                self.0.open_configuration().map_err(io::Error::other)
            }
            opened => opened,
        }
    }

    fn metadata(&self, path: &Path) -> io::Result<Metadata> {
        match fs::metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                self.open(path)?.metadata()
            }
            found => found,
        }
    }
}

impl OpenLogs for LoginClient {
    fn append(&self, log: &Path) -> io::Result<File> {
        match OwnRights.append(log) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                self.open_log(log).map_err(io::Error::other)
            }
            opened => opened,
        }
    }
}

impl OpenLogs for ConfigurationFile {
    fn append(&self, log: &Path) -> io::Result<File> {
        self.0.append(log)
    }
}
