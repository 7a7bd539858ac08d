//! Examines files in a process of its own: they have hashes of passwords and keys, which must not stay in the memory of the
//! processes that talk to clients.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use gridhaul_accounts::process::fork;
use gridhaul_accounts::socket::pair;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;
use rustix::process::{Signal, WaitOptions, kill_process, waitpid};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Validated, files};
use crate::config::Problem;
use crate::wire::{receive_message, send_message};

/// Adds what is wrong with files to a configuration.
pub(super) fn check_files(validated: &mut Validated) {
    match of_files(validated) {
        Ok((more_errors, more_warnings)) => {
            validated.problems.extend(more_errors);
            validated.warnings.extend(more_warnings);
        }
        Err(error) => validated.problems.push(Problem {
            key: None,
            place: None,
            text: format!("the files of the configuration cannot be examined: {error}"),
        }),
    }
}

type Found = (Vec<Problem>, Vec<Problem>);

/// The errors and warnings after those that are known.
fn of_files(validated: &mut Validated) -> io::Result<Found> {
    let (errors, warnings) = (validated.problems.len(), validated.warnings.len());
    in_child(None, || {
        files::check(validated);
        (
            validated.problems.split_off(errors),
            validated.warnings.split_off(warnings),
        )
    })
}

/// The result of work in a child process. Must be called while this process has one thread.
///
/// # Errors
///
/// When the process cannot be started, ends without a result, or exceeds the limit. Then it is killed.
pub(crate) fn in_child<T: Serialize + DeserializeOwned>(
    limit: Option<Duration>,
    work: impl FnOnce() -> T,
) -> io::Result<T> {
    let (tell, told) = pair()?;
    let started = fork(|| {
        // Without a message the parent reports that there is none.
        if let Ok(message) = postcard::to_stdvec(&work()) {
            let _ = send_message(&tell, &message, &[]);
        }
    })?;
    drop(tell);
    let message = wait(&told, limit)
        .and_then(|()| Ok(receive_message(&told, &mut Vec::new())?))
        .inspect_err(|_| {
            // It may have ended.
            let _ = kill_process(started, Signal::KILL);
        });
    waitpid(Some(started), WaitOptions::empty())?;
    let message = message?.ok_or(io::ErrorKind::UnexpectedEof)?;
    postcard::from_bytes(&message).map_err(io::Error::other)
}

/// Waits until there is something to receive.
fn wait(socket: &OwnedFd, limit: Option<Duration>) -> io::Result<()> {
    let limit = limit.map(Timespec::try_from).transpose();
    let limit = limit.map_err(io::Error::other)?;
    let mut polled = [PollFd::new(socket, PollFlags::IN)];
    match retry_on_intr(|| poll(&mut polled, limit.as_ref()))? {
        0 => Err(io::ErrorKind::TimedOut.into()),
        _ => Ok(()),
    }
}
