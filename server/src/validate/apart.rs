//! Examines files in a process of its own: they have hashes of passwords and keys, which must not stay in the memory of the
//! processes that talk to clients.

use std::io;

use gridhaul_accounts::process::fork;
use gridhaul_accounts::socket::pair;
use rustix::process::{WaitOptions, waitpid};

use super::{Validated, files};
use crate::config::Problem;
use crate::wire::{receive_message, send_message};

/// Adds what is wrong with files to a configuration.
pub(super) fn check_files(validated: &mut Validated) {
    let errors = validated.problems.len();
    let warnings = validated.warnings.len();
    match in_child(validated, errors, warnings) {
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
fn in_child(validated: &mut Validated, errors: usize, warnings: usize) -> io::Result<Found> {
    let (tell, told) = pair()?;
    let started = fork(|| {
        files::check(validated);
        let found = (
            &validated.problems[errors..],
            &validated.warnings[warnings..],
        );
        // Without a message the parent reports that there is none.
        if let Ok(message) = postcard::to_stdvec(&found) {
            let _ = send_message(&tell, &message, &[]);
        }
    })?;
    drop(tell);
    let message = receive_message(&told, &mut Vec::new());
    waitpid(Some(started), WaitOptions::empty())?;
    let message = message?.ok_or(io::ErrorKind::UnexpectedEof)?;
    postcard::from_bytes(&message).map_err(io::Error::other)
}
