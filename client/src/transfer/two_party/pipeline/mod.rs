//! Several files without waiting in between: commands are sent before the replies to earlier ones, as `globus-url-copy -pp` does.
//!
//! ```text
//!   commands   ALLO STOR | ALLO STOR | ALLO STOR | ...      at most so many files ahead
//!   data                 [file] [file] [file]               MODE E: over the same channels, one file after the other
//!   replies                       200 125 226 | 200 125 226 | ...
//! ```
//!
//! `SIZE` follows each `STOR`, until the `111` at the end of a file have told what `SIZE` said: from then on they tell the size of each
//! file that is not empty. With a checksum, `CKSM` follows each `STOR` and its `SIZE`, or `RETR`. Where uploads get the times of their
//! sources, `MFMT` follows the confirmation of each one (module `dates`).
//!
//! Replies have no names, so they are matched by their order. A file is complete when the replies of the server show that
//! its own transfer has begun and ended, all bytes have moved here, and the server has stored as many. Anything else ends the pipeline: data channels do not say which file
//! a block belongs to, so after an error of one file they cannot be used for the next one. The files that are not complete are
//! copied by themselves, and that attempt has the error of the file.
//!
//! ```text
//!   run       the commands and replies of all files, in their order
//!   here      their transfers on this machine
//!   flight    one file
//! ```

mod flight;
mod here;
mod run;

use std::sync::Arc;
use std::time::Duration;

use gridhaul_protocol::command::Command;
use gridhaul_transfer::NodeSession;
use tokio::time::timeout;

use self::here::HereEnd;
use self::run::Pipeline;
use super::super::TransferFailure;
use super::super::ahead::{Supply, is_out_of_step};
use super::{Direction, FileCopy, open_port};
use crate::control::ControlError;
use crate::session::Session;

/// How long the replies to commands that were sent ahead for files from the server may take after an error.
const DRAIN: Duration = Duration::from_secs(2);

/// Copies files one after the other. Each is of known size, in MODE E, and a whole file. Ends when none waits.
///
/// # Errors
///
/// When a file fails. Those that [`Supply::complete`] was not called for may be there or not. The session can be used again if
/// [`Session::is_usable`] says so.
pub async fn pipeline(
    session: &mut Session,
    files: &Arc<dyn NodeSession>,
    first: FileCopy,
    supply: &mut dyn Supply<FileCopy>,
) -> Result<(), TransferFailure> {
    let copy = first.clone();
    let of_server = |error| copy.of_server(error);
    session.settle(&copy.settings).await.map_err(of_server)?;
    if copy.direction == Direction::Put {
        session.settle_markers().await.map_err(of_server)?;
    }
    let channels = copy.channels(files);
    let are_open = session.takes_kept(&channels);
    if !are_open {
        open_port(session, &**files, &copy).await?;
    }
    let here = HereEnd::new(files, are_open);
    let mut pipeline = Pipeline::new(here, session, &copy, first, supply);
    let ended = pipeline.run(session).await;
    session.note_markers(pipeline.markers);
    if let Err(failure) = ended {
        pipeline.here.give_up().await;
        files.release();
        let is_settled = settle(session, &mut pipeline, &failure).await;
        if !is_out_of_step(&failure) {
            pipeline.complete_dated();
        }
        pipeline.doubt();
        return Err(match is_settled || copy.direction == Direction::Get {
            true => failure,
            false => TransferFailure::Unsettled(Box::new(failure)),
        });
    }
    if session.control().has_unread() {
        session.control().note_out_of_step();
    }
    session.keep(channels);
    Ok(())
}

/// Waits until the server has carried out the commands that were sent ahead. A `STOR` that it carries out later would replace the file
/// that was copied there in the meantime. Returns whether it has.
async fn settle(
    session: &mut Session,
    pipeline: &mut Pipeline<'_>,
    failure: &TransferFailure,
) -> bool {
    let limit = match pipeline.model.direction {
        // Late commands change nothing.
        Direction::Get | Direction::List => DRAIN,
        Direction::Put => pipeline.model.stall,
    };
    let is_matched = !is_out_of_step(failure);
    if !is_matched {
        session.control().note_out_of_step();
        // Its reply is the last one, and the connection ends behind it.
        if session.control().send(&Command::Quit).await.is_err() {
            return false;
        }
    }
    let settled = async {
        loop {
            if is_matched && session.is_usable() {
                return true;
            }
            match session.control().next_reply().await {
                Ok(reply) => pipeline.hear_late(reply),
                Err(error) => return matches!(error, ControlError::Closed),
            }
        }
    };
    timeout(limit, settled).await.unwrap_or(false)
}
