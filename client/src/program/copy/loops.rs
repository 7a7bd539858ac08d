//! Copies into their own source.
//!
//! A server may serve the directory that its files are copied to. Then the copy is a part of the source, and would be copied into itself,
//! level by level. Names do not show that: the server has its own root, and hosts have several names. So a directory of the
//! source with the name of the destination is probed: a directory that is made in one of them for a moment is in the other as well.

use std::collections::hash_map::RandomState;
use std::fs;
use std::hash::BuildHasher as _;
use std::os::unix::ffi::OsStrExt as _;

use super::error::CopyError;
use super::job::Place;
use super::shared::Shared;
use crate::session::Session;

/// Whether two directories with equal names are one. `session` is one with the server of the source. What cannot be found out is no: walks
/// have an end in any case.
///
/// # Errors
///
/// When the session with the source has ended.
pub(super) async fn are_one(
    shared: &Shared,
    session: Option<&mut Session>,
    source: &Place,
    destination: &Place,
) -> Result<bool, CopyError> {
    let name = name(destination).filter(|name| *name == source.name());
    if shared.arguments.dry_run || name.is_none() {
        return Ok(false);
    }
    let probe = format!(".gridhaul-{:016x}", RandomState::new().hash_one(()));
    let made = destination.join(probe.as_bytes());
    if !make(shared, &made).await {
        return Ok(false);
    }
    let found = has(session, &source.join(probe.as_bytes())).await;
    remove(shared, &made).await;
    found
}

/// The last component, without links on this machine.
fn name(destination: &Place) -> Option<Vec<u8>> {
    match destination {
        Place::Local { root, beneath, .. } => {
            let path = root.join(beneath);
            Some(path.file_name()?.as_bytes().to_vec())
        }
        Place::Remote(_) => Some(destination.name().to_vec()),
    }
}

async fn make(shared: &Shared, place: &Place) -> bool {
    match place {
        Place::Local { root, beneath, .. } => fs::create_dir(root.join(beneath)).is_ok(),
        Place::Remote(url) => {
            let (Ok(path), Ok(mut session)) = (url.argument(), shared.session(&url.server).await)
            else {
                return false;
            };
            let made = session.make_new_directory(&path).await;
            shared.give_back(session);
            made.is_ok()
        }
    }
}

async fn remove(shared: &Shared, place: &Place) {
    match place {
        Place::Local { root, beneath, .. } => {
            // What cannot be removed is an empty directory.
            let _ = fs::remove_dir(root.join(beneath));
        }
        Place::Remote(url) => {
            if let (Ok(path), Ok(mut session)) = (url.argument(), shared.session(&url.server).await)
            {
                let _ = session.remove(&path, true).await;
                shared.give_back(session);
            }
        }
    }
}

async fn has(session: Option<&mut Session>, place: &Place) -> Result<bool, CopyError> {
    match (place, session) {
        (Place::Remote(url), Some(session)) => {
            let found = session.is_directory(&url.argument()?).await;
            Ok(found.map_err(CopyError::Source)? == Some(true))
        }
        (Place::Remote(_), None) => Ok(false),
        (Place::Local { path, .. }, _) => Ok(path.is_dir()),
    }
}
