//! `-`: standard input as the source, standard output as the destination; `gridhaul cat`.

use std::time::Duration;

use gridhaul_protocol::command::TransferMode;
use gridhaul_protocol::ranges::RangeSet;
use tokio::time::sleep;

use super::super::Ending;
use super::super::arguments::{CopyArguments, ModeArgument, Parallel};
use super::super::interrupt;
use super::super::report::{Errors, Form, Report};
use super::destination::Destination;
use super::error::CopyError;
use super::job::Place;
use super::journal::Journal;
use super::shared::Shared;
use super::version::Version;
use super::worker::{FIRST_PAUSE, LONGEST_PAUSE};
use super::{wants_bars, wants_parts};
use crate::local::{LocalConfig, LocalMachine};
use crate::location::{Location, Url};
use crate::session::Session;
use crate::transfer::{
    ByteStream, Direction, FileCopy, TransferFailure, Transferred, checksum_of_server, two_party,
};

/// A copy with a standard stream.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum StreamCopy {
    /// Standard input to a file of a server.
    Put(Url),
    /// Files of servers to standard output, one after the other.
    Get(Vec<Url>),
}

impl StreamCopy {
    /// What these locations, the destination last, ask for. `None` if none of them is `-`.
    ///
    /// # Errors
    ///
    /// When the others are no files of servers, or the options are for files.
    pub(super) fn of(
        locations: &[Location],
        arguments: &CopyArguments,
    ) -> Result<Option<Self>, String> {
        let is_stream =
            |one: &Location| matches!(one, Location::Local(path) if path.as_os_str() == "-");
        if !locations.iter().any(is_stream) {
            return Ok(None);
        }
        let copy = match locations {
            [source, Location::Remote(url)] if is_stream(source) => Self::Put(url.clone()),
            [Location::Remote(url), destination] if is_stream(destination) => {
                Self::Get(vec![url.clone()])
            }
            _ => {
                return Err(
                    "- is standard input as the only source, or standard output as the destination of one file, and the other end a URL of a server; ./- is a file"
                        .to_owned(),
                );
            }
        };
        copy.check(arguments).map(|()| Some(copy))
    }

    pub(super) fn check(&self, arguments: &CopyArguments) -> Result<(), String> {
        let is_put = matches!(self, Self::Put(_));
        let wrong = [
            (arguments.recursive, "--recursive"),
            (arguments.sync.is_some(), "--sync"),
            (arguments.resume, "--resume"),
            (arguments.journal.is_some(), "--journal"),
            (arguments.times, "--times"),
            (arguments.dry_run, "--dry-run"),
            (arguments.create_dirs && !is_put, "--create-dirs"),
            (arguments.json && !is_put, "--json"),
            (arguments.part().is_some() && is_put, "--offset or --length"),
            (arguments.data.parallel != Parallel::Fixed(1), "--parallel"),
            (
                arguments.data.mode == ModeArgument::Extended,
                "--mode extended",
            ),
        ];
        match wrong.iter().find(|(is_given, _)| *is_given) {
            None => Ok(()),
            Some((_, option)) if is_put => Err(format!(
                "{option} is not possible with standard input, which is one stream without a name, a size or a time"
            )),
            Some((_, option)) => Err(format!(
                "{option} is not possible with standard output, which gets the bytes of files in their order and nothing else"
            )),
        }
    }
}

/// Runs the copy; one file after the other.
pub(super) async fn run(arguments: &CopyArguments, errors: Errors, copy: StreamCopy) -> Ending {
    let form = match (&copy, arguments.json, arguments.quiet) {
        (StreamCopy::Put(_), true, _) => Form::Json,
        (StreamCopy::Put(_), false, false) => Form::Lines,
        _ => Form::Quiet,
    };
    let machine = LocalMachine::new(LocalConfig::default());
    let report = Report::start(form, errors, wants_bars(arguments, errors), 1)
        .with_parts(wants_parts(arguments));
    let shared = Shared::new(arguments.clone(), machine, report, Journal::none(None));
    let is_closed = tokio::select! {
        is_closed = all(&shared, copy) => Some(is_closed),
        () = interrupt::arrived() => None,
    };
    if is_closed.is_none() {
        shared.report.interrupted("interrupted");
    }
    shared.close().await;
    match (is_closed, shared.report.done()) {
        (None, _) => Ending::Interrupted,
        (Some(true), _) => Ending::Closed,
        (Some(false), true) => Ending::Complete,
        (Some(false), false) => Ending::Failed,
    }
}

/// Copies all files; whether the reader of standard output has gone.
async fn all(shared: &Shared, copy: StreamCopy) -> bool {
    let checksum = shared.arguments.checksum;
    match copy {
        StreamCopy::Put(url) => {
            shared.report.finds(None);
            shared.report.found_all();
            let stream = || ByteStream::input(checksum);
            one(shared, &url, stream, ("-", &url.to_string())).await;
        }
        StreamCopy::Get(urls) => {
            for url in urls {
                let stream = || ByteStream::output(checksum);
                if one(shared, &url, stream, (&url.to_string(), "-")).await {
                    return true;
                }
            }
        }
    }
    false
}

/// Copies one file, and reports it; whether the reader of standard output has gone.
async fn one(
    shared: &Shared,
    url: &Url,
    stream: impl Fn() -> ByteStream,
    names: (&str, &str),
) -> bool {
    let (mut left, mut pause) = (shared.arguments.retry, FIRST_PAUSE);
    loop {
        let stream = stream();
        let error = match attempt(shared, url, &stream, names).await {
            Ok(done) => {
                shared.report.copied(names, &done);
                return false;
            }
            Err(_) if stream.is_closed() => return true,
            Err(error) => error,
        };
        if stream.is_used() || left == 0 || !error.is_transient(false) {
            let once = match (stream.is_used(), names.0) {
                (true, "-") => ": standard input cannot be read again",
                _ => "",
            };
            let words = format!("{error}{once}");
            shared.report.failed(Some(names), &words);
            return false;
        }
        left -= 1;
        shared.report.retries(names, &error.to_string(), pause);
        sleep(pause).await;
        pause = Duration::min(LONGEST_PAUSE, pause * 2);
    }
}

async fn attempt(
    shared: &Shared,
    url: &Url,
    stream: &ByteStream,
    names: (&str, &str),
) -> Result<Transferred, CopyError> {
    let is_put = names.0 == "-";
    if is_put && shared.arguments.create_dirs {
        let mut destination = Destination::new(shared);
        let made = destination
            .make_all(&Place::Remote(url.clone()).parent())
            .await;
        destination.finish().await;
        made?;
    }
    let mut session = shared.session(&url.server).await?;
    let copied = transfer(shared, (url, is_put), &mut session, stream, names).await;
    shared.give_back(session);
    copied
}

async fn transfer(
    shared: &Shared,
    (url, is_put): (&Url, bool),
    session: &mut Session,
    stream: &ByteStream,
    names: (&str, &str),
) -> Result<Transferred, CopyError> {
    let path = url.argument()?;
    let settings = shared.settings_in(TransferMode::Stream, &[&*session]);
    let size = match is_put {
        true => None,
        false => {
            let version = Version::of_source(session, &path, Version::default()).await?;
            shared.bytes_of(version)
        }
    };
    let files = shared.files("/".as_ref(), session.admits(settings.protection))?;
    let copy = FileCopy {
        direction: match is_put {
            true => Direction::Put,
            false => Direction::Get,
        },
        local: std::path::PathBuf::new(),
        stream: Some(stream.clone()),
        remote: path.clone(),
        part: shared.arguments.part(),
        size,
        present: RangeSet::new(),
        stack: shared.stack_here(&settings),
        settings,
        handling: shared.handling(),
        verify: None,
        first_connection: None,
        stall: shared.arguments.data.channels.stall_timeout,
    };
    let mut watch = shared.report.watch(names.0, names.1, size);
    let mut done = two_party(session, &files, &copy, &mut watch).await?;
    if let (Some(algorithm), Some(here)) = (shared.arguments.checksum, stream.take_sum()) {
        let there = checksum_of_server(session, algorithm, &path, copy.part).await;
        let there = there.map_err(|error| match is_put {
            true => CopyError::Destination(error),
            false => CopyError::Source(error),
        })?;
        done.checksum = Some(compared(here, there, is_put)?);
    }
    Ok(done)
}

fn compared(here: String, there: String, is_put: bool) -> Result<String, TransferFailure> {
    if here.eq_ignore_ascii_case(&there) {
        return Ok(here);
    }
    let (source_sum, destination_sum) = match is_put {
        true => (here, there),
        false => (there, here),
    };
    Err(TransferFailure::Checksum {
        source_sum,
        destination_sum,
        replaced: true,
    })
}
