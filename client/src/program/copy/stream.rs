//! `-`: standard input as the source, standard output as the destination; `gridhaul cat`. Devices and pipes of this machine in their place.

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use gridhaul_protocol::command::TransferMode;
use gridhaul_protocol::ranges::RangeSet;
use tokio::time::sleep;

use super::super::Ending;
use super::super::arguments::{CopyArguments, ModeArgument, Parallel, StripeArgument};
use super::super::interrupt;
use super::super::report::{Errors, Form, Report};
use super::destination::Destination;
use super::error::CopyError;
use super::job::Place;
use super::journal::Journal;
use super::settings::how;
use super::shared::Shared;
use super::special;
use super::version::Version;
use super::worker::{FIRST_PAUSE, LONGEST_PAUSE};
use super::{wants_bars, wants_parts};
use crate::local::LocalMachine;
use crate::location::{Location, Url};
use crate::session::Session;
use crate::transfer::{
    ByteStream, Direction, FileCopy, TransferFailure, Transferred, checksum_of_server, two_party,
};

/// A copy with a stream at the end of this machine.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum StreamCopy {
    /// A stream to a file of a server.
    Put(End, Url),
    /// Files of servers to a stream, one after the other.
    Get(Vec<Url>, End),
}

/// The end of this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum End {
    /// `-`: standard input, or standard output.
    Standard,
    /// A device or a pipe.
    Special(PathBuf),
}

impl End {
    /// `None` for a file, a directory, or what there is not yet.
    fn of(location: &Location) -> Option<Self> {
        match location {
            Location::Local(path) if path.as_os_str() == "-" => Some(Self::Standard),
            Location::Local(path) if special::is_special(path) => Some(Self::Special(path.clone())),
            _ => None,
        }
    }

    /// As users write it.
    fn words(&self) -> String {
        match self {
            Self::Standard => "-".to_owned(),
            Self::Special(path) => Location::Local(path.clone()).to_string(),
        }
    }

    /// Opens it; `None` is a standard stream.
    async fn open(&self, writes: bool) -> Result<Option<Arc<OwnedFd>>, CopyError> {
        let Self::Special(path) = self else {
            return Ok(None);
        };
        let opened = special::open(path, writes).await;
        let failed = |error| CopyError::File(path.display().to_string(), error);
        opened.map(Some).map_err(failed)
    }
}

impl StreamCopy {
    /// What these locations, the destination last, ask for. `None` if none of them is a stream. `/dev/null` is none as the destination,
    /// because it takes the blocks of MODE E.
    ///
    /// # Errors
    ///
    /// When the others are no files of servers, or the options are for files.
    pub(super) fn of(
        locations: &[Location],
        arguments: &CopyArguments,
    ) -> Result<Option<Self>, String> {
        let copy = match locations {
            [source, Location::Remote(url)] => {
                End::of(source).map(|end| Self::Put(end, url.clone()))
            }
            [Location::Remote(_), Location::Local(path)] if special::is_null(path) => None,
            [Location::Remote(url), destination] => {
                End::of(destination).map(|end| Self::Get(vec![url.clone()], end))
            }
            _ => None,
        };
        let is_standard = |one: &Location| End::of(one) == Some(End::Standard);
        match copy {
            Some(copy) => copy.check(arguments).map(|()| Some(copy)),
            None if locations.iter().any(is_standard) => Err(
                "- is standard input as the only source, or standard output as the destination of one file, and the other end a URL of a server; ./- is a file"
                    .to_owned(),
            ),
            None => Ok(None),
        }
    }

    pub(super) fn check(&self, arguments: &CopyArguments) -> Result<(), String> {
        let (is_put, end) = match self {
            Self::Put(end, _) => (true, end),
            Self::Get(_, end) => (false, end),
        };
        let is_standard = *end == End::Standard;
        let is_part = arguments.part().is_some();
        let wrong = [
            (arguments.recursive, "--recursive"),
            (arguments.sync.is_some(), "--sync"),
            (arguments.resume, "--resume"),
            (arguments.journal.is_some(), "--journal"),
            (arguments.times, "--times"),
            (arguments.dry_run, "--dry-run"),
            (!arguments.keeps_partial(), "--no-partial"),
            (arguments.data.stripe == StripeArgument::Always, "--stripe"),
            (arguments.create_dirs && !is_put, "--create-dirs"),
            (arguments.json && !is_put && is_standard, "--json"),
            (is_part && is_put && is_standard, "--offset or --length"),
            // A device may have no end, so its bytes can be limited.
            (
                arguments.offset.is_some_and(|offset| offset > 0) && is_put,
                "--offset",
            ),
            // A device or a pipe in the place of a file is one stream also then.
            (
                is_standard && arguments.data.parallel != Parallel::Fixed(1),
                "--parallel",
            ),
            (
                is_standard && arguments.data.mode == ModeArgument::Extended,
                "--mode extended",
            ),
        ];
        let Some((_, option)) = wrong.iter().find(|(is_given, _)| *is_given) else {
            return Ok(());
        };
        let name = match (end, is_put) {
            (End::Standard, true) => "standard input".to_owned(),
            (End::Standard, false) => "standard output".to_owned(),
            (End::Special(path), _) => path.display().to_string(),
        };
        Err(match is_put {
            true => format!(
                "{option} is not possible with {name}, which is one stream without a name, a size or a time"
            ),
            false => format!(
                "{option} is not possible with {name}, which gets the bytes of files in their order and nothing else"
            ),
        })
    }

    /// What the user sees of the copy: nothing where its bytes go.
    fn form(&self, arguments: &CopyArguments) -> Form {
        let is_to_stdout = match self {
            Self::Put(..) => false,
            Self::Get(_, End::Standard) => true,
            Self::Get(_, End::Special(path)) => special::is_stdout(path),
        };
        match (is_to_stdout, arguments.json, arguments.quiet) {
            (false, true, _) => Form::Json,
            (false, false, false) => Form::Lines,
            _ => Form::Quiet,
        }
    }
}

/// Runs the copy; one file after the other.
pub(super) async fn run(arguments: &CopyArguments, errors: Errors, copy: StreamCopy) -> Ending {
    let machine = LocalMachine::new(arguments.data.local());
    let report = Report::start(
        copy.form(arguments),
        errors,
        wants_bars(arguments, errors),
        1,
    )
    .with_parts(wants_parts(arguments))
    .with_more(arguments.verbose > 0);
    let shared = Shared::new(arguments.clone(), machine, report, Journal::none(None));
    let is_closed = tokio::select! {
        is_closed = all(&shared, &copy) => Some(is_closed),
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

/// Copies all files; whether the reader of the stream has gone.
async fn all(shared: &Shared, copy: &StreamCopy) -> bool {
    let arguments = &shared.arguments;
    let (is_put, end) = match copy {
        StreamCopy::Put(end, _) => (true, end),
        StreamCopy::Get(_, end) => (false, end),
    };
    let file = match end.open(!is_put).await {
        Ok(file) => file,
        Err(error) => {
            shared.report.failed(None, &error.to_string());
            return false;
        }
    };
    let sum = arguments.checksum;
    match copy {
        StreamCopy::Put(end, url) => {
            let most = arguments.part().and_then(|part| part.length);
            shared.report.finds(most);
            shared.report.found_all();
            let stream = || match &file {
                Some(file) => ByteStream::reading(Arc::clone(file), most, sum),
                None => ByteStream::input(sum),
            };
            let names = (end.words(), url.to_string());
            one(shared, (url, true), stream, (&names.0, &names.1)).await
        }
        StreamCopy::Get(urls, end) => {
            let stream = || match &file {
                Some(file) => ByteStream::writing(Arc::clone(file), sum),
                None => ByteStream::output(sum),
            };
            for url in urls {
                let names = (url.to_string(), end.words());
                if one(shared, (url, false), stream, (&names.0, &names.1)).await {
                    return true;
                }
            }
            false
        }
    }
}

/// Copies one file, and reports it; whether the reader of the stream has gone.
async fn one(
    shared: &Shared,
    (url, is_put): (&Url, bool),
    stream: impl Fn() -> ByteStream,
    names: (&str, &str),
) -> bool {
    let (mut left, mut pause) = (shared.arguments.retry, FIRST_PAUSE);
    loop {
        let stream = stream();
        let error = match attempt(shared, (url, is_put), &stream, names).await {
            Ok(done) => {
                shared.report.copied(names, &done);
                return false;
            }
            Err(_) if stream.is_closed() => return true,
            Err(error) => error,
        };
        if stream.is_used() || left == 0 || !error.is_transient(false) {
            let words = match (stream.is_used() && is_put, names.0) {
                (true, "-") => format!("{error}: standard input cannot be read again"),
                (true, name) => format!("{error}: {name} is not read again"),
                (false, _) => error.to_string(),
            };
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
    (url, is_put): (&Url, bool),
    stream: &ByteStream,
    names: (&str, &str),
) -> Result<Transferred, CopyError> {
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
        local: PathBuf::new(),
        stream: Some(stream.clone()),
        remote: path.clone(),
        part: shared.arguments.part(),
        size,
        present: RangeSet::new(),
        stack: shared.stack_here(&settings),
        settings,
        handling: shared.handling(),
        modified: None,
        verify: None,
        first_connection: None,
        stall: shared.arguments.data.channels.stall_timeout,
    };
    let mut watch = shared.report.watch(names.0, names.1, size);
    watch.says(|| how(&copy.settings, Some(&copy.stack), &copy.present));
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
