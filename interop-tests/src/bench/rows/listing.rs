//! The listing of a directory with very many names.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::{Group, Row, Work};
use crate::bench::arena::{BenchArena, Place, RunError};
use crate::bench::files::Files;
use crate::bench::sample::{Contender, Reading, Sample, Unit};
use crate::bench::target::{Bound, Target};
use crate::bench::usage::ProcessTree;
use crate::raw::{Control, stream_transfer};

/// How long a server may be silent.
const PATIENCE: Duration = Duration::from_secs(120);

/// How long the row may take: most of it is the real server's time.
const LIMIT: Duration = Duration::from_secs(80);

/// What a server may grow by that needs constant memory, in MiB.
const GROWTH_MEBIBYTES: f64 = 8.0;

#[derive(Debug)]
struct Listing;

pub(super) fn rows() -> Vec<Row> {
    let what = "MLSD of a directory with very many names";
    let growth = Target {
        reading: Reading::Growth,
        bound: Bound::Number(GROWTH_MEBIBYTES),
    };
    let row = Row::new(Group::Listing, "mlsd", what, Unit::Names, Listing);
    vec![
        row.limit(LIMIT)
            .target(Target::of_theirs(3.0))
            .target(growth),
    ]
}

impl Work for Listing {
    /// The server is a fresh one that has listed a small directory: what it grows by then is for the names.
    #[expect(clippy::cast_precision_loss, reason = "numbers of this size are exact")]
    fn run(&self, arena: &BenchArena, contender: Contender) -> Result<Sample, RunError> {
        let Contender::Server(kind) = contender else {
            return Err(RunError::Unable("the pump has no directories".to_owned()));
        };
        make(arena)?;
        let server = arena.fresh_server(kind)?;
        let tree = ProcessTree::of(server.pid());
        let mut control = Control::anonymous(server.address())?;
        control.set_patience(PATIENCE);
        let small = server.path(arena.name(Place::Memory, Files::Few)?);
        list(&mut control, small.trim_end_matches('/'))?;
        let before = tree.peak_memory();
        let started = Instant::now();
        let lines = list(&mut control, &server.path("names"))?;
        let elapsed = started.elapsed();
        let grown = tree.peak_memory().saturating_sub(before);
        // Besides the names there may be the directory itself and the one above it.
        if !(arena.sizes.names..=arena.sizes.names + 2).contains(&lines) {
            let words = format!("{lines} of {} names were listed", arena.sizes.names);
            return Err(RunError::Failed(words));
        }
        let sample = Sample::new(arena.sizes.names as f64 / elapsed.as_secs_f64());
        Ok(sample.with(Reading::Growth, grown as f64 / f64::from(1 << 20)))
    }

    fn clean(&self, arena: &BenchArena) {
        // It goes with everything else if not here.
        let _ = fs::remove_dir_all(directory(arena));
    }
}

fn directory(arena: &BenchArena) -> PathBuf {
    arena.tree(Place::Memory).root().join("names")
}

/// Makes the directory, for the first of the runs.
fn make(arena: &BenchArena) -> io::Result<()> {
    let directory = directory(arena);
    if directory.exists() {
        return Ok(());
    }
    fs::create_dir(&directory)?;
    for index in 0..arena.sizes.names {
        File::create(directory.join(format!("name-{index:07}")))?;
    }
    Ok(())
}

/// Counts the lines of a listing.
fn list(control: &mut Control, path: &str) -> io::Result<usize> {
    let mut lines = 0;
    stream_transfer(control, &format!("MLSD {path}"), |mut channel| {
        channel.set_read_timeout(Some(PATIENCE))?;
        let mut buffer = vec![0; 256 << 10];
        loop {
            let count = channel.read(&mut buffer)?;
            if count == 0 {
                return Ok(());
            }
            lines += buffer[..count]
                .iter()
                .filter(|byte| **byte == b'\n')
                .count();
        }
    })?;
    Ok(lines)
}
