//! `doctor --rdma` and `doctor --rdma-listen`: what RDMA does on the path between two machines, from memory to memory.
//!
//! ```text
//!   asking         connects, makes trials, and reports
//!   listening      serves one peer
//!     admission    which proves that it knows the word
//!     word         which both ends know
//!     lines        over the connection between them
//!     messages     what they tell each other
//!     stacks       the driver with the options of a trial
//!     taking       the channel of a trial, among other connections
//!     trial        moves bytes over a channel
//!   judgement      what limited the trials, and the options to use
//! ```

mod admission;
mod asking;
mod judgement;
mod lines;
mod listening;
mod messages;
mod stacks;
mod taking;
mod trial;
mod word;

use std::io::{self, BufRead as _, IsTerminal as _, Read as _, Write};
use std::time::Duration;

use zeroize::Zeroizing;

use self::stacks::Stacks;
use self::word::Word;
use super::findings::Findings;
use crate::config::{Config, DoctorArguments};

const ABOUT: &str = "rdma";

/// How long an end may take for an answer for which it does nothing.
const ANSWER: Duration = Duration::from_secs(15);

/// Measures with a peer, or lets one measure.
///
/// # Errors
///
/// When the output fails.
pub(super) fn examine(
    report: &mut Findings,
    output: &mut impl Write,
    config: &Config,
    arguments: &DoctorArguments,
) -> io::Result<()> {
    let Some(stacks) = Stacks::of(config) else {
        report.error(
            ABOUT,
            "this program was built without it",
            "install one that was built with it",
        );
        return Ok(());
    };
    if let Some(port) = arguments.rdma_listen {
        listening::listen(report, output, port, &stacks)?;
    }
    if let Some(peer) = &arguments.rdma {
        match read_word()? {
            Some(word) => asking::ask(report, peer, &word, time(arguments), &stacks),
            None => report.error(
                ABOUT,
                "the line is not a word",
                "type the word that doctor --rdma-listen shows on the other machine, four groups of four letters",
            ),
        }
    }
    Ok(())
}

/// The time of each trial.
fn time(arguments: &DoctorArguments) -> Duration {
    const USUAL: u8 = 3;
    Duration::from_secs(arguments.rdma_seconds.unwrap_or(USUAL).into())
}

/// The word from standard input: not from the command line, which other users of this machine see.
fn read_word() -> io::Result<Option<Word>> {
    const MOST_BYTES: u64 = 256;

    if io::stdin().is_terminal() {
        eprint!("word: ");
    }
    let mut line = Zeroizing::new(String::new());
    let read = io::stdin().lock().take(MOST_BYTES).read_line(&mut line);
    match read {
        Ok(_) => Ok(Word::parse(line.trim())),
        Err(error) if error.kind() == io::ErrorKind::InvalidData => Ok(None),
        Err(error) => Err(error),
    }
}
