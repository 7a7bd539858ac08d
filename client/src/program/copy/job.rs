//! A file to copy.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::error::CopyError;
use super::version::Version;
use crate::location::{Location, Url, file_url};

/// A file to copy.
#[derive(Debug, Clone)]
pub(super) struct Job {
    pub(super) source: Place,
    pub(super) destination: Place,
    /// What is known about the source.
    pub(super) known: Version,
    /// The command copies nothing else.
    pub(super) is_only: bool,
}

/// A file under way whose unfinished copy does not stay when it is given up.
#[derive(Debug)]
pub(super) struct Begun {
    pub(super) destination: Place,
    /// The size of the source in bytes, where it is known.
    pub(super) size: Option<u64>,
    /// A server may have had a file with this name before.
    pub(super) may_have_had: bool,
    /// Bytes of it may have moved, and no other upload has taken the file since.
    pub(super) has_moved: Arc<AtomicBool>,
}

/// A file of one end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Place {
    /// A file of this machine.
    Local {
        /// Its path.
        path: PathBuf,
        /// The directory that it is opened beneath: names that a server sends do not lead out of it.
        root: Arc<Path>,
        /// Its path beneath the root.
        beneath: PathBuf,
    },
    /// A file of a server.
    Remote(Url),
}

impl Place {
    /// A location beneath the root of all local files.
    pub(super) fn of(location: &Location) -> Result<Self, CopyError> {
        Ok(match location {
            Location::Local(path) => {
                let absolute = std::path::absolute(path);
                let absolute =
                    absolute.map_err(|error| CopyError::File(path.display().to_string(), error))?;
                Self::Local {
                    path: path.clone(),
                    root: Arc::from(Path::new("/")),
                    beneath: absolute,
                }
            }
            Location::Remote(url) => Self::Remote(url.clone()),
        })
    }

    /// This directory of this machine as a root.
    ///
    /// # Errors
    ///
    /// When it neither exists nor can be made.
    pub(super) fn as_root(path: &Path) -> Result<Self, CopyError> {
        let failed = |error| CopyError::File(path.display().to_string(), error);
        fs::create_dir_all(path).map_err(failed)?;
        let root = fs::canonicalize(path).map_err(failed)?;
        Ok(Self::Local {
            path: path.to_owned(),
            root: Arc::from(root),
            beneath: PathBuf::new(),
        })
    }

    /// A file in this directory. The name is a single component.
    pub(super) fn join(&self, name: &[u8]) -> Self {
        match self {
            Self::Local {
                path,
                root,
                beneath,
            } => {
                let name = OsStr::from_bytes(name);
                Self::Local {
                    path: path.join(name),
                    root: Arc::clone(root),
                    beneath: beneath.join(name),
                }
            }
            Self::Remote(url) => Self::Remote(url.join(name)),
        }
    }

    /// The same directory, as [`Self::parent`] and [`Self::join`] write it.
    pub(super) fn without_last_slash(&self) -> Self {
        let mut same = self.clone();
        if let Self::Remote(url) = &mut same {
            while url.path.len() > 1 && url.path.ends_with(b"/") {
                url.path.pop();
            }
        }
        same
    }

    /// Whether this version of a file can be there, as far as that is cheap to see.
    pub(super) fn may_have(&self, version: Version) -> bool {
        match self {
            Self::Local { path, .. } => {
                let found = fs::metadata(path).ok().filter(fs::Metadata::is_file);
                found.map(|found| found.len()) == version.size
            }
            Self::Remote(_) => true,
        }
    }

    /// The directory that has it.
    pub(super) fn parent(&self) -> Self {
        match self {
            Self::Local {
                path,
                root,
                beneath,
            } => Self::Local {
                path: above(path).to_owned(),
                root: Arc::clone(root),
                beneath: above(beneath).to_owned(),
            },
            Self::Remote(url) => {
                let path = above(Path::new(OsStr::from_bytes(&url.path)));
                Self::Remote(Url {
                    server: url.server.clone(),
                    path: path.as_os_str().as_bytes().to_vec(),
                })
            }
        }
    }

    /// Whether [`Self::parent`] is this directory.
    pub(super) fn is_in(&self, directory: &Self) -> bool {
        match (self, directory) {
            (
                Self::Local {
                    path,
                    root,
                    beneath,
                },
                Self::Local {
                    path: directory,
                    root: its_root,
                    beneath: its_place,
                },
            ) => root == its_root && above(path) == directory && above(beneath) == its_place,
            (Self::Remote(url), Self::Remote(directory)) => {
                let above = above(Path::new(OsStr::from_bytes(&url.path)));
                url.server == directory.server && above.as_os_str().as_bytes() == directory.path
            }
            _ => false,
        }
    }

    /// A name that does not depend on the working directory, or on how a user writes it.
    pub(super) fn absolute(&self) -> Vec<u8> {
        match self {
            Self::Local { root, beneath, .. } => root.join(beneath).into_os_string().into_vec(),
            Self::Remote(url) => url.to_string().into_bytes(),
        }
    }

    /// As users write it.
    pub(super) fn words(&self) -> String {
        match self {
            Self::Local { path, .. } => Location::Local(path.clone()).to_string(),
            Self::Remote(url) => url.to_string(),
        }
    }

    /// As a URL.
    pub(super) fn url(&self) -> String {
        match self {
            Self::Local { path, .. } => file_url(path),
            Self::Remote(url) => url.to_string(),
        }
    }

    /// The last component.
    pub(super) fn name(&self) -> &[u8] {
        let path = match self {
            Self::Local { path, .. } => path.as_os_str().as_bytes(),
            Self::Remote(url) => &url.path,
        };
        let mut names = path.split(|byte| *byte == b'/').rev();
        let name = names.find(|name| !name.is_empty());
        name.unwrap_or_default()
    }

    /// Whether it is written as a directory.
    pub(super) fn ends_with_slash(&self) -> bool {
        match self {
            Self::Local { path, .. } => path.as_os_str().as_bytes().ends_with(b"/"),
            Self::Remote(url) => url.path.ends_with(b"/"),
        }
    }

    /// Whether `other` is this directory, or beneath it.
    pub(super) fn contains(&self, other: &Self) -> bool {
        let path = |url: &Url| Path::new(OsStr::from_bytes(&url.path)).to_owned();
        match (self, other) {
            (Self::Remote(one), Self::Remote(other)) => {
                one.server.is_same(&other.server) && path(other).starts_with(path(one))
            }
            _ => false,
        }
    }
}

/// The directory of a path; that of the uppermost one is itself.
fn above(path: &Path) -> &Path {
    path.parent().unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Places whose names are so few that some are the directories of others.
    fn place() -> impl Strategy<Value = Place> {
        let part = prop::sample::select(vec!["a", "b", "/", "/", ".", ".."]);
        let path = || prop::collection::vec(part.clone(), 0..4).prop_map(|parts| parts.concat());
        let local = (path(), path(), prop::bool::ANY).prop_map(|(path, beneath, is_root)| {
            let root = if is_root { "/" } else { "/r" };
            Place::Local {
                path: path.into(),
                root: Arc::from(Path::new(root)),
                beneath: beneath.into(),
            }
        });
        let remote = (path(), prop::bool::ANY).prop_map(|(path, is_one)| {
            let host = if is_one { "ftp://one/" } else { "ftp://two/" };
            let mut url = Url::parse(host).expect("a URL");
            url.path.extend(path.bytes());
            Place::Remote(url)
        });
        prop_oneof![local, remote]
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2048, ..ProptestConfig::default() })]

        #[test]
        fn a_place_is_in_its_parent_and_in_nothing_else(one in place(), other in place()) {
            let parent = one.parent();
            prop_assert_eq!(one.is_in(&other), parent == other);
            prop_assert!(one.is_in(&parent));
            prop_assert_eq!(one.is_in(&one), parent == one);
        }
    }
}
