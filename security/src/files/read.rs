//! Reads files of limited size.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use super::FileError;
use super::watched::FileStamp;

/// Reads a file of at most `limit` bytes. The stamp is taken before the content is read, so that no change is missed.
pub(super) fn read(path: &Path, limit: u64) -> io::Result<(FileStamp, Vec<u8>)> {
    read_file(File::open(path)?, limit)
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
