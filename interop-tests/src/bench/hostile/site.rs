//! The files of the server, and the addresses of its clients.

use std::fs;
use std::io;
use std::net::Ipv4Addr;
use std::path::Path;

use crate::support::chown_to_nobody;

/// The addresses of the crowd.
pub(super) const CROWD: [Ipv4Addr; 3] = [
    Ipv4Addr::new(127, 0, 0, 2),
    Ipv4Addr::new(127, 0, 0, 3),
    Ipv4Addr::new(127, 0, 0, 4),
];

/// The address of the timed client.
pub(super) const CLIENT: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 5);

/// The file that the client fetches, and its size.
pub(super) const FILE: (&str, usize) = ("file", 1 << 20);

/// The file that the crowd fetches and does not read: larger than socket buffers.
pub(super) const LARGE: (&str, u64) = ("large", 256 << 20);

/// The directory that the crowd lists and does not read.
pub(super) const DIRECTORY: &str = "directory";

/// Makes the files. The directory has `names` entries.
pub(super) fn fill(root: &Path, names: usize) -> io::Result<()> {
    fs::create_dir(root)?;
    fs::write(root.join(FILE.0), vec![7; FILE.1])?;
    fs::File::create(root.join(LARGE.0))?.set_len(LARGE.1)?;
    let directory = root.join(DIRECTORY);
    fs::create_dir(&directory)?;
    for number in 0..names {
        fs::File::create(directory.join(format!("a-name-of-usual-length-{number:08}")))?;
    }
    [root, &directory, &root.join(FILE.0), &root.join(LARGE.0)]
        .into_iter()
        .try_for_each(chown_to_nobody)
}
