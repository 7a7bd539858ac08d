//! Messages that contain keys.

use std::fmt;

use zeroize::Zeroize as _;

use crate::generated::SessionDriver;

impl fmt::Debug for SessionDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionDriver")
            .field("name", &self.name)
            .field("length", &self.value.len())
            .finish()
    }
}

/// The buffers of HTTP/2 and TLS, through which the bytes pass, are not wiped.
impl Drop for SessionDriver {
    fn drop(&mut self) {
        self.value.zeroize();
    }
}
