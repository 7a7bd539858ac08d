//! Names of unfinished uploads.
//!
//! An upload under a temporary name is a file beside its final name, so that a rename completes it. The name follows from the
//! final one, and a restart finds it again, also after the server was killed.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use crate::{Checksum, ChecksumAlgorithm};

/// How the bytes of an unfinished upload arrived. Each form has names of its own, because only the first one may be continued
/// at the end of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UploadForm {
    /// In order: the file is a prefix of the complete one.
    Stream,
    /// In blocks of any order (MODE E): the file may have gaps.
    Blocks,
}

/// The longest name of a file on Linux in bytes (limits.h).
const NAME_MAX: usize = 255;

/// Hexadecimal digits of the hash in place of the end of a long name.
const HASH_DIGITS: usize = 16;

impl UploadForm {
    /// Both forms.
    pub const ALL: [Self; 2] = [Self::Stream, Self::Blocks];

    /// The end of the names of this form.
    pub const fn suffix(self) -> &'static str {
        match self {
            Self::Stream => ".gridhaul-part",
            Self::Blocks => ".gridhaul-blocks",
        }
    }

    /// The path of the unfinished upload of the file at `path`: `d/.NAME.gridhaul-part` for `d/NAME`. The end of a name that
    /// would become too long is replaced by a hash. `None` if `path` cannot be that of a file.
    pub fn unfinished(self, path: &Path) -> Option<PathBuf> {
        if path.as_os_str().as_bytes().ends_with(b"/") {
            return None;
        }
        let name = path.file_name()?.as_bytes();
        let mut unfinished = b".".to_vec();
        if 1 + name.len() + self.suffix().len() <= NAME_MAX {
            unfinished.extend_from_slice(name);
        } else {
            let mut hash = Checksum::new(ChecksumAlgorithm::Sha256);
            hash.update(name);
            let room = NAME_MAX - 2 - HASH_DIGITS - self.suffix().len();
            unfinished.extend_from_slice(beginning(name, room));
            unfinished.push(b'.');
            unfinished.extend_from_slice(&hash.finish().as_bytes()[..HASH_DIGITS]);
        }
        unfinished.extend_from_slice(self.suffix().as_bytes());
        Some(path.with_file_name(OsString::from_vec(unfinished)))
    }
}

/// Whether this is the path of an unfinished upload.
pub fn is_unfinished_upload(path: &Path) -> bool {
    let name = path.file_name().map_or(&b""[..], OsStr::as_bytes);
    let has = |form: UploadForm| name.ends_with(form.suffix().as_bytes());
    name.starts_with(b".") && UploadForm::ALL.into_iter().any(has)
}

/// The first bytes of a name, at most `most`, without a part of a character.
fn beginning(name: &[u8], most: usize) -> &[u8] {
    let cut = &name[..most.min(name.len())];
    match std::str::from_utf8(cut) {
        // The error is at the end: the last character is incomplete.
        Err(error) if error.error_len().is_none() => &cut[..error.valid_up_to()],
        _ => cut,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn unfinished(path: &str) -> Option<PathBuf> {
        UploadForm::Stream.unfinished(Path::new(path))
    }

    #[test]
    fn an_unfinished_upload_is_beside_its_final_name() {
        for (path, expected) in [
            ("/d/file", "/d/.file.gridhaul-part"),
            ("file", ".file.gridhaul-part"),
            ("/d/.hidden", "/d/..hidden.gridhaul-part"),
        ] {
            assert_eq!(unfinished(path), Some(expected.into()), "{path}");
        }
        let blocks = UploadForm::Blocks.unfinished(Path::new("d/file"));
        assert_eq!(blocks, Some("d/.file.gridhaul-blocks".into()));
        for path in ["/", "", "..", "d/..", "d/"] {
            assert_eq!(unfinished(path), None, "{path:?}");
        }
    }

    #[test]
    fn long_names_are_cut_between_characters() {
        let name = "ü".repeat(127);
        let cut = unfinished(&name).expect("a file");
        let cut = cut.to_str().expect("whole characters");
        assert!(cut.len() <= NAME_MAX && cut.len() > NAME_MAX - 3, "{cut}");
    }

    proptest! {
        #[test]
        fn names_fit_and_differ(
            one in "[^/\0]{1,255}",
            other in "[^/\0]{1,255}",
        ) {
            prop_assume!(one.len() <= NAME_MAX && other.len() <= NAME_MAX);
            prop_assume!(![".", ".."].contains(&one.as_str()) && one != other);
            prop_assume!(![".", ".."].contains(&other.as_str()));
            let paths = UploadForm::ALL.map(|form| form.unfinished(Path::new(&one)));
            let [stream, blocks] = paths.map(|path| path.expect("a file"));
            prop_assert_ne!(&stream, &blocks);
            prop_assert_ne!(Some(stream.clone()), unfinished(&other));
            for path in [stream, blocks] {
                prop_assert!(path.as_os_str().len() <= NAME_MAX);
                prop_assert!(is_unfinished_upload(&path));
            }
        }
    }
}
