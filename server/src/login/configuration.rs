//! The configuration file, for the process that talks to clients, which may have lost the right to read it.

use std::fs::{self, File, Metadata};
use std::io;
use std::path::Path;
use std::sync::Arc;

use gridhaul_security::files::OpenFiles;

use super::LoginClient;

/// Opens the configuration file by the rights of this process, and where they do not suffice through the login process.
/// That one opens the file that the server was started with, whatever it is asked for.
#[derive(Debug)]
pub(crate) struct ConfigurationFile(Arc<LoginClient>);

impl ConfigurationFile {
    pub(crate) fn new(client: Arc<LoginClient>) -> Self {
        Self(client)
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
