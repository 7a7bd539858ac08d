//! The commands that work on names: directories, renaming, removing, facts of single files.

use gridhaul_protocol::path::PathArgument;
use gridhaul_protocol::reply::Reply;
use gridhaul_protocol::time::TimeValue;
use gridhaul_storage::{FileKind, StorageError};
use gridhaul_transfer::Relabel;
use jiff::Timestamp;
use rustix::io::Errno;

use super::control::Control;
use super::{End, Session, User, replies};

/// What most commands answer that changed something.
pub(super) fn ok() -> Reply {
    Reply::new(250, "OK.")
}

/// The answer to `MFMT` (draft-somers-ftp-mfxx 3.1): the fact that was set, and the path as the client wrote it.
/// rclone 1.60 takes any other code than 213 for an error; globus-gridftp-server 13.24 answers `250 OK.`
pub(super) fn modified(modified: Timestamp, path: &PathArgument) -> Reply {
    let fact = format!("Modify={}; ", TimeValue(modified));
    Reply::new(213, [fact.as_bytes(), path.as_bytes()].concat())
}

impl Session {
    pub(super) async fn change_directory(
        &mut self,
        control: &mut Control,
        user: &User,
        argument: &PathArgument,
    ) -> Result<Reply, End> {
        let directory = match user.path(Some(argument)) {
            Ok(directory) => directory.without_parents(),
            Err(error) => return Ok(replies::storage_error(&error)),
        };
        let path = directory.clone();
        let found = self
            .work(control, user, move |files| {
                files.storage.stat(path.as_path())
            })
            .await?;
        Ok(match found {
            Err(error) => replies::directory_error(&directory, &error),
            Ok(found) if found.kind != FileKind::Directory => {
                Reply::new(550, format!("{directory}: Not a directory."))
            }
            Ok(found) if !found.access.search => {
                replies::directory_error(&directory, &StorageError::new("chdir", Errno::ACCESS))
            }
            Ok(_) => {
                self.login.change_directory(directory);
                Reply::new(250, "CWD command successful.")
            }
        })
    }

    pub(super) async fn make_directory(
        &mut self,
        control: &mut Control,
        user: &User,
        path: &PathArgument,
    ) -> Result<Reply, End> {
        self.on_path(control, user, Some(path), |files, path| {
            files.storage.make_directory(path.as_path())?;
            // RFC 959, appendix II: the path in quotation marks comes first. Python's ftplib takes what follows
            // for no path at all, and globus-gridftp-server 13.24 has the path behind other words.
            let text = [&path.quoted(), &b" created successfully."[..]].concat();
            Ok(Reply::new(257, text))
        })
        .await
    }

    pub(super) async fn remove_directory(
        &mut self,
        control: &mut Control,
        user: &User,
        path: &PathArgument,
    ) -> Result<Reply, End> {
        self.on_path(control, user, Some(path), |files, path| {
            files.storage.remove_directory(path.as_path())?;
            Ok(ok())
        })
        .await
    }

    pub(super) async fn remove_file(
        &mut self,
        control: &mut Control,
        user: &User,
        path: &PathArgument,
    ) -> Result<Reply, End> {
        self.on_path(control, user, Some(path), |files, path| {
            files.storage.remove_file(path.as_path())?;
            Ok(ok())
        })
        .await
    }

    /// `RNFR`: the file must be there.
    pub(super) async fn rename_from(
        &mut self,
        control: &mut Control,
        user: &User,
        path: &PathArgument,
    ) -> Result<Reply, End> {
        let found = match user.path(Some(path)) {
            Ok(path) => {
                let found = self.work(control, user, {
                    let path = path.clone();
                    move |files| files.storage.stat(path.as_path())
                });
                found.await?.map(|_| path)
            }
            Err(error) => Err(error),
        };
        Ok(match found {
            Ok(path) => {
                self.negotiated.rename_from(path);
                Reply::new(350, "OK. Send RNTO with destination name.")
            }
            Err(error) => {
                let reply = replies::storage_error(&error);
                self.rename_refusal = Some(error);
                reply
            }
        })
    }

    pub(super) async fn rename_to(
        &mut self,
        control: &mut Control,
        user: &User,
        to: &PathArgument,
    ) -> Result<Reply, End> {
        let from = match self.negotiated.take_rename_from() {
            Ok(from) => from,
            Err(refusal) => {
                return Ok(match self.rename_refusal.take() {
                    Some(error) => replies::rename_refused(refusal, &error),
                    None => refusal.reply(),
                });
            }
        };
        self.on_path(control, user, Some(to), move |files, to| {
            let change = Relabel::Name(to.as_path());
            files.node.relabel(from.as_path(), change)?;
            Ok(ok())
        })
        .await
    }

    /// `MFMT` and `SITE UTIME`, which answer `done`.
    pub(super) async fn set_modified(
        &mut self,
        control: &mut Control,
        user: &User,
        modified: Timestamp,
        path: &PathArgument,
        done: Reply,
    ) -> Result<Reply, End> {
        self.on_path(control, user, Some(path), move |files, path| {
            files.node.set_modified(path.as_path(), modified.into())?;
            Ok(done)
        })
        .await
    }
}
