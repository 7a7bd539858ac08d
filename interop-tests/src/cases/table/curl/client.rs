//! The program with the options of every case.

use crate::cases::Context;
use crate::support::Client;

/// In bytes. Small, and without a line end: such files survive what the real server does to curl's
/// transfers.
pub(super) const SMALL: u64 = 300;

/// curl, without patterns in URLs and in the local directory.
pub(super) fn curl<A: Into<std::ffi::OsString>>(
    context: &Context<'_>,
    arguments: impl IntoIterator<Item = A>,
) -> Client {
    Client::new("curl")
        .args(["--silent", "--show-error", "--globoff"])
        .args(arguments)
        .directory(context.local(""))
}
