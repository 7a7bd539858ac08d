//! The user of a session, after login.

use std::net::IpAddr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use gridhaul_protocol::negotiated::Channels;
use gridhaul_protocol::path::{PathArgument, RemotePath};
use gridhaul_security::voms::Fqan;
use gridhaul_shares::Source;
use gridhaul_storage::StorageError;
use gridhaul_transfer::{NodeSession, UploadName};
use rustix::io::Errno;
use rustix::rand::GetRandomFlags;

use super::initiator::Initiator;
use crate::group_limits::{Group, Place};
use crate::security::DelegatedMark;
use crate::telemetry::Client;

/// Prefix of the name of a new file that the client does not name.
const NEW_FILE: &[u8] = b"upload";

/// A user whom another program has authenticated: sshd.
#[derive(Debug, Clone)]
pub(crate) struct LocalUser {
    pub(crate) name: String,
    /// The directory in which the session starts.
    pub(crate) home: RemotePath,
}

/// The primary VOMS attribute of a client, for audit records.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Membership {
    vo: Option<String>,
    role: Option<String>,
}

impl Membership {
    /// `attributes` begin with the primary one, such as `/atlas/de/Role=production`.
    pub(super) fn of(attributes: &[Fqan]) -> Self {
        let Some(primary) = attributes.first() else {
            return Self::default();
        };
        let mut parts = primary.as_str().split('/').skip(1);
        Self {
            vo: parts.next().map(str::to_owned),
            role: parts.find_map(|part| Some(part.strip_prefix("Role=")?.to_owned())),
        }
    }
}

/// A client that has logged in.
#[derive(Debug)]
pub(super) struct User {
    pub(super) name: String,
    /// The client proved no identity.
    pub(super) is_anonymous: bool,
    /// The identity that the client proved with GSI.
    pub(super) initiator: Option<Arc<Initiator>>,
    /// The local account whose files it uses.
    pub(super) account: Option<String>,
    pub(super) membership: Membership,
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
    /// Counts the delegated credential while the client is logged in.
    pub(super) _delegated: Option<DelegatedMark>,
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

    /// The client in events.
    pub(super) fn client(&self, peer: IpAddr) -> Client<'_> {
        Client {
            peer,
            account: self.account.as_deref(),
            identity: self
                .initiator
                .as_ref()
                .map(|initiator| &*initiator.identity),
            vo: self.membership.vo.as_deref(),
            role: self.membership.role.as_deref(),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_primary_attribute_has_an_organization_and_may_have_a_role() {
        let of = |texts: &[&str]| {
            let attributes = texts.iter().map(|text| Fqan::new(text).expect("a name"));
            let membership = Membership::of(&attributes.collect::<Vec<_>>());
            (membership.vo, membership.role)
        };
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(
            of(&["/atlas/de/Role=production", "/cms"]),
            (some("atlas"), some("production"))
        );
        assert_eq!(of(&["/atlas"]), (some("atlas"), None));
        assert_eq!(of(&[]), (None, None));
    }
}
