//! Opens the configuration file in the serving process, whose account may not be allowed to open it.

use std::fs::{self, File, Metadata};
use std::io;
use std::path::Path;
use std::sync::Arc;

use gridhaul_security::files::OpenFiles;

use super::LoginClient;

/// Opens the configuration file with the rights of this process, or through the login process if they do not suffice. The
/// login process opens the file that the server was started with, and no other.
#[derive(Debug)]
pub(crate) struct ConfigurationFile(Arc<LoginClient>);

impl ConfigurationFile {
    pub(crate) fn new(client: Arc<LoginClient>) -> Self {
        Self(client)
    }

    /// Makes the login process open the logs of all processes again.
    ///
    /// # Errors
    ///
    /// The reason: then the old one stays in use.
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
