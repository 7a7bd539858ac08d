//! Uploads without a name ([`UploadName::Unnamed`]).
//!
//! A temporary name is for bytes that a restart continues. It costs more calls than the bytes of a small file: to make it, to lock and
//! check it, to rename it and to check that again.

use std::time::SystemTime;

use gridhaul_storage::{OpenedFile, UnnamedFile, is_unfinished_upload};

use super::request::Target;
use crate::context::Context;
use crate::error::TransferError;
use crate::node::{Plan, SyncPolicy, UploadName};

/// A running upload whose file has no name.
#[derive(Debug)]
pub(crate) struct Unnamed(Box<dyn UnnamedFile>);

impl Unnamed {
    /// Opens the file of an upload. `None` if the plan wants a name, the file has to have one, or cannot be without one.
    pub(super) fn open(
        context: &Context,
        plan: &Plan,
        target: &Target<'_>,
    ) -> Option<(OpenedFile, Self)> {
        let handling = &plan.handling;
        let may_be = handling.upload == UploadName::Unnamed
            && target.is_fresh()
            // Other nodes open the file by its name, ...
            && plan.share.is_none()
            // ... and so do checksums, ...
            && handling.checksums.is_empty()
            && handling.demands.checksums.is_empty()
            // ... and only the directory of a name is synced.
            && handling.sync == SyncPolicy::None
            && !is_unfinished_upload(target.path);
        if !may_be {
            return None;
        }
        let (file, unnamed) = context.storage.open_unnamed(target.path)?;
        Some((file, Self(unnamed)))
    }

    /// Sets the modification time of the file, which is complete.
    pub(super) fn set_modified(&self, modified: SystemTime) -> Result<(), TransferError> {
        Ok(self.0.set_modified(modified)?)
    }

    /// Gives the file its name. It is complete.
    pub(super) fn complete(self, context: &Context) -> Result<(), TransferError> {
        if context.running.has_failed() {
            // The error is recorded.
            return Ok(());
        }
        Ok(self.0.give_name()?)
    }
}
