//! `gridhaul copy`.
//!
//! ```text
//!   find ──> walk ──> [bounded queue of jobs] ──> worker, worker, ...   each with sessions and data channels of its own
//! ```

mod destination;
mod error;
mod find;
mod job;
mod journal;
mod shared;
mod walk;
mod worker;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::sync::{Mutex, mpsc};
use tokio::task::JoinSet;

use self::error::CopyError;
use self::find::find;
use self::job::Place;
use self::journal::{Journal, JournalError};
use self::shared::Shared;
use self::worker::Worker;
use super::Ending;
use super::arguments::CopyArguments;
use super::report::{Form, Report};
use crate::local::{LocalConfig, LocalMachine};
use crate::location::{Location, LocationError};

/// Files that wait for a worker: enough that workers never wait for a listing, few enough for any memory.
const QUEUE: usize = 1024;

pub(super) async fn run(arguments: &CopyArguments) -> Ending {
    let form = match (arguments.json, arguments.quiet) {
        (true, _) => Form::Json,
        (_, true) => Form::Quiet,
        _ => Form::Lines,
    };
    let (sources, destination) = match locations(&arguments.locations) {
        Ok(locations) => locations,
        Err(error) => {
            eprintln!("gridhaul: {error}");
            return Ending::Usage;
        }
    };
    let machine = LocalMachine::new(LocalConfig::default());
    if let Some(stack) = &arguments.data.stack
        && let Err(error) = machine.check_stack(stack)
    {
        eprintln!("gridhaul: --stack {stack}: {error}");
        return Ending::Usage;
    }
    let report = Report::start(form, sources.len());
    let places = places(arguments, &sources, &destination);
    let (root, sources, destination) = match places {
        Ok(places) => places,
        Err(error) => {
            report.failed(None, &error.to_string());
            report.done();
            return Ending::Failed;
        }
    };
    let journal = match journal(arguments) {
        Ok(journal) => journal,
        Err(error) => {
            report.failed(None, &error.to_string());
            report.done();
            return Ending::Failed;
        }
    };
    let shared = Shared::new(arguments.clone(), machine, root, report, journal);
    let shared = Arc::new(shared);
    copy(&shared, &sources, &destination).await;
    shared.close().await;
    match shared.report.done() {
        true => {
            shared.journal.remove();
            Ending::Complete
        }
        false => Ending::Failed,
    }
}

/// The journal: that of an earlier copy, or a new one. A copy that is not resumed also goes on without one.
fn journal(arguments: &CopyArguments) -> Result<Journal, JournalError> {
    let place = match &arguments.journal {
        Some(path) => Ok(path.clone()),
        None => Journal::place(&arguments.locations),
    };
    match (arguments.resume, arguments.dry_run) {
        (true, _) => Journal::resume(place?),
        (false, true) => Ok(Journal::none()),
        (false, false) => Ok(place.map_or_else(|_| Journal::none(), Journal::new)),
    }
}

async fn copy(shared: &Arc<Shared>, sources: &[Place], destination: &Place) {
    let (jobs, queue) = mpsc::channel(QUEUE);
    let queue = Arc::new(Mutex::new(queue));
    let mut workers = JoinSet::new();
    for _ in 0..shared.arguments.concurrency {
        workers.spawn(Worker::new(Arc::clone(shared)).run(Arc::clone(&queue)));
    }
    find(shared, sources, destination, jobs).await;
    while let Some(ended) = workers.join_next().await {
        if ended.is_err() {
            shared.report.failed(
                None,
                "a worker ended early, which is a defect of this program",
            );
        }
    }
}

fn locations(texts: &[String]) -> Result<(Vec<Location>, Location), LocationError> {
    let mut all = texts
        .iter()
        .map(|text| Location::parse(text))
        .collect::<Result<Vec<_>, _>>()?;
    let destination = all.pop();
    // clap demands two at least.
    let destination = destination.unwrap_or_else(|| Location::Local(PathBuf::from(".")));
    Ok((all, destination))
}

/// The root of local files, the sources and the destination. Names that a server sends must not lead out of the destination,
/// so a directory of this machine that receives a tree is the root.
fn places(
    arguments: &CopyArguments,
    sources: &[Location],
    destination: &Location,
) -> Result<(PathBuf, Vec<Place>, Place), CopyError> {
    let is_remote = |location: &&Location| matches!(location, Location::Remote(_));
    let receives_trees = arguments.recursive && sources.iter().any(|one| is_remote(&one));
    let sources = sources.iter().map(Place::of);
    let sources = sources.collect::<Result<Vec<_>, _>>()?;
    Ok(match destination {
        Location::Local(path) if receives_trees => {
            let failed = |error| CopyError::File(path.display().to_string(), error);
            match fs::create_dir(path) {
                Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
                    return Err(failed(error));
                }
                _ => {}
            }
            let root = fs::canonicalize(path).map_err(failed)?;
            let destination = Place::Local {
                path: path.clone(),
                beneath: PathBuf::new(),
            };
            (root, sources, destination)
        }
        _ => (Path::new("/").to_owned(), sources, Place::of(destination)?),
    })
}
