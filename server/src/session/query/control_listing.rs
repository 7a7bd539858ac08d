//! `MLSC`: a listing on the control channel.

use std::sync::Arc;

use gridhaul_protocol::path::{PathArgument, RemotePath};
use gridhaul_protocol::reply::Reply;
use gridhaul_shares::{Grant, Source};
use gridhaul_stack::Cancel;
use gridhaul_storage::StorageError;
use rustix::io::Errno;
use tokio::runtime::Handle;

use crate::session::call::Call;
use crate::session::end::End;
use crate::session::files::Files;
use crate::session::listing::{Form, Listing, Style};
use crate::session::replies;
use crate::threads::{Listers, Threads};

/// Bytes of a listing that are made at a time.
const PIECE_BYTES: usize = 64 * 1024;

/// Sends a listing while it is made. Returns the reply if it failed before anything was sent.
pub(super) async fn list_on_control(
    call: &mut Call<'_>,
    given: Option<&PathArgument>,
) -> Result<Option<Reply>, End> {
    let path = match call.user.path(given) {
        Ok(path) => path,
        Err(error) => return Ok(Some(replies::storage_error(&error))),
    };
    let first = [b"Contents of ", path.as_bytes()].concat();
    let mut listing = ControlListing::new(call, path);
    let mut begun = false;
    loop {
        let end = match listing.next_piece(call).await? {
            Ok(piece) => {
                if !begun {
                    call.control.raw(&Reply::encode_first_line(250, &first));
                    begun = true;
                }
                if !piece.is_empty() {
                    call.control.raw(&piece);
                    call.control.flush().await?;
                    continue;
                }
                Reply::encode_last_line(250, "End.")
            }
            Err(error) if !begun => return Ok(Some(replies::storage_error(&error))),
            // The last line ends the reply with any code.
            Err(error) => Reply::encode_last_line(451, format!("The listing broke off: {error}.")),
        };
        call.control.raw(&end);
        return Ok(None);
    }
}

/// A listing that is made piece by piece. While the client reads a piece, it holds no thread.
struct ControlListing {
    path: RemotePath,
    style: Style,
    listers: Listers,
    threads: Arc<Threads>,
    source: Source,
    /// The listing between two pieces, with its share.
    parked: Option<(Box<Listing>, Grant)>,
}

impl ControlListing {
    fn new(call: &Call<'_>, path: RemotePath) -> Self {
        let (threads, source) = (&call.context.shared.threads, &call.user.source);
        Self {
            path,
            style: Style {
                form: Form::AllFacts,
                facts: call.negotiated.settings().facts,
            },
            listers: threads.listers(source),
            threads: Arc::clone(threads),
            source: source.clone(),
            parked: None,
        }
    }

    /// Some lines of the reply; empty at the end.
    async fn next_piece(
        &mut self,
        call: &mut Call<'_>,
    ) -> Result<Result<Vec<u8>, StorageError>, End> {
        let parked = self.parked.take();
        let (threads, source) = (Arc::clone(&self.threads), self.source.clone());
        let ready = async move {
            match parked {
                Some((listing, share)) => (Some(listing), share),
                None => (None, threads.listing(&source).await),
            }
        };
        let (path, style, listers) = (self.path.clone(), self.style, self.listers.clone());
        let make = move |files: &Files, (listing, share)| {
            let storage = (Arc::clone(&files.storage), listers);
            let mut listing = match listing {
                Some(listing) => listing,
                None => Box::new(Listing::open(storage, style, path.as_path(), None)?),
            };
            let piece = next_piece(&mut listing, &files.cancel)?;
            Ok(((listing, share), piece))
        };
        let made = call.work_after(ready, None, make).await?;
        Ok(made.map(|(parked, piece)| {
            self.parked = Some(parked);
            piece
        }))
    }
}

/// Closing a listing may block, so a thread for files does that.
impl Drop for ControlListing {
    fn drop(&mut self) {
        let Some(listing) = self.parked.take() else {
            return;
        };
        let (threads, source) = (Arc::clone(&self.threads), self.source.clone());
        // Without a runtime the server has ended, and this thread may block.
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(async move {
                let thread = threads.file_thread(&source).await;
                thread.run(move || drop(listing)).await
            });
        }
    }
}

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
