//! Files that have no name until they are complete.
//!
//! They are made with `O_TMPFILE` (open(2)). A link gives them their name, and fails if there is a file of that name. A process that is
//! killed before leaves nothing behind, so nothing can be continued either.

use std::fs;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;

use super::reopen::{has_links, link_of};
use super::resolve::{NewPlace, Root};
use super::{failed, modification};
use crate::{StorageError, UnnamedFile, UploadForm};

/// Whether such files get no name here, although they can be made: a security module or a file system may refuse the link.
#[derive(Debug, Clone, Default)]
pub(super) struct Refused(Arc<AtomicBool>);

/// A file without a name, and the name that it will get.
#[derive(Debug)]
pub(super) struct Unnamed {
    file: OwnedFd,
    place: NewPlace<'static>,
    refused: Refused,
}

/// Opens a new file for `path`. `None` if there is something at `path`, or of an unfinished upload of it, which may still run; or if
/// such a file cannot be made there or could not be given its name: then a file with a name has the error.
pub(super) fn open(
    root: &Root,
    path: &Path,
    mode: Mode,
    refused: &Refused,
) -> Option<(OwnedFd, Unnamed)> {
    if refused.0.load(Ordering::Relaxed) || !has_links() {
        return None;
    }
    // As a temporary name, it is for the path of a file.
    UploadForm::Blocks.unfinished(path)?;
    let place = root.new_place("open", path).ok()?.into_owned();
    if !place.is_free() || has_unfinished(&place) {
        return None;
    }
    let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
    // File systems without such files refuse the flag (EOPNOTSUPP, EISDIR).
    let opened = rustix::fs::openat(place.directory(), c".", flags, mode).ok()?;
    // Before Linux 6.0, file systems without access control lists did not apply the umask (commit ac6800e279a2).
    let facts = rustix::fs::fstat(&opened).ok()?;
    if Mode::from_raw_mode(facts.st_mode).intersects(umask()?) {
        return None;
    }
    let file = opened.try_clone().ok()?;
    let refused = refused.clone();
    let unnamed = Unnamed {
        file,
        place,
        refused,
    };
    Some((opened, unnamed))
}

/// Whether there is a file of an unfinished upload.
fn has_unfinished(place: &NewPlace<'_>) -> bool {
    let name = Path::new(place.name());
    let forms = UploadForm::ALL.into_iter();
    let mut names = forms.filter_map(|form| form.unfinished(name));
    names.any(|name| {
        let found = rustix::fs::statat(place.directory(), &name, AtFlags::SYMLINK_NOFOLLOW);
        !matches!(found, Err(Errno::NOENT))
    })
}

/// The umask of the process, which never changes: proc_pid_status(5). `None` if it is not known.
fn umask() -> Option<Mode> {
    static UMASK: OnceLock<Option<Mode>> = OnceLock::new();
    *UMASK.get_or_init(|| {
        let status = fs::read_to_string("/proc/self/status").ok()?;
        let mut lines = status.lines();
        let digits = lines.find_map(|line| line.strip_prefix("Umask:"))?.trim();
        let bits = u32::from_str_radix(digits, 8).ok()?;
        Some(Mode::from_raw_mode(bits))
    })
}

impl UnnamedFile for Unnamed {
    fn set_modified(&self, modified: SystemTime) -> Result<(), StorageError> {
        let times = modification(modified)?;
        rustix::fs::futimens(&self.file, &times).map_err(failed("utime"))
    }

    fn give_name(self: Box<Self>) -> Result<(), StorageError> {
        let linked = match self.place.link_from(&self.file, "", AtFlags::EMPTY_PATH) {
            // Before Linux 6.10 the flag needs a privilege. The link in `/proc` needs none.
            Err(Errno::NOENT | Errno::PERM | Errno::ACCESS | Errno::INVAL) => {
                let (directory, name) = link_of(&self.file).map_err(failed("link"))?;
                let flags = AtFlags::SYMLINK_FOLLOW;
                self.place.link_from(directory, name.as_str(), flags)
            }
            linked => linked,
        };
        if let Err(
            Errno::PERM
            | Errno::ACCESS
            | Errno::INVAL
            | Errno::NOSYS
            | Errno::OPNOTSUPP
            | Errno::XDEV
            | Errno::LOOP,
        ) = linked
        {
            self.refused.0.store(true, Ordering::Relaxed);
        }
        linked.map_err(failed("link"))
    }
}
