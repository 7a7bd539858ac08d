//! `gridhaul copy`.
//!
//! ```text
//!   find ──> walk ──> [bounded queue of jobs] ──> worker, worker, ...   each with sessions and data channels of its own
//! ```

mod destination;
mod error;
mod find;
mod job;
mod jobs;
mod journal;
mod left;
mod list;
mod looked;
mod loops;
mod partial;
mod pattern;
mod present;
mod preview;
mod reach;
mod renewed;
mod settings;
mod shared;
mod special;
mod stream;
mod streams;
mod tree;
mod version;
mod walk;
mod worker;

use std::path::Path;
use std::sync::Arc;

use tokio::task::JoinSet;
use tokio::time::timeout;

pub(super) use self::find::Errand;
use self::find::find;
use self::job::Place;
use self::jobs::queue;
use self::journal::{Journal, JournalError};
pub(super) use self::list::ListError;
use self::list::Pair;
use self::shared::Shared;
use self::stream::{End, StreamCopy};
use self::worker::Worker;
use super::Ending;
use super::arguments::{
    CatArguments, CopyArguments, ModeArgument, ProgressArgument, RdmaArguments, RdmaWay,
    StripeArgument,
};
use super::interrupt;
use super::report::{Errors, Form, Report};
use crate::local::LocalMachine;
use crate::location::{Location, LocationError, Url};

/// Files that wait for a worker: enough that workers never wait for a listing, few enough for any memory.
const QUEUE: usize = 1024;

pub(super) async fn run(arguments: &CopyArguments) -> Ending {
    if let Some(list) = &arguments.from_file {
        return match list::read(list, &Ok) {
            Ok(pairs) => run_list(arguments, pairs).await,
            Err(error) => usage(&error.to_string()),
        };
    }
    let locations = arguments.locations.iter();
    let locations = locations.map(|text| Location::parse(text));
    if arguments.part().is_some() && arguments.locations.len() > 2 {
        return usage("--offset and --length are for one file: name one source");
    }
    let locations = match locations.collect::<Result<Vec<_>, _>>() {
        Ok(locations) => locations,
        Err(error) => return usage(&error.to_string()),
    };
    // Options may stand between locations, so clap cannot demand two of them.
    let Some(errand) = Errand::of(locations.clone()) else {
        return usage("the destination is missing: name a source and, last, the destination");
    };
    let all = vec![errand];
    if let Err(error) = check_ways(arguments, &all) {
        return usage(&error);
    }
    if let Some(ending) = standard_stream(arguments, Errors::Own, &locations).await {
        return ending;
    }
    errands(arguments.clone(), Errors::Own, all).await.0
}

/// Copies standard input, or to standard output, if one of the locations is `-`, or a device or a pipe.
pub(super) async fn standard_stream(
    arguments: &CopyArguments,
    errors: Errors,
    locations: &[Location],
) -> Option<Ending> {
    match StreamCopy::of(locations, arguments) {
        Ok(None) => None,
        Ok(Some(copy)) => Some(stream::run(arguments, errors, copy).await),
        Err(error) => Some(usage_as(errors, &error)),
    }
}

/// `gridhaul rput` and `gridhaul rget`.
pub(super) async fn over_rdma(arguments: &RdmaArguments, way: RdmaWay) -> Ending {
    match arguments.as_copy(way) {
        Ok(arguments) => run(&arguments).await,
        Err(error) => usage(&error),
    }
}

/// Whether files go the way that the name of the command says, and some go the way that an option is for.
fn check_ways(arguments: &CopyArguments, errands: &[Errand]) -> Result<(), String> {
    if let Some(rdma) = &arguments.rdma {
        for errand in errands {
            rdma.check(&errand.sources, &errand.destination)?;
        }
    }
    if arguments.data.stripe == StripeArgument::Always {
        let other = [
            (arguments.data.mode == ModeArgument::Stream, "--mode stream"),
            (arguments.relay, "--relay"),
        ];
        if let Some((_, other)) = other.iter().find(|(is_given, _)| *is_given) {
            return Err(format!(
                "--stripe is for MODE E, and {other} moves a file as one stream: leave one of them out"
            ));
        }
        if arguments.rdma.is_some() {
            return Err(
                "RFTP has no command for several data nodes: leave --stripe out, or use gridhaul copy --stack rdma --stripe"
                    .to_owned(),
            );
        }
    }
    if arguments.relay && !errands.iter().any(Errand::is_between_servers) {
        return Err(
            "--relay is for copies between two servers, and nothing here is one: leave it out"
                .to_owned(),
        );
    }
    Ok(())
}

/// `gridhaul cat`.
pub(super) async fn cat(arguments: &CatArguments) -> Ending {
    let urls = arguments.urls.iter().map(|text| Url::parse(text));
    let urls = match urls.collect::<Result<Vec<_>, _>>() {
        Ok(urls) => urls,
        Err(error) => return usage(&error.to_string()),
    };
    let copy = StreamCopy::Get(urls, End::Standard);
    let arguments = arguments.as_copy();
    match copy.check(&arguments) {
        Ok(()) => stream::run(&arguments, Errors::Own, copy).await,
        Err(error) => usage(&error),
    }
}

/// Copies the files of a list. Its journal is that of a command line with all of them.
async fn run_list(arguments: &CopyArguments, pairs: Vec<Pair>) -> Ending {
    let (words, all): (Vec<_>, Vec<_>) = pairs.into_iter().map(Pair::parts).unzip();
    let arguments = CopyArguments {
        locations: words.into_iter().flatten().collect(),
        ..arguments.clone()
    };
    if let Err(error) = check_ways(&arguments, &all) {
        return usage(&error);
    }
    errands(arguments, Errors::Own, all).await.0
}

/// What a list of globus-url-copy asks for. `rewrite` may change or refuse each location.
///
/// # Errors
///
/// When it cannot be read, or a line is not two locations.
pub(super) fn of_list(
    path: &Path,
    rewrite: &dyn Fn(String) -> Result<String, LocationError>,
) -> Result<Vec<Errand>, ListError> {
    let pairs = list::read(path, rewrite)?;
    Ok(pairs.into_iter().map(Errand::from).collect())
}

fn usage(words: &str) -> Ending {
    usage_as(Errors::Own, words)
}

fn usage_as(errors: Errors, words: &str) -> Ending {
    match errors {
        Errors::Own => eprintln!("gridhaul: {words}"),
        Errors::Globus => eprintln!("error: {words}"),
    }
    Ending::Usage
}

/// Copies what several command lines would. Returns the files that were not copied, too, as URLs.
pub(super) async fn errands(
    mut arguments: CopyArguments,
    errors: Errors,
    errands: Vec<Errand>,
) -> (Ending, Vec<(String, String)>) {
    let form = match (arguments.json, arguments.quiet) {
        (true, _) => Form::Json,
        (_, true) => Form::Quiet,
        _ => Form::Lines,
    };
    let machine = LocalMachine::new(arguments.data.local());
    if let Err(words) = check_stacks(&arguments, &errands, &machine) {
        return (usage_as(errors, &words), Vec::new());
    }
    let files = errands.iter().map(Errand::len).sum();
    let report = Report::start(form, errors, wants_bars(&arguments, errors), files)
        .with_parts(wants_parts(&arguments))
        .with_more(arguments.verbose > 0);
    let (journal, note) = match journal(&arguments) {
        Ok(journal) => journal,
        Err(error) => {
            report.failed(None, &error.to_string());
            report.done();
            return (Ending::Failed, Vec::new());
        }
    };
    if let Some(note) = note {
        report.notes(&note);
    }
    // A list may have a million. Only the journal is about their words.
    arguments.locations = Vec::new();
    let shared = Shared::new(arguments, machine, report, journal);
    let shared = Arc::new(shared);
    let mut workers = JoinSet::new();
    let is_interrupted = tokio::select! {
        () = copy(&shared, errands, &mut workers) => false,
        () = interrupt::arrived() => true,
    };
    let ending = match is_interrupted {
        true => {
            workers.shutdown().await;
            stop(&shared, errors).await;
            Ending::Interrupted
        }
        false => end(&shared).await,
    };
    let left = shared.report.failures().into_iter();
    let left = left.map(|(source, destination)| (as_url(&source), as_url(&destination)));
    (ending, left.collect())
}

/// Whether this machine has the drivers of the stacks that it takes part in.
fn check_stacks(
    arguments: &CopyArguments,
    errands: &[Errand],
    machine: &LocalMachine,
) -> Result<(), String> {
    let is_here = arguments.relay || errands.iter().any(Errand::is_here);
    let of_rdma = arguments.rdma.as_ref().map(|rdma| &rdma.stack);
    // Between servers they know their drivers.
    let of_both = arguments.data.channels.stack.iter().filter(|_| is_here);
    for stack in of_both.chain(of_rdma) {
        let checked = machine.check_stack(stack);
        checked.map_err(|error| format!("--stack {stack}: {error}"))?;
    }
    Ok(())
}

/// Every file was tried. What failed stays in the journal.
async fn end(shared: &Shared) -> Ending {
    shared.close().await;
    shared.tell_of_journal();
    match shared.report.done() {
        true => {
            shared.journal.remove();
            Ending::Complete
        }
        false => Ending::Failed,
    }
}

/// What a report calls a file, as a URL: names may have quotes and ends of lines.
fn as_url(words: &str) -> String {
    let location = Location::parse(words).unwrap_or_else(|_| Location::Local(words.into()));
    Place::of(&location).map_or_else(|_| words.to_owned(), |place| place.url())
}

/// globus-url-copy shows no bars, and what scripts make of its output must stay.
fn wants_bars(arguments: &CopyArguments, errors: Errors) -> bool {
    errors == Errors::Own && !arguments.no_progress && !arguments.dry_run
}

/// Whether each data channel or stripe of a file is told.
fn wants_parts(arguments: &CopyArguments) -> bool {
    arguments.progress == ProgressArgument::Channels
}

/// The journal: that of an earlier copy, or a new one, and what to tell about it. A copy that is not resumed also goes on without one.
fn journal(arguments: &CopyArguments) -> Result<(Journal, Option<String>), JournalError> {
    let place = match &arguments.journal {
        Some(path) => Ok(path.clone()),
        None => Journal::place(&arguments.locations),
    };
    // A file whose part was copied is not complete.
    let keeps_none = arguments.dry_run || arguments.part().is_some();
    if arguments.resume {
        let (journal, note) = Journal::resume(place?)?;
        return Ok(match keeps_none {
            true => (journal.only_read(), note),
            false => (journal, note),
        });
    }
    let journal = match place {
        _ if keeps_none => Journal::none(None),
        Ok(place) if arguments.journal.is_some() => Journal::named(place)?,
        Ok(place) => Journal::new(place),
        Err(error) => Journal::none(Some(&error)),
    };
    Ok((journal, None))
}

/// Ends a copy that was interrupted. The transfers have ended with their sessions, and both ends keep what has arrived. What is complete
/// is told first, because a server may not answer any more.
async fn stop(shared: &Arc<Shared>, errors: Errors) {
    let arguments = &shared.arguments;
    let can_resume = errors == Errors::Own && !arguments.dry_run && arguments.part().is_none();
    shared.tell_of_journal();
    shared.report.interrupted(match can_resume {
        true => "interrupted; the same command with --resume copies what is left",
        false => "interrupted",
    });
    shared.report.done();
    // They are few, and empty directories are quick to remove.
    let _ = timeout(interrupt::SERVER_GRACE, loops::remove_made(shared)).await;
    partial::remove_all(shared).await;
}

async fn copy(shared: &Arc<Shared>, errands: Vec<Errand>, workers: &mut JoinSet<()>) {
    let (jobs, queue) = queue(QUEUE);
    for _ in 0..shared.arguments.concurrency {
        workers.spawn(Worker::new(Arc::clone(shared)).run(queue.clone()));
    }
    drop(queue);
    find(shared, errands, jobs).await;
    shared.report.found_all();
    while let Some(ended) = workers.join_next().await {
        if ended.is_err() {
            let words = "a worker ended early, which is a defect of this program";
            shared.report.failed(None, words);
        }
    }
}
