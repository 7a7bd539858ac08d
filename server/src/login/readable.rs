//! Reports files that the login process read as root and cannot read again.

use std::fs;

use gridhaul_security::files::OpenFiles as _;
use tracing::error;

use crate::config::{Config, ServeArguments};
use crate::security::Opener;

/// Opens all files as a reload will.
pub(super) fn tell_unreadable(config: &Config, arguments: &ServeArguments, opener: &Opener) {
    const WORDS: &str = "cannot be read again by the account that decides logins: until the server is restarted, what is \
                         in it now holds";

    let gsi = config.security.gsi.as_ref();
    let gridmap = gsi.and_then(|gsi| gsi.gridmap.as_ref());
    let bans = gsi.map_or(&[][..], |gsi| &gsi.ban_lists);
    let files = arguments.config.iter().chain(&config.passwords);
    for path in files.chain(gridmap).chain(bans) {
        if let Err(error) = opener.open(path) {
            error!(path = %path.display(), %error, "{WORDS}");
        }
    }
    let directories = gsi.map(|gsi| [Some(&gsi.trust), gsi.vomsdir.as_ref()]);
    for path in directories.into_iter().flatten().flatten() {
        if let Err(error) = fs::read_dir(path) {
            error!(path = %path.display(), %error, "{WORDS}");
        }
    }
}
