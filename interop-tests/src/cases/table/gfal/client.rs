//! The programs with the environment of a case.

use crate::cases::Context;
use crate::support::{Client, Failure};

/// `gfal-*` with the local directory as the current one.
pub(super) fn gfal<A: Into<std::ffi::OsString>>(
    program: &str,
    arguments: impl IntoIterator<Item = A>,
    context: &Context<'_>,
) -> Client {
    Client::new(program)
        .args(arguments)
        .envs(context.environment())
        .directory(context.local(""))
}

/// A remote directory in which only root could make files.
pub(super) fn closed(context: &Context<'_>) -> Result<(), Failure> {
    use std::os::unix::fs::PermissionsExt;
    let directory = context.remote_directory("closed")?;
    std::fs::set_permissions(directory, std::fs::Permissions::from_mode(0o555))?;
    Ok(())
}
