//! Reads files of limited size.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;

use rustix::fs::{Mode, OFlags};

use super::FileError;
use super::watched::FileStamp;

/// Opens a file for reading. In place of a file there may be a FIFO, whose writer would be waited for, or a terminal, which would become
/// that of the process: neither happens. All but regular files and character devices is refused; `/dev/null` is an empty list.
///
/// # Errors
///
/// When it cannot be opened, or is refused.
pub fn open_file(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    let kind = file.metadata()?.file_type();
    match kind.is_file() || kind.is_char_device() {
        true => Ok(file),
        false => Err(io::Error::other("it is no regular file")),
    }
}

/// Reads a file of at most `limit` bytes. The stamp is taken before the content is read, so that no change is missed.
pub(super) fn read(path: &Path, limit: u64) -> io::Result<(FileStamp, Vec<u8>)> {
    read_file(open_file(path)?, limit)
}

pub(super) fn read_file(file: File, limit: u64) -> io::Result<(FileStamp, Vec<u8>)> {
    let stamp = FileStamp::from(&file.metadata()?);
    Ok((stamp, read_opened(file, limit)?))
}

/// The content of a file that is not larger than `limit`.
pub(super) fn read_opened(file: File, limit: u64) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    file.take(limit + 1).read_to_end(&mut content)?;
    if content.len() as u64 > limit {
        return Err(io::Error::other(format!("it is larger than {limit} bytes")));
    }
    Ok(content)
}

pub(super) fn failed(path: &Path) -> impl FnOnce(io::Error) -> FileError + '_ {
    move |error| FileError::Io {
        path: path.to_owned(),
        error,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use rustix::fs::{CWD, FileType, mknodat};

    use super::*;

    #[test]
    fn a_fifo_is_refused_without_a_wait_for_its_writer() {
        let place = tempfile::tempdir().expect("a directory");
        let path = |name: &str| place.path().join(name);
        let mode = Mode::RUSR | Mode::WUSR;
        mknodat(CWD, path("fifo"), FileType::Fifo, mode, 0).expect("ours");
        fs::write(path("file"), "content").expect("ours");
        for refused in [path("fifo"), place.path().to_owned()] {
            let error = open_file(&refused).expect_err("no file");
            assert_eq!(error.to_string(), "it is no regular file");
        }
        assert_eq!(read(&path("file"), 7).expect("a file").1, b"content");
        assert_eq!(read(Path::new("/dev/null"), 7).expect("empty").1, b"");
    }
}
