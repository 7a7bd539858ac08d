//! Several files between two servers, whose commands are sent to both before the replies to earlier ones.
//!
//! ```text
//!   destination   ALLO STOR SIZE | ALLO STOR SIZE | ALLO STOR SIZE | ...
//!   source        RETR           | RETR           | RETR           | ...
//!   data          [file] [file] [file]                 MODE E: over the same channels, one file after the other
//! ```
//!
//! With a checksum, `CKSM` follows each `RETR` and each `SIZE`. A destination whose `111` at the end of a file has told what `SIZE` said is
//! not asked for `SIZE` any more: its markers have to tell the size of each further file, unless that is empty. Once they do not, the
//! session asks for `SIZE` again. Where copies get the times of their sources, `MFMT` follows the confirmation of each one (module `dates`).
//!
//! A file is complete when the replies of both servers show that its own transfer has begun and ended, and size and checksum agree. When
//! one server refuses a file, the other one goes on with it: the data of a file can get the name of the one before or behind it. So a
//! refusal ends the pipeline, and the files that the destination may have stored without a result are in doubt
//! ([`Supply::doubt`]).

mod run;

use tokio::time::timeout;

use self::run::Pipeline;
use super::super::TransferFailure;
use super::super::ahead::{Supply, is_out_of_step};
use super::super::stall::FAREWELL;
use super::{ThirdPartyCopy, prepare};
use crate::control::ControlError;
use crate::session::Session;

/// Copies files one after the other. Each is of known size, in MODE E, and a whole file. Ends when none waits.
///
/// # Errors
///
/// When a file fails. Those that [`Supply::complete`] was not called for may be there or not. A session can be used again if
/// [`Session::is_usable`] says so.
pub async fn pipeline_between(
    source: &mut Session,
    destination: &mut Session,
    first: ThirdPartyCopy,
    supply: &mut dyn Supply<ThirdPartyCopy>,
) -> Result<(), TransferFailure> {
    let channels = prepare(source, destination, &first).await?;
    let mut pipeline = Pipeline::new(first, supply);
    pipeline.markers = destination.markers();
    let ran = pipeline.run(source, destination).await;
    destination.note_markers(pipeline.markers);
    if let Err(failure) = ran {
        // Its data connections end, and so do the transfers of the destination.
        source.control().hang_up().await;
        let is_settled = settle(destination, &mut pipeline, &failure).await;
        if !is_out_of_step(&failure) {
            pipeline.complete_dated();
        }
        pipeline.doubt();
        return Err(match is_settled {
            true => failure,
            false => TransferFailure::Unsettled(Box::new(failure)),
        });
    }
    for session in [&mut *source, &mut *destination] {
        if session.control().has_unread() {
            session.control().note_out_of_step();
        }
    }
    let [of_source, of_destination] = channels;
    source.keep(of_source);
    destination.keep(of_destination);
    Ok(())
}

/// Waits until the destination has carried out the commands that were sent ahead, or has ended the session. A `STOR` that it carries
/// out later would replace the file that was copied there in the meantime. Returns whether it has.
async fn settle(
    destination: &mut Session,
    pipeline: &mut Pipeline<'_>,
    failure: &TransferFailure,
) -> bool {
    // Without data of the refused file the destination waits for it.
    if !is_out_of_step(failure) && !pipeline.lacks_data(failure) {
        let answered = async {
            while !destination.is_usable() {
                match destination.control().next_reply().await {
                    Ok(reply) => pipeline.hear_late(reply),
                    Err(error) => return matches!(error, ControlError::Closed),
                }
            }
            true
        };
        // A server may wait for data for ever.
        if let Ok(is_settled) = timeout(FAREWELL, answered).await {
            return is_settled;
        }
    }
    destination.control().hang_up().await;
    let limit = pipeline.stall();
    let ended = async {
        loop {
            match destination.control().next_reply().await {
                Ok(reply) => pipeline.hear_late(reply),
                Err(error) => return matches!(error, ControlError::Closed),
            }
        }
    };
    timeout(limit, ended).await.unwrap_or(false)
}
