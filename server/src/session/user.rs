//! The user of a session, after login.

use std::sync::Arc;

use gridhaul_protocol::negotiated::Channels;
use gridhaul_protocol::path::{PathArgument, RemotePath};
use gridhaul_shares::Source;
use gridhaul_storage::StorageError;
use gridhaul_transfer::NodeSession;
use rustix::io::Errno;
use rustix::rand::GetRandomFlags;

/// A new file's name begins so where the client names none.
const NEW_FILE: &[u8] = b"upload";

/// A client that has logged in.
#[derive(Debug, Clone)]
pub(super) struct User {
    pub(super) name: String,
    /// It was let in without a proof.
    pub(super) is_anonymous: bool,
    /// Whom its shares are counted for.
    pub(super) source: Source,
    pub(super) node: Arc<dyn NodeSession>,
    /// What `~` stands for.
    pub(super) home: RemotePath,
    pub(super) directory: RemotePath,
}

impl User {
    /// Does with the data channels what was decided.
    pub(super) fn settle(&self, channels: Channels) {
        if channels == Channels::Release {
            self.node.release();
        }
    }

    /// A path that nothing has: that of the argument, or one in the current directory, with 64 random bits behind it.
    /// Another user cannot guess it and create something there first.
    pub(super) fn new_path(
        &self,
        argument: Option<&PathArgument>,
    ) -> Result<RemotePath, StorageError> {
        let mut random = [0; 8];
        let filled = rustix::rand::getrandom(&mut random, GetRandomFlags::empty())
            .map_err(|errno| StorageError::new("getrandom", errno))?;
        // getrandom(2): up to 256 bytes come whole.
        if filled < random.len() {
            return Err(StorageError::new("getrandom", Errno::AGAIN));
        }
        let end = format!(".{:016x}", u64::from_ne_bytes(random));
        let beginning = argument.map_or(NEW_FILE, PathArgument::as_bytes);
        let name = PathArgument::new([beginning, end.as_bytes()].concat());
        let name = name.ok_or_else(|| StorageError::new("open", Errno::NAMETOOLONG))?;
        self.path(Some(&name))
    }

    /// The path that an argument means; without one, the current directory.
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
