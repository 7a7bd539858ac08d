//! The commands that tell of files: facts, sizes, times and listings.

use std::sync::Arc;

use gridhaul_protocol::path::{PathArgument, RemotePath};
use gridhaul_protocol::reply::Reply;
use gridhaul_protocol::time::TimeValue;
use gridhaul_shares::{Grant, Source};
use gridhaul_stack::Cancel;
use gridhaul_storage::StorageError;
use gridhaul_transfer::LineSource;
use jiff::Timestamp;
use rustix::io::Errno;
use tokio::runtime::Handle;

use super::control::Control;
use super::files::Files;
use super::listing::{self, Clock, Form, Kind, Listing, Style};
use super::{End, Session, User, replies};
use crate::threads::Threads;

impl Session {
    /// `SIZE`: also of directories, as globus-gridftp-server 13.24 has it.
    pub(super) async fn size(
        &mut self,
        control: &mut Control,
        user: &User,
        path: &PathArgument,
    ) -> Result<Reply, End> {
        self.on_path(control, user, Some(path), |files, path| {
            let found = files.storage.stat(path.as_path())?;
            Ok(Reply::new(213, found.size.to_string()))
        })
        .await
    }

    /// `MDTM`.
    pub(super) async fn modified(
        &mut self,
        control: &mut Control,
        user: &User,
        path: &PathArgument,
    ) -> Result<Reply, End> {
        self.on_path(control, user, Some(path), |files, path| {
            let found = files.storage.stat(path.as_path())?;
            let modified = Timestamp::try_from(found.modified).unwrap_or(Timestamp::UNIX_EPOCH);
            Ok(Reply::new(213, TimeValue(modified).to_string()))
        })
        .await
    }

    /// `MLST`. The name is told as the client wrote it.
    pub(super) async fn facts(
        &mut self,
        control: &mut Control,
        user: &User,
        path: Option<PathArgument>,
    ) -> Result<Reply, End> {
        let selection = self.negotiated.settings().facts;
        let given = path.clone();
        self.on_path(control, user, path.as_ref(), move |files, path| {
            let found = files.storage.stat(path.as_path())?;
            let directory = path.as_path().parent().unwrap_or(path.as_path());
            let name = given
                .as_ref()
                .map_or(path.as_bytes(), PathArgument::as_bytes);
            let link = listing::link_target(directory, &found);
            let mut line = Vec::new();
            if let Some(facts) = listing::facts(&found, Kind::Entry, link.as_deref()) {
                facts.append_line(&mut line, selection, name);
            }
            Ok(Reply::spaced(
                250,
                [b"status of ", name].concat(),
                [line],
                "End.",
            ))
        })
        .await
    }

    /// `STAT` of a path.
    pub(super) async fn stat(
        &mut self,
        control: &mut Control,
        user: &User,
        path: &PathArgument,
    ) -> Result<Reply, End> {
        let given = path.clone();
        self.on_path(control, user, Some(path), move |files, path| {
            let found = files.storage.stat(path.as_path())?;
            let mut line = Vec::new();
            listing::append_long(&mut line, &found, given.as_bytes(), &Clock::now());
            Ok(Reply::spaced(
                213,
                [b"status of ", given.as_bytes()].concat(),
                [line],
                "End.",
            ))
        })
        .await
    }

    /// The lines that `LIST`, `NLST`, `MLSD` and `MLSR` send over a data channel.
    pub(super) fn lines(
        &self,
        user: &User,
        form: Form,
        path: RemotePath,
        given: Option<&PathArgument>,
    ) -> LineSource {
        let style = self.style(form);
        let given = given.cloned();
        let storage = user.node.storage();
        let listers = self.shared.threads.listers(&user.source);
        LineSource {
            open: Arc::new(move |_| {
                let given = given.as_ref().map(PathArgument::as_bytes);
                let storage = (Arc::clone(&storage), listers.clone());
                let listing = Listing::open(storage, style, path.as_path(), given)?;
                Ok(Box::new(listing))
            }),
        }
    }

    fn style(&self, form: Form) -> Style {
        Style {
            form,
            facts: self.negotiated.settings().facts,
        }
    }

    /// `MLSC`: a listing on the control channel, which is sent as it is made.
    pub(super) async fn list_on_control(
        &mut self,
        control: &mut Control,
        user: &User,
        given: Option<&PathArgument>,
    ) -> Result<(), End> {
        let path = match user.path(given) {
            Ok(path) => path,
            Err(error) => {
                self.send(control, &replies::storage_error(&error));
                return Ok(());
            }
        };
        let style = self.style(Form::AllFacts);
        let listers = self.shared.threads.listers(&user.source);
        let mut parked = Parked::new(&self.shared.threads, user);
        let mut begun = false;
        loop {
            // A thread makes one piece. While the client reads that, none is held.
            let (at, listers) = (path.clone(), listers.clone());
            let (threads, source) = (Arc::clone(&self.shared.threads), user.source.clone());
            let listing = parked.listing.take();
            let turn = async move {
                match listing {
                    Some((listing, share)) => (Some(listing), share),
                    None => (None, threads.listing(&source).await),
                }
            };
            let make = move |files: &Files, (listing, share)| {
                let storage = (Arc::clone(&files.storage), listers);
                let mut listing = match listing {
                    Some(listing) => listing,
                    None => Box::new(Listing::open(storage, style, at.as_path(), None)?),
                };
                let piece = next_piece(&mut listing, &files.cancel)?;
                Ok(((listing, share), piece))
            };
            let made = self.work_in_turn(control, user, turn, None, make);
            let end = match made.await? {
                Ok((listing, piece)) => {
                    parked.listing = Some(listing);
                    if !begun {
                        let first = [b"Contents of ", path.as_bytes()].concat();
                        control.raw(&Reply::encode_first_line(250, first));
                        begun = true;
                    }
                    if !piece.is_empty() {
                        control.raw(&piece);
                        control.flush().await?;
                        continue;
                    }
                    Reply::encode_last_line(250, "End.")
                }
                Err(error) if !begun => {
                    self.send(control, &replies::storage_error(&error));
                    return Ok(());
                }
                // The last line ends the reply, whatever its code.
                Err(error) => {
                    Reply::encode_last_line(451, format!("The listing broke off: {error}."))
                }
            };
            control.raw(&end);
            return Ok(());
        }
    }
}

/// A listing that waits for its reader. To close it may block, so that is done on a thread for files.
struct Parked {
    listing: Option<(Box<Listing>, Grant)>,
    threads: Arc<Threads>,
    source: Source,
}

impl Parked {
    fn new(threads: &Arc<Threads>, user: &User) -> Self {
        Self {
            listing: None,
            threads: Arc::clone(threads),
            source: user.source.clone(),
        }
    }
}

impl Drop for Parked {
    fn drop(&mut self) {
        let Some(listing) = self.listing.take() else {
            return;
        };
        let (threads, source) = (Arc::clone(&self.threads), self.source.clone());
        // Without a runtime the server has ended, and this thread may close it.
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(async move {
                let thread = threads.file_thread(&source).await;
                thread.run(move || drop(listing)).await
            });
        }
    }
}

/// Bytes of a listing that are made at a time.
const PIECE_BYTES: usize = 64 * 1024;

/// Some lines of a listing as lines of a reply; empty at the end.
fn next_piece(listing: &mut Listing, cancel: &Cancel) -> Result<Vec<u8>, StorageError> {
    let mut piece = Vec::new();
    while piece.len() < PIECE_BYTES
        && let Some(lines) = listing.next()
    {
        if cancel.is_cancelled() {
            return Err(StorageError::new("scandir", Errno::CANCELED));
        }
        piece.extend(inner_lines(&lines?));
    }
    Ok(piece)
}

/// Lines of a listing as lines of a reply.
fn inner_lines(piece: &[u8]) -> Vec<u8> {
    let mut lines = Vec::with_capacity(piece.len() + piece.len() / 8);
    let mut rest = piece;
    while let Some(end) = rest.windows(2).position(|pair| pair == b"\r\n") {
        lines.extend_from_slice(&Reply::encode_inner_line(&rest[..end]));
        rest = &rest[end + 2..];
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_a_listing_begin_with_a_space_in_a_reply() {
        assert_eq!(
            inner_lines(b"Type=dir; a\r\nType=dir; b\r\n"),
            b" Type=dir; a\r\n Type=dir; b\r\n"
        );
    }
}
