//! The extended attribute in which files carry their checksums.
//!
//! The calls for descriptors want a file that is open, and a file may be opened for reading only by those who may
//! read it. So they go by the link in `/proc` of a descriptor that only holds the file.

use std::os::fd::OwnedFd;

use rustix::fs::XattrFlags;
use rustix::io::Errno;

use super::resolve::path_of;
use crate::store::{CHECKSUM_ATTRIBUTE, CHECKSUM_ATTRIBUTE_BYTES};

/// The value, if there is one that can mean something.
pub(super) fn get(held: &OwnedFd) -> Result<Option<Vec<u8>>, Errno> {
    let mut value = [0; CHECKSUM_ATTRIBUTE_BYTES];
    match rustix::fs::getxattr(path_of(held).as_str(), CHECKSUM_ATTRIBUTE, &mut value) {
        Ok(length) => Ok(Some(value[..length].to_vec())),
        // getxattr(2): it is longer than the buffer, and so it is none of ours.
        Err(Errno::NODATA | Errno::RANGE) => Ok(None),
        Err(errno) => Err(errno),
    }
}

/// Sets the value, or removes it. That there was none is as good.
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
