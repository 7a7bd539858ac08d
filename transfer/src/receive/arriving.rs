//! A file that gets its final name when it is complete.

use std::path::Path;

use gridhaul_storage::OpenedFile;

use super::request::Target;
use super::unnamed::Unnamed;
use super::upload::Upload;
use crate::channels::DataChannels;
use crate::context::Context;
use crate::error::TransferError;
use crate::node::{Plan, SyncPolicy};

/// A file that gets its final name when it is complete.
#[derive(Debug)]
pub(crate) enum Arriving {
    /// Under a temporary name.
    Temporary(Upload),
    /// Without a name.
    Unnamed(Unnamed),
}

impl Arriving {
    /// Opens the file of an upload. `None` if the transfer writes to the file at the final name.
    pub(super) fn open(
        context: &Context,
        plan: &Plan,
        target: &Target<'_>,
        channels: &DataChannels,
    ) -> Result<Option<(OpenedFile, Self)>, TransferError> {
        // Files without a name are not opened for direct I/O, so a driver that would use it for all others gets none.
        if !channels.bypasses_cache()
            && let Some((file, unnamed)) = Unnamed::open(context, plan, target)
        {
            return Ok(Some((file, Self::Unnamed(unnamed))));
        }
        let opened = Upload::open(context, plan, target, channels.wants_direct())?;
        Ok(opened.map(|(file, upload)| (file, Self::Temporary(upload))))
    }

    /// The path of the arriving file, if it has one of its own.
    pub(super) fn path(&self) -> Option<&Path> {
        match self {
            Self::Temporary(upload) => Some(upload.path()),
            Self::Unnamed(_) => None,
        }
    }

    /// As [`Upload::share`].
    pub(super) fn share(&self) -> Result<(), TransferError> {
        match self {
            Self::Temporary(upload) => upload.share(),
            // It is of one node.
            Self::Unnamed(_) => Ok(()),
        }
    }

    /// Gives the file its final name. It is complete.
    pub(super) fn complete(self, context: &Context, sync: SyncPolicy) -> Result<(), TransferError> {
        match self {
            Self::Temporary(upload) => upload.complete(context, sync),
            Self::Unnamed(unnamed) => unnamed.complete(context),
        }
    }

    /// Ends an upload that failed. What has arrived stays for a restart, if it has a name.
    pub(super) fn suspend(self, context: &Context) {
        if let Self::Temporary(upload) = self {
            upload.suspend(context);
        }
    }

    /// Removes the file: its content is wrong, so that a restart must not continue it.
    pub(super) fn remove(self, context: &Context) {
        if let Self::Temporary(upload) = self {
            upload.remove(context);
        }
    }
}
