//! Opens logs while the process still has root's rights.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use gridhaul_accounts::{OpenError, open_log};
use rustix::fs::OFlags;

use crate::privileges;
use crate::telemetry::{OpenLogs, OwnRights};

/// Opens the logs of a server that will run as the account `user`. Where another account than root can replace the directory of
/// a log, a link of that account must not make root write to another file: such a log is opened with the rights of `user`.
#[derive(Debug)]
pub(crate) struct StartRights<'a> {
    pub(crate) user: &'a str,
}

impl OpenLogs for StartRights<'_> {
    fn append(&self, log: &Path) -> io::Result<File> {
        if !privileges::is_root() {
            return OwnRights.append(log);
        }
        match open_log(log, privileges::uid_of(self.user)) {
            Ok(file) => Ok(file.into()),
            Err(OpenError::NoFile) => open_device(log),
            Err(OpenError::Exposed) => {
                let opened = privileges::as_account(self.user, || OwnRights.append(log));
                opened.map_err(io::Error::other)?.map_err(|error| {
                    let user = self.user;
                    io::Error::other(format!(
                        "{error} for {user}, as which it is opened, because accounts other than root can replace it: let \
                         {user} or only root write to its directories"
                    ))
                })
            }
            Err(error) => Err(io::Error::other(error)),
        }
    }
}

/// A terminal, a pipe or `/dev/null`.
fn open_device(log: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    let flags = (OFlags::NOCTTY | OFlags::NONBLOCK).bits();
    let flags = i32::try_from(flags).map_err(io::Error::other)?;
    let file = options.append(true).custom_flags(flags).open(log)?;
    match file.metadata()?.is_file() {
        // It was put there meanwhile.
        true => Err(io::Error::other(OpenError::Exposed)),
        false => Ok(file),
    }
}
