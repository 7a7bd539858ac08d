//! Commands that change names, directories and attributes of files.

use gridhaul_protocol::command::{Command, FileMode, SiteCommand, Text};
use gridhaul_protocol::path::{PathArgument, RemotePath};
use gridhaul_protocol::reply::Reply;
use gridhaul_protocol::time::TimeValue;
use gridhaul_storage::{FileKind, StorageError};
use gridhaul_transfer::Relabel;
use jiff::Timestamp;
use rustix::io::Errno;

use super::call::Call;
use super::end::End;
use super::replies;
use super::unfinished;

#[derive(Debug)]
pub(super) enum NamespaceCommand {
    /// `PWD`.
    CurrentDirectory,
    /// `CWD` and `CDUP`.
    ChangeDirectory(PathArgument),
    /// `MKD`.
    MakeDirectory(PathArgument),
    /// `RMD`.
    RemoveDirectory(PathArgument),
    /// `DELE`.
    RemoveFile(PathArgument),
    /// `SITE RDEL`.
    RemoveTree(PathArgument),
    /// `RNFR`.
    RenameFrom(PathArgument),
    /// `RNTO`.
    RenameTo(PathArgument),
    /// `MFMT`.
    SetModified {
        modified: Timestamp,
        path: PathArgument,
    },
    /// `SITE UTIME`.
    SiteUtime {
        modified: Timestamp,
        path: PathArgument,
    },
    /// `SITE CHMOD`.
    SetMode { mode: FileMode, path: PathArgument },
    /// `SITE CHGRP`.
    SetGroup { group: Text, path: PathArgument },
    /// `SITE TRNC`.
    Truncate { length: u64, path: PathArgument },
    /// `SITE SYMLINKFROM`.
    SymlinkFrom(PathArgument),
    /// `SITE SYMLINKTO`.
    SymlinkTo(PathArgument),
}

/// The first halves of commands that come in two, `RNFR` and `SITE SYMLINKFROM`, for audit records.
#[derive(Debug, Default)]
pub(super) struct FirstHalves {
    pub(super) renamed: Option<RemotePath>,
    pub(super) linked: Option<PathArgument>,
}

#[derive(Debug, Default)]
pub(super) struct Namespace {
    /// Why the last `RNFR` failed.
    rename_refusal: Option<StorageError>,
    pub(super) halves: FirstHalves,
}

impl Namespace {
    /// Call it before each command: only `NOOP` may come between `RNFR` and `RNTO`.
    pub(super) fn observe(&mut self, command: &Command) {
        let is_second_half = matches!(
            command,
            Command::Rnto(_) | Command::Noop | Command::Site(SiteCommand::SymlinkTo(_))
        );
        if !is_second_half {
            self.halves = FirstHalves::default();
        }
        if !matches!(command, Command::Rnto(_) | Command::Noop) {
            self.rename_refusal = None;
        }
    }

    pub(super) async fn execute(
        &mut self,
        call: &mut Call<'_>,
        command: NamespaceCommand,
    ) -> Result<Reply, End> {
        match command {
            NamespaceCommand::CurrentDirectory => Ok(current_directory(call)),
            NamespaceCommand::ChangeDirectory(path) => change_directory(call, &path).await,
            NamespaceCommand::MakeDirectory(path) => make_directory(call, &path).await,
            NamespaceCommand::RemoveDirectory(path) => {
                call.on_path(Some(&path), |files, path| {
                    files.storage.remove_directory(path.as_path())?;
                    Ok(replies::ok())
                })
                .await
            }
            NamespaceCommand::RemoveFile(path) => {
                let uploads = call.user.uploads;
                call.on_path(Some(&path), move |files, path| {
                    unfinished::remove_file(&*files.storage, path.as_path(), uploads)?;
                    Ok(replies::ok())
                })
                .await
            }
            NamespaceCommand::RemoveTree(path) => remove_tree(call, &path).await,
            NamespaceCommand::RenameFrom(path) => self.rename_from(call, &path).await,
            NamespaceCommand::RenameTo(path) => self.rename_to(call, &path).await,
            NamespaceCommand::SetModified { modified, path } => {
                let done = modified_reply(modified, &path);
                set_modified(call, modified, &path, done).await
            }
            NamespaceCommand::SiteUtime { modified, path } => {
                set_modified(call, modified, &path, replies::ok()).await
            }
            NamespaceCommand::SetMode { mode, path } => {
                call.on_path(Some(&path), move |files, path| {
                    let change = Relabel::Mode(u32::from(mode.bits()));
                    files.node.relabel(path.as_path(), change)?;
                    Ok(replies::ok())
                })
                .await
            }
            NamespaceCommand::SetGroup { group, path } => {
                call.on_path(Some(&path), move |files, path| {
                    let change = Relabel::Group(group.as_str());
                    files.node.relabel(path.as_path(), change)?;
                    Ok(replies::ok())
                })
                .await
            }
            NamespaceCommand::Truncate { length, path } => truncate(call, length, &path).await,
            NamespaceCommand::SymlinkFrom(target) => {
                self.halves.linked = Some(target.clone());
                call.negotiated.symlink_from(target);
                Ok(Reply::new(
                    350,
                    "OK. Send SITE SYMLINKTO with symlink name.",
                ))
            }
            NamespaceCommand::SymlinkTo(link) => symlink(call, &link).await,
        }
    }

    /// `RNFR`: the file must exist.
    async fn rename_from(
        &mut self,
        call: &mut Call<'_>,
        path: &PathArgument,
    ) -> Result<Reply, End> {
        let found = match call.user.path(Some(path)) {
            Ok(path) => {
                let found = call.work({
                    let path = path.clone();
                    move |files| files.storage.stat(path.as_path())
                });
                found.await?.map(|_| path)
            }
            Err(error) => Err(error),
        };
        Ok(match found {
            Ok(path) => {
                self.halves.renamed = Some(path.clone());
                call.negotiated.rename_from(path);
                Reply::new(350, "OK. Send RNTO with destination name.")
            }
            Err(error) => {
                let reply = replies::storage_error(&error);
                self.rename_refusal = Some(error);
                reply
            }
        })
    }

    async fn rename_to(&mut self, call: &mut Call<'_>, to: &PathArgument) -> Result<Reply, End> {
        let from = match call.negotiated.take_rename_from() {
            Ok(from) => from,
            Err(refusal) => {
                return Ok(match self.rename_refusal.take() {
                    Some(error) => replies::rename_refused(refusal, &error),
                    None => refusal.reply(),
                });
            }
        };
        call.on_path(Some(to), move |files, to| {
            let change = Relabel::Name(to.as_path());
            files.node.relabel(from.as_path(), change)?;
            Ok(replies::ok())
        })
        .await
    }
}

fn current_directory(call: &Call<'_>) -> Reply {
    let directory = call.user.directory.quoted();
    Reply::new(257, [&directory, &b" is current directory."[..]].concat())
}

async fn change_directory(call: &mut Call<'_>, argument: &PathArgument) -> Result<Reply, End> {
    let directory = match call.user.path(Some(argument)) {
        Ok(directory) => directory.without_parents(),
        Err(error) => return Ok(replies::storage_error(&error)),
    };
    let path = directory.clone();
    let found = call
        .work(move |files| files.storage.stat(path.as_path()))
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
            call.user.directory = directory;
            Reply::new(250, "CWD command successful.")
        }
    })
}

async fn make_directory(call: &mut Call<'_>, path: &PathArgument) -> Result<Reply, End> {
    call.on_path(Some(path), |files, path| {
        files.storage.make_directory(path.as_path())?;
        // RFC 959, appendix II: the path in quotation marks comes first. Python's ftplib finds no path elsewhere;
        // globus-gridftp-server 13.24 puts it after other words.
        let text = [&path.quoted(), &b" created successfully."[..]].concat();
        Ok(Reply::new(257, text))
    })
    .await
}

async fn remove_tree(call: &mut Call<'_>, path: &PathArgument) -> Result<Reply, End> {
    call.on_path(Some(path), |files, path| {
        let cancelled = || files.cancel.is_cancelled();
        files.storage.remove_tree(path.as_path(), &cancelled)?;
        Ok(replies::ok())
    })
    .await
}

async fn set_modified(
    call: &mut Call<'_>,
    modified: Timestamp,
    path: &PathArgument,
    done: Reply,
) -> Result<Reply, End> {
    call.on_path(Some(path), move |files, path| {
        files.node.set_modified(path.as_path(), modified.into())?;
        Ok(done)
    })
    .await
}

/// The answer to `MFMT` (draft-somers-ftp-mfxx 3.1): the fact that was set, and the path as the client wrote it.
/// rclone 1.60 treats any code other than 213 as an error; globus-gridftp-server 13.24 answers `250 OK.`
fn modified_reply(modified: Timestamp, path: &PathArgument) -> Reply {
    let fact = format!("Modify={}; ", TimeValue(modified));
    Reply::new(213, [fact.as_bytes(), path.as_bytes()].concat())
}

async fn truncate(call: &mut Call<'_>, length: u64, path: &PathArgument) -> Result<Reply, End> {
    call.on_path(Some(path), move |files, path| {
        if files.storage.stat(path.as_path())?.size < length {
            return Ok(Reply::new(
                500,
                "Current size is smaller than truncate size.",
            ));
        }
        files.storage.truncate(path.as_path(), length)?;
        Ok(replies::ok())
    })
    .await
}

/// The link gets the target as the client wrote it. The target is checked when the link is followed.
async fn symlink(call: &mut Call<'_>, link: &PathArgument) -> Result<Reply, End> {
    let target = match call.negotiated.take_symlink_from() {
        Ok(target) => target,
        Err(refusal) => return Ok(refusal.reply()),
    };
    call.on_path(Some(link), move |files, link| {
        files.storage.symlink(target.as_path(), link.as_path())?;
        Ok(replies::ok())
    })
    .await
}
