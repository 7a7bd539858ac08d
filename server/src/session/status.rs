//! The commands that tell of files: facts, sizes, times and listings.

use std::sync::Arc;

use gridhaul_protocol::path::{PathArgument, RemotePath};
use gridhaul_protocol::reply::Reply;
use gridhaul_protocol::time::TimeValue;
use gridhaul_storage::StorageError;
use gridhaul_transfer::LineSource;
use jiff::Timestamp;
use tokio::sync::mpsc;

use super::control::Control;
use super::entry::{self, Clock, Kind};
use super::lines::{Form, Style};
use super::listing::Listing;
use super::{End, Session, User, replies};

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
            let link = entry::link_target(directory, &found);
            let mut line = Vec::new();
            if let Some(facts) = entry::facts(&found, Kind::Entry, link.as_deref()) {
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
            entry::append_long(&mut line, &found, given.as_bytes(), &Clock::now());
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
        LineSource {
            open: Arc::new(move |_| {
                let given = given.as_ref().map(PathArgument::as_bytes);
                let listing = Listing::open(Arc::clone(&storage), style, path.as_path(), given)?;
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
        let (sender, mut pieces) = mpsc::channel(2);
        let storage = user.node.storage();
        let first = Reply::encode_first_line(250, [b"Contents of ", path.as_bytes()].concat());
        let listed = tokio::task::spawn_blocking(move || {
            let listing = Listing::open(storage, style, path.as_path(), None)?;
            // Nobody listens any more when the client is gone.
            if sender.blocking_send(first).is_err() {
                return Ok(());
            }
            for piece in listing {
                if sender.blocking_send(inner_lines(&piece?)).is_err() {
                    break;
                }
            }
            Ok(())
        });
        let mut begun = false;
        while let Some(piece) = pieces.recv().await {
            begun = true;
            control.raw(&piece);
            control.flush().await?;
        }
        let end = listed
            .await
            .unwrap_or_else(|_| Err(StorageError::new("thread", rustix::io::Errno::IO)));
        match (end, begun) {
            (Ok(()), _) => control.raw(&Reply::encode_last_line(250, "End.")),
            (Err(error), false) => self.send(control, &replies::storage_error(&error)),
            // The last line ends the reply, whatever its code.
            (Err(error), true) => {
                control.raw(&Reply::encode_last_line(
                    451,
                    format!("The listing broke off: {error}."),
                ));
            }
        }
        Ok(())
    }
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
