//! Uploads under temporary names.
//!
//! ```text
//! STOR NAME ──> .NAME.gridhaul-part      (MODE E: .NAME.gridhaul-blocks)
//!                    │ all bytes are there, the checksums are right, the data is on disk if configured
//!                    v
//!                  NAME                  rename(2) replaces the old file
//! ```
//!
//! An upload that fails leaves its file, and a restart continues it. No upload changes the file at the final name before it
//! is complete; a restart of a file that exists only under its final name continues a copy.

use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use gridhaul_protocol::command::TransferMode;
use gridhaul_storage::{
    FileIdentity, FileKind, Metadata, OpenedFile, Rule, StorageError, StorageErrorKind, StoredFile,
    UploadForm, UploadOpening, is_unfinished_upload,
};
use rustix::io::Errno;

use super::copy::copy_beginning;
use super::request::Target;
use crate::context::Context;
use crate::error::{SequenceError, TransferError};
use crate::node::{Placement, Plan, SyncPolicy};
use crate::uploads::Claim;

/// How often opening is repeated because an earlier upload completes meanwhile.
const ATTEMPTS: usize = 16;

/// How long an upload waits for the other nodes of the one that it has replaced. The calls of a cancelled transfer end within
/// 100 ms.
const OTHERS_END: Duration = Duration::from_secs(2);

/// How often it tries. Closing a file wakes no process that waits for its lock on another host.
const LOCK_CHECK: Duration = Duration::from_millis(20);

/// A running upload under a temporary name.
#[derive(Debug)]
pub(crate) struct Upload {
    /// Keeps the lock on the file.
    file: OpenedFile,
    identity: FileIdentity,
    claim: Claim,
    form: UploadForm,
    temporary: PathBuf,
    name: PathBuf,
}

impl Upload {
    /// Opens the file of an upload. `None` if the transfer writes to the file at the final name: it adds to an existing
    /// file, or the path is not that of a file.
    pub(super) fn open(
        context: &Context,
        plan: &Plan,
        target: &Target<'_>,
        direct: bool,
    ) -> Result<Option<(OpenedFile, Self)>, TransferError> {
        let failed = |error| TransferError::open(target.path, error);
        let form = match plan.mode {
            TransferMode::Stream => UploadForm::Stream,
            TransferMode::Extended => UploadForm::Blocks,
        };
        let Some(temporary) = form.unfinished(target.path) else {
            return Ok(None);
        };
        if is_unfinished_upload(target.path) {
            return Err(failed(StorageError::refused("open", Rule::UploadName)));
        }
        let old = replaced(context, target.path).map_err(failed)?;
        let place = Place {
            context,
            form,
            temporary,
            name: target.path,
            private: old.is_some(),
            direct,
        };
        let opened = match target.placement {
            _ if target.is_fresh() => {
                let (file, upload) = place.open(true).map_err(failed)?;
                if file.size()? > 0 {
                    file.truncate(0)?;
                }
                (file, upload)
            }
            Placement::Replace => place.restart(old.as_ref(), target.restart.end())?,
            Placement::Append | Placement::At(_) if old.is_some() || form == UploadForm::Blocks => {
                return Ok(None);
            }
            Placement::Append | Placement::At(_) => {
                match place.at_end(target.placement).map_err(failed)? {
                    Some(opened) => opened,
                    None => return Ok(None),
                }
            }
        };
        let (file, upload) = opened;
        Ok(Some((file.with_present_size()?, upload)))
    }

    /// The path of the arriving file.
    pub(super) fn path(&self) -> &Path {
        &self.temporary
    }

    /// Lets other nodes open the file. Later uploads stay excluded until all of them have closed it.
    pub(super) fn share(&self) -> Result<(), TransferError> {
        if self.file.try_lock_shared() {
            return Ok(());
        }
        // The lock is free for a moment before it is shared.
        let busy = StorageError::refused("open", Rule::UploadRuns);
        Err(TransferError::open(&self.name, busy))
    }

    /// Gives the file its final name. It is complete.
    pub(super) fn complete(self, context: &Context, sync: SyncPolicy) -> Result<(), TransferError> {
        if !self.claim.begin_completing() {
            // The error is recorded.
            return Ok(());
        }
        let storage = &*context.storage;
        let stored = |path| StoredFile { storage, path };
        let names = (&stored(&self.temporary), &stored(&self.name));
        let rename = || {
            let durable = sync == SyncPolicy::Data;
            storage.complete_upload(&self.temporary, &self.name, self.identity, durable)
        };
        let memory = context.resources.checksums.memory();
        memory.keep_while_relabelled(&self.file, names, rename)?;
        // Earlier attempts in the other mode are obsolete.
        let others = UploadForm::ALL
            .into_iter()
            .filter(|&form| form != self.form);
        for other in others.filter_map(|form| form.unfinished(&self.name)) {
            let _ = storage.remove_file(&other);
        }
        Ok(())
    }

    /// Ends an upload that failed: its file stays for a restart, unless it is empty, and no other node has it open.
    pub(super) fn suspend(self, context: &Context) {
        if matches!(self.file.size(), Ok(0)) && self.file.try_lock() {
            self.remove(context);
        }
    }

    /// Removes the file: its content is wrong, so that a restart must not continue it.
    pub(super) fn remove(self, context: &Context) {
        // The failure of the transfer is reported, not this one.
        let _ = context.storage.remove_file(&self.temporary);
    }
}

/// Where an upload is stored.
struct Place<'a> {
    context: &'a Context,
    form: UploadForm,
    temporary: PathBuf,
    name: &'a Path,
    /// There is a file that the upload replaces: accounts that may not read it must not read the new content either. It
    /// gets the rights of the old one when it is complete.
    private: bool,
    direct: bool,
}

impl Place<'_> {
    /// Opens the temporary file for this transfer alone.
    fn open(&self, create: bool) -> Result<(OpenedFile, Upload), StorageError> {
        let storage = &self.context.storage;
        let opening = UploadOpening {
            create,
            private: self.private,
            direct: self.direct,
        };
        for _ in 0..ATTEMPTS {
            let file = storage.open_upload(&self.temporary, opening)?;
            let identity = file.identity()?;
            let uploads = &self.context.resources.uploads;
            let claim = uploads.claim(identity, &self.context.running);
            let busy = || StorageError::refused("open", Rule::UploadRuns);
            let claim = claim.ok_or_else(busy)?;
            if !self.lock(&file, &claim) {
                return Err(busy());
            }
            // The upload that was just replaced may have been complete, and the file have its final name.
            if storage.is_at(&self.temporary, identity).unwrap_or(false) {
                let upload = Upload {
                    file: file.duplicate()?,
                    identity,
                    claim,
                    form: self.form,
                    temporary: self.temporary.clone(),
                    name: self.name.to_owned(),
                };
                return Ok((file, upload));
            }
        }
        Err(StorageError::new("open", Errno::AGAIN))
    }

    /// Locks the file. The other nodes of an upload that was replaced by this one are about to close it.
    fn lock(&self, file: &OpenedFile, claim: &Claim) -> bool {
        let deadline = Instant::now() + OTHERS_END;
        while !file.try_lock() {
            let has_ended = self.context.running.has_failed() || Instant::now() >= deadline;
            if !claim.has_replaced() || has_ended {
                return false;
            }
            thread::sleep(LOCK_CHECK);
        }
        true
    }

    /// Opens the file that a restart at `offset` continues: the temporary one, else a copy of the one at the final name.
    /// Bytes that were never received must not be skipped, so one of them must be long enough.
    fn restart(
        &self,
        old: Option<&Metadata>,
        offset: u64,
    ) -> Result<(OpenedFile, Upload), TransferError> {
        let failed = |error| TransferError::open(self.name, error);
        let size = match existing(self.open(false)).map_err(failed)? {
            Some((file, upload)) => {
                let size = file.size()?;
                if size >= offset {
                    if self.form == UploadForm::Stream {
                        // All that follows arrives again, and the file has no other end.
                        file.truncate(offset)?;
                    }
                    return Ok((file, upload));
                }
                size
            }
            None => 0,
        };
        let old_size = old.map_or(0, |old| old.size);
        if old_size < offset {
            let size = size.max(old_size);
            return Err(SequenceError::RestartPastEnd { offset, size }.into());
        }
        let source = self.context.storage.open_read(self.name).map_err(failed)?;
        let (file, upload) = self.open(true).map_err(failed)?;
        file.truncate(0)?;
        match copy_beginning(self.context, &source, &file, offset) {
            Ok(()) => Ok((file, upload)),
            Err(error) => {
                // A part of the copy would be taken for received bytes.
                upload.remove(self.context);
                Err(error)
            }
        }
    }

    /// Opens the file that `APPE`, or `ESTO A` at its end, continues.
    fn at_end(&self, placement: Placement) -> Result<Option<(OpenedFile, Upload)>, StorageError> {
        let Some((file, upload)) = existing(self.open(false))? else {
            return Ok(None);
        };
        let is_end = match placement {
            Placement::At(offset) => file.size()? == offset,
            Placement::Append | Placement::Replace => true,
        };
        Ok(is_end.then_some((file, upload)))
    }
}

/// The file that an upload will replace. It must be one that the client could write to as well.
fn replaced(context: &Context, path: &Path) -> Result<Option<Metadata>, StorageError> {
    let old = existing(context.storage.stat(path))?;
    let Some(old) = old else {
        return Ok(None);
    };
    let errno = match old.kind {
        FileKind::File if old.access.write => return Ok(Some(old)),
        FileKind::File => Errno::ACCESS,
        FileKind::Directory => Errno::ISDIR,
        _ => Errno::OPNOTSUPP,
    };
    Err(StorageError::new("open", errno))
}

fn existing<T>(found: Result<T, StorageError>) -> Result<Option<T>, StorageError> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.kind() == StorageErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}
