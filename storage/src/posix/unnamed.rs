//! Files that have no name until they are complete.
//!
//! They are made with `O_TMPFILE` (open(2)). A link gives them their name, and fails if there is a file of that name. A process that is
//! killed before leaves nothing behind, so nothing can be continued either.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::SystemTime;

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;

use super::reopen::{has_links, link_of};
use super::resolve::{NewPlace, Root};
use super::{failed, modification};
use crate::{StorageError, UnnamedFile, UploadForm};

/// A file without a name, and the name that it will get.
#[derive(Debug)]
pub(super) struct Unnamed {
    file: OwnedFd,
    place: NewPlace<'static>,
}

/// Opens a new file for `path`. `None` if there is something at `path`, or if such a file cannot be made there or could not be given its
/// name: then a file with a name has the error.
pub(super) fn open(root: &Root, path: &Path, mode: Mode) -> Option<(OwnedFd, Unnamed)> {
    // As a temporary name, it is for the path of a file.
    UploadForm::Blocks.unfinished(path)?;
    let place = root.new_place("open", path).ok()?.into_owned();
    if !place.is_free() || !has_links() {
        return None;
    }
    let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
    // File systems without such files refuse the flag (EOPNOTSUPP, EISDIR).
    let opened = rustix::fs::openat(place.directory(), c".", flags, mode).ok()?;
    let file = opened.try_clone().ok()?;
    Some((opened, Unnamed { file, place }))
}

impl UnnamedFile for Unnamed {
    fn set_modified(&self, modified: SystemTime) -> Result<(), StorageError> {
        let times = modification(modified)?;
        rustix::fs::futimens(&self.file, &times).map_err(failed("utime"))
    }

    fn give_name(self: Box<Self>) -> Result<(), StorageError> {
        let linked = match self.place.link_from(&self.file, "", AtFlags::EMPTY_PATH) {
            // Before Linux 6.10 the flag needs a privilege. The link in `/proc` needs none.
            Err(Errno::NOENT) => {
                let (directory, name) = link_of(&self.file).map_err(failed("link"))?;
                let flags = AtFlags::SYMLINK_FOLLOW;
                self.place.link_from(directory, name.as_str(), flags)
            }
            linked => linked,
        };
        linked.map_err(failed("link"))?;
        let name = Path::new(self.place.name());
        let left = UploadForm::ALL.into_iter();
        for left in left.filter_map(|form| form.unfinished(name)) {
            let _ = rustix::fs::unlinkat(self.place.directory(), &left, AtFlags::empty());
        }
        Ok(())
    }
}
