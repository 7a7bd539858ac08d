//! The extended attribute in which the checksums of a file are stored.
//!
//! `fgetxattr` does not accept `O_PATH` descriptors, and opening a file for reading needs read permission. So the calls use
//! the path of the descriptor's link in `/proc`.

use std::os::fd::OwnedFd;

use rustix::fs::XattrFlags;
use rustix::io::Errno;

use super::resolve::path_of;
use crate::store::{CHECKSUM_ATTRIBUTE, CHECKSUM_ATTRIBUTE_BYTES};

/// The value, if it has a valid length.
pub(super) fn get(held: &OwnedFd) -> Result<Option<Vec<u8>>, Errno> {
    let mut value = [0; CHECKSUM_ATTRIBUTE_BYTES];
    match rustix::fs::getxattr(path_of(held).as_str(), CHECKSUM_ATTRIBUTE, &mut value) {
        Ok(length) => Ok(Some(value[..length].to_vec())),
        // getxattr(2), ERANGE: it is longer than the buffer, and therefore not a value of this server.
        Err(Errno::NODATA | Errno::RANGE) => Ok(None),
        Err(errno) => Err(errno),
    }
}

/// Sets the value, or removes it. Removing a missing value is not an error.
pub(super) fn set(held: &OwnedFd, value: Option<&[u8]>) -> Result<(), Errno> {
    let path = path_of(held);
    let Some(value) = value else {
        return match rustix::fs::removexattr(path.as_str(), CHECKSUM_ATTRIBUTE) {
            Err(Errno::NODATA) => Ok(()),
            result => result,
        };
    };
    rustix::fs::setxattr(
        path.as_str(),
        CHECKSUM_ATTRIBUTE,
        value,
        XattrFlags::empty(),
    )
}
