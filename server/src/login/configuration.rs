//! Opens the configuration file in the serving process, whose account may not be allowed to open it.

use std::fs::{self, File, Metadata};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use gridhaul_security::files::{OpenFiles, open_file};

use super::LoginClient;
use super::messages::{Answer, Question};
use super::sockets::{LOST, NoAnswer};

/// The time in which logs are opened again. The monitor has 10 s for each, and most servers have one or two.
const REOPENED: Duration = Duration::from_secs(20);

/// Opens the configuration file with the rights of this process, or through the login process if they do not suffice. The
/// login process opens the file that the server was started with, and no other.
#[derive(Debug)]
pub(crate) struct ConfigurationFile(Arc<LoginClient>);

impl ConfigurationFile {
    pub(crate) fn new(client: Arc<LoginClient>) -> Self {
        Self(client)
    }

    /// Makes the login process open the logs of all processes again. The server does nothing else meanwhile, and does not end
    /// when it is told to. So this has a time limit.
    ///
    /// # Errors
    ///
    /// The reason: then the old one stays in use.
    pub(crate) fn reopen_logs(&self) -> Result<(), String> {
        match self.0.ask_within(Question::ReopenLogs, REOPENED) {
            Ok(Answer::Done) => Ok(()),
            Ok(Answer::Failed(reason)) => Err(reason),
            Err(NoAnswer::Late) => Err(format!(
                "they could not be opened in {} s: does their file system answer?",
                REOPENED.as_secs()
            )),
            Ok(_) | Err(NoAnswer::Ended) => Err(LOST.to_owned()),
        }
    }
}

impl OpenFiles for ConfigurationFile {
    fn open(&self, path: &Path) -> io::Result<File> {
        match open_file(path) {
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
