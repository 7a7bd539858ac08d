//! The certificate of the user and the trusted authorities, which are read again when a proxy was renewed.
//!
//! Copies may take longer than the life of a proxy. Its user, or a program of the site, writes a new one in its place, and sessions that
//! are opened from then on need it.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use crate::login::{Identity, IdentityError, IdentityPlaces};

/// A credential that is valid for less is looked for again before each session.
const NEARLY_EXPIRED: Duration = Duration::from_secs(5 * 60);

/// What was read, by the options that name the files.
#[derive(Debug, Default)]
pub(super) struct Identities(Mutex<HashMap<IdentityPlaces, Known>>);

#[derive(Debug)]
struct Known {
    identity: Identity,
    /// `None`: the file was not there.
    stamp: Option<Stamp>,
}

/// Differs for each content of the file, also if it was renamed to its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
}

impl Stamp {
    fn of(file: &Path) -> Option<Self> {
        let found = fs::metadata(file).ok()?;
        Some(Self {
            device: found.dev(),
            inode: found.ino(),
            bytes: found.len(),
            modified: (found.mtime(), found.mtime_nsec()),
        })
    }
}

impl Known {
    fn is_valid_for(&self, time: Duration) -> bool {
        self.identity.credential.expires() > SystemTime::now() + time
    }
}

impl Identities {
    /// Who the user is. Blocks while files are read.
    ///
    /// # Errors
    ///
    /// When there is no credential that can be used, and none that was read before is valid.
    pub(super) fn get(&self, places: IdentityPlaces) -> Result<Identity, IdentityError> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Before the file is read: a change in between is seen the next time.
        let file = places.certificate();
        let stamp = file.as_deref().ok().and_then(Stamp::of);
        let earlier = known.get(&places);
        if let Some(earlier) = earlier
            && earlier.stamp == stamp
            && earlier.is_valid_for(NEARLY_EXPIRED)
        {
            return Ok(earlier.identity.clone());
        }
        match Identity::find(&places) {
            Ok(identity) => {
                let found = Known {
                    identity: identity.clone(),
                    stamp,
                };
                known.insert(places, found);
                Ok(identity)
            }
            // The new one may be half written, or not be there yet.
            Err(error) => match earlier.filter(|one| one.is_valid_for(Duration::ZERO)) {
                Some(earlier) => Ok(earlier.identity.clone()),
                None => Err(error),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{File, Permissions};
    use std::os::unix::fs::PermissionsExt as _;
    use std::path::PathBuf;

    use gridhaul_security::credential::{Credential, credential_pem};
    use tempfile::TempDir;

    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);
    const DAY: Duration = Duration::from_secs(24 * 3600);

    /// A user with a proxy.
    struct User {
        place: TempDir,
        identities: Identities,
    }

    impl User {
        fn new() -> Self {
            let place = tempfile::tempdir().expect("a directory");
            fs::create_dir(place.path().join("trust")).expect("made");
            Self {
                place,
                identities: Identities::default(),
            }
        }

        fn proxy(&self) -> PathBuf {
            self.place.path().join("proxy")
        }

        /// Replaces the proxy by a file with a credential of this name.
        fn renew(&self, name: &str, since: SystemTime, life: Duration) {
            self.replace(&content(name, since, life));
        }

        fn replace(&self, content: &[u8]) {
            let new = self.place.path().join("new");
            fs::write(&new, content).expect("written");
            fs::set_permissions(&new, Permissions::from_mode(0o600)).expect("private");
            fs::rename(new, self.proxy()).expect("renamed");
        }

        /// Writes another credential into the same file, which looks as if it had not changed.
        fn overwrite(&self, name: &str, life: Duration) {
            let before = fs::metadata(self.proxy()).expect("there").modified();
            fs::write(self.proxy(), content(name, SystemTime::now(), life)).expect("written");
            let file = File::options().write(true).open(self.proxy());
            let set = file.and_then(|file| file.set_modified(before?));
            set.expect("the time of before");
        }

        fn name(&self) -> Result<String, IdentityError> {
            let found = self.identities.get(IdentityPlaces {
                proxy: Some(self.proxy()),
                trust: Some(self.place.path().join("trust")),
            })?;
            Ok(found.credential.identity().one_line().to_owned())
        }
    }

    /// A file with a credential; all have the same size.
    fn content(name: &str, since: SystemTime, life: Duration) -> Vec<u8> {
        const BYTES: usize = 8 << 10;

        let made = Credential::self_signed(name, since, life).expect("made");
        let pem = credential_pem(made.key(), &[made.leaf().clone()]).expect("PEM");
        let mut content = pem.to_vec();
        assert!(content.len() < BYTES, "{}", content.len());
        content.resize(BYTES, b'\n');
        content
    }

    #[test]
    fn a_renewed_proxy_is_used_for_the_next_session() {
        let (user, now) = (User::new(), SystemTime::now());
        user.renew("first", now, DAY);
        for _ in 0..2 {
            assert_eq!(user.name().expect("a credential"), "/CN=first");
        }
        user.renew("second", now, DAY);
        assert_eq!(user.name().expect("renewed"), "/CN=second");
    }

    #[test]
    fn a_proxy_that_ends_soon_is_read_again_each_time() {
        let (user, now) = (User::new(), SystemTime::now());
        user.renew("first", now, DAY);
        assert_eq!(user.name().expect("a credential"), "/CN=first");
        user.overwrite("second", DAY);
        assert_eq!(user.name().expect("it has not changed"), "/CN=first");
        user.renew("third", now, 2 * MINUTE);
        assert_eq!(user.name().expect("renewed"), "/CN=third");
        user.overwrite("fourth", DAY);
        assert_eq!(user.name().expect("it may be renewed"), "/CN=fourth");
    }

    #[test]
    fn a_proxy_is_used_as_long_as_the_next_one_cannot_be() {
        let (user, now) = (User::new(), SystemTime::now());
        let error = user.name().expect_err("no file").to_string();
        assert!(error.contains("proxy"), "{error}");
        user.renew("old", now - DAY, DAY - MINUTE);
        let error = user.name().expect_err("expired").to_string();
        assert!(error.contains("has expired"), "{error}");
        user.renew("first", now, DAY);
        assert_eq!(user.name().expect("a credential"), "/CN=first");
        user.replace(b"half of a file");
        assert_eq!(user.name().expect("the earlier one"), "/CN=first");
        user.renew("old", now - DAY, DAY - MINUTE);
        assert_eq!(user.name().expect("the earlier one"), "/CN=first");
        fs::remove_file(user.proxy()).expect("removed");
        assert_eq!(user.name().expect("the earlier one"), "/CN=first");
        user.renew("second", now, DAY);
        assert_eq!(user.name().expect("renewed"), "/CN=second");
    }
}
