//! Where sysfs is, and how the kernel writes there.
//!
//! Files are read with a bound: a driver, or another directory in the place of sysfs, may show anything.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Read as _;
use std::path::{Path, PathBuf};

use crate::numa::numbers;

/// sysfs shows at most a page.
const MOST_BYTES: u64 = 4096;

/// The longest text of the kernel that a finding repeats.
const MOST_SHOWN: usize = 80;

/// Files of a directory that are looked at. No adapter has as many interrupts or GIDs.
const MOST_NAMES: usize = 4096;

/// `SYSFS_PATH` names another directory than `/sys`, as for libibverbs (sysfs.c of rdma-core), which must find the same devices.
pub(super) fn root() -> PathBuf {
    std::env::var_os("SYSFS_PATH").map_or_else(|| PathBuf::from("/sys"), PathBuf::from)
}

/// procfs, beside sysfs: both describe the same machine.
pub(super) fn proc() -> PathBuf {
    root().join("../proc")
}

/// The directory of RDMA devices.
pub(super) fn devices() -> PathBuf {
    root().join("class/infiniband")
}

/// A P_Key such as `0xffff`.
pub(super) fn hexadecimal(text: &str) -> Option<u16> {
    u16::from_str_radix(text.trim().strip_prefix("0x")?, 16).ok()
}

/// A line for a finding: without controls and what is no UTF-8, and cut where it is long. `None` if the file cannot be read, or is empty.
pub(super) fn text(path: &Path) -> Option<String> {
    let text = bytes(path, MOST_BYTES)?;
    let text = String::from_utf8_lossy(&text);
    let shown = text.trim().chars().take(MOST_SHOWN);
    let shown: String = shown
        .map(|letter| if letter.is_control() { '?' } else { letter })
        .collect();
    (!shown.is_empty()).then_some(shown)
}

/// A number in decimal digits.
pub(super) fn number(path: &Path) -> Option<u64> {
    text(path)?.parse().ok()
}

/// A list of processors or nodes such as `0-3,8`.
pub(super) fn list(path: &Path) -> Option<BTreeSet<usize>> {
    /// Linux can be built for no more processors.
    const MOST_PROCESSORS: usize = 8192;
    const MOST_LIST_BYTES: u64 = 64 << 10;
    let text = String::from_utf8(bytes(path, MOST_LIST_BYTES)?).ok()?;
    Some(numbers(&text, MOST_PROCESSORS)?.into_iter().collect())
}

/// The beginning of a file. `None` if it cannot be read.
pub(super) fn bytes(path: &Path, most: u64) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)
        .ok()?
        .take(most)
        .read_to_end(&mut bytes)
        .ok()?;
    Some(bytes)
}

/// The names in a directory, in order; none if it cannot be read.
pub(super) fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let mut names: Vec<_> = names.take(MOST_NAMES).collect();
    names.sort();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strange_files_give_short_lines_or_none() {
        let directory = tempfile::tempdir().unwrap();
        let read = |content: &[u8]| {
            let path = directory.path().join("file");
            fs::write(&path, content).unwrap();
            text(&path)
        };
        assert_eq!(read(b"  100 Gb/sec\n").as_deref(), Some("100 Gb/sec"));
        assert_eq!(read(b"").as_deref(), None);
        assert_eq!(read(b" \n").as_deref(), None);
        assert_eq!(read(b"a\x1b[2Jb\xff").as_deref(), Some("a?[2Jb\u{fffd}"));
        let long = read(&vec![b'x'; 1 << 20]).unwrap();
        assert_eq!(long.len(), MOST_SHOWN);
        assert_eq!(text(directory.path()), None, "a directory");
        assert_eq!(text(&directory.path().join("missing")), None);
        let endless = bytes(Path::new("/dev/zero"), 10).unwrap();
        assert_eq!(endless.len(), 10);
    }

    #[test]
    fn names_are_in_order() {
        let directory = tempfile::tempdir().unwrap();
        for name in ["b", "a"] {
            fs::write(directory.path().join(name), "").unwrap();
        }
        assert_eq!(names(directory.path()), ["a", "b"]);
        assert!(names(&directory.path().join("missing")).is_empty());
    }
}
