//! curl with the options that all cases use.

use crate::cases::Context;
use crate::support::Client;

/// The size of a small file without a line end, in bytes: in TYPE A the real server transfers it unchanged.
pub(super) const SMALL: u64 = 300;

/// curl without URL patterns, in the local directory.
pub(super) fn curl<A: Into<std::ffi::OsString>>(
    context: &Context<'_>,
    arguments: impl IntoIterator<Item = A>,
) -> Client {
    Client::new("curl")
        .args(["--silent", "--show-error", "--globoff"])
        .args(arguments)
        .directory(context.local(""))
}
