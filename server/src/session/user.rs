//! The user of a session, after login.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use gridhaul_protocol::negotiated::Channels;
use gridhaul_protocol::path::{PathArgument, RemotePath};
use gridhaul_shares::Source;
use gridhaul_storage::StorageError;
use gridhaul_transfer::{NodeSession, UploadName};
use rustix::io::Errno;
use rustix::rand::GetRandomFlags;

use super::initiator::Initiator;
use crate::group_limits::{Group, Place};

/// Prefix of the name of a new file that the client does not name.
const NEW_FILE: &[u8] = b"upload";

/// A user whom another program has authenticated: sshd.
#[derive(Debug, Clone)]
pub(crate) struct LocalUser {
    pub(crate) name: String,
    /// The directory in which the session starts.
    pub(crate) home: RemotePath,
}

/// A client that has logged in.
#[derive(Debug)]
pub(super) struct User {
    pub(super) name: String,
    /// The client proved no identity.
    pub(super) is_anonymous: bool,
    /// The identity that the client proved with GSI.
    pub(super) initiator: Option<Arc<Initiator>>,
    /// The source that its shares are counted for.
    pub(super) source: Source,
    pub(super) node: Arc<dyn NodeSession>,
    /// The meaning of `~`.
    pub(super) home: RemotePath,
    /// The current directory.
    pub(super) directory: RemotePath,
    /// The limits that it shares with others.
    pub(super) groups: Vec<Arc<Group>>,
    /// Its places among the sessions of the groups.
    pub(super) _places: Vec<Place>,
    /// The name of uploads until they are complete.
    pub(super) uploads: UploadName,
}

/// A home directory as a path of the session; the root if it cannot be one.
pub(crate) fn home_directory(home: &Path) -> RemotePath {
    let root = RemotePath::root();
    PathArgument::new(home.as_os_str().as_bytes())
        .and_then(|home| root.join(&home, &root).ok())
        .map_or_else(RemotePath::root, |home| home.without_parents())
}

impl User {
    /// Closes the data channels and listeners if a command made them unusable.
    pub(super) fn settle(&self, channels: Channels) {
        if channels == Channels::Release {
            self.node.release();
        }
    }

    /// An unused path: the argument, or a name in the current directory, followed by 64 random bits. Another user cannot
    /// guess it and create a file there first.
    pub(super) fn new_path(
        &self,
        argument: Option<&PathArgument>,
    ) -> Result<RemotePath, StorageError> {
        let mut random = [0; 8];
        let filled = rustix::rand::getrandom(&mut random, GetRandomFlags::empty())
            .map_err(|errno| StorageError::new("getrandom", errno))?;
        // getrandom(2): a request for up to 256 bytes is never answered in part.
        if filled < random.len() {
            return Err(StorageError::new("getrandom", Errno::AGAIN));
        }
        let end = format!(".{:016x}", u64::from_ne_bytes(random));
        let beginning = argument.map_or(NEW_FILE, PathArgument::as_bytes);
        let name = PathArgument::new([beginning, end.as_bytes()].concat());
        let name = name.ok_or_else(|| StorageError::new("open", Errno::NAMETOOLONG))?;
        self.path(Some(&name))
    }

    /// The absolute path of an argument; without one, the current directory.
    pub(super) fn path(&self, argument: Option<&PathArgument>) -> Result<RemotePath, StorageError> {
        match argument {
            Some(argument) => self
                .directory
                .join(argument, &self.home)
                .map_err(|_| StorageError::new("open", Errno::NAMETOOLONG)),
            None => Ok(self.directory.clone()),
        }
    }
}
