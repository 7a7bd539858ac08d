//! `MLSC`: a listing on the control channel.

use std::sync::Arc;

use gridhaul_protocol::path::PathArgument;
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
use crate::threads::Threads;

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
    let style = Style {
        form: Form::AllFacts,
        facts: call.negotiated.settings().facts,
    };
    let listers = call.context.shared.threads.listers(&call.user.source);
    let mut parked = Parked::new(&call.context.shared.threads, &call.user.source);
    let mut begun = false;
    loop {
        // A thread makes one piece. While the client reads it, the session holds no thread.
        let (at, listers) = (path.clone(), listers.clone());
        let (threads, source) = (Arc::clone(&parked.threads), parked.source.clone());
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
        let made = call.work_after(turn, None, make);
        let end = match made.await? {
            Ok((listing, piece)) => {
                parked.listing = Some(listing);
                if !begun {
                    let first = [b"Contents of ", path.as_bytes()].concat();
                    call.control.raw(&Reply::encode_first_line(250, first));
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

/// A listing that waits for its reader. Closing it may block, so a thread for files does that.
struct Parked {
    listing: Option<(Box<Listing>, Grant)>,
    threads: Arc<Threads>,
    source: Source,
}

impl Parked {
    fn new(threads: &Arc<Threads>, source: &Source) -> Self {
        Self {
            listing: None,
            threads: Arc::clone(threads),
            source: source.clone(),
        }
    }
}

impl Drop for Parked {
    fn drop(&mut self) {
        let Some(listing) = self.listing.take() else {
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
