//! The names under which the program is started.

use std::ffi::OsStr;
use std::path::Path;

/// The program whose command line is taken under its name, as by a symbolic link.
pub const GLOBUS: &str = "globus-gridftp-server";

/// Whether the program was started by the name of globus-gridftp-server.
pub fn is_globus(program: &OsStr) -> bool {
    Path::new(program).file_name() == Some(OsStr::new(GLOBUS))
}
