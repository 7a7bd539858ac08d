//! What a server does not have, or must not keep: missing files, and unfinished uploads.

use std::os::unix::ffi::OsStrExt as _;

use gridhaul_protocol::command::Command;
use gridhaul_protocol::feature::SimpleFeature;
use gridhaul_protocol::path::PathArgument;
use gridhaul_storage::UploadForm;

use super::Session;
use crate::control::ControlError;

impl Session {
    /// Whether the server says that nothing is at a path. It says so by facts, or by `SIZE` if it has none; `false` if it has neither.
    ///
    /// # Errors
    ///
    /// When the server refuses the question for another reason, or the session has ended.
    pub(crate) async fn is_absent(&mut self, path: &PathArgument) -> Result<bool, ControlError> {
        let command = match self.has_facts() {
            true => Command::Mlst(Some(path.clone())),
            false if self.has(SimpleFeature::Size) => Command::Size(path.clone()),
            false => return Ok(false),
        };
        match self.control.must(&command).await {
            Ok(_) => Ok(false),
            Err(error) if error.is_about_absence() => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// Removes the unfinished uploads of a file, which servers with temporary names keep beside it. Returns whether there was one.
    ///
    /// # Errors
    ///
    /// When the session has ended before one was removed.
    pub(crate) async fn remove_unfinished(
        &mut self,
        path: &PathArgument,
    ) -> Result<bool, ControlError> {
        let mut has_removed = false;
        for form in UploadForm::ALL {
            let unfinished = form.unfinished(path.as_path());
            let unfinished =
                unfinished.and_then(|path| PathArgument::new(path.as_os_str().as_bytes()));
            let Some(unfinished) = unfinished else {
                continue;
            };
            match self.remove(&unfinished, false).await {
                Ok(()) => has_removed = true,
                // Most servers have none.
                Err(ControlError::Refused { .. }) => {}
                // The session is not usable, which tells the caller that the other name is left.
                Err(_) if has_removed => break,
                Err(error) => return Err(error),
            }
        }
        Ok(has_removed)
    }
}
