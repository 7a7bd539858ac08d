//! The listing of a directory with very many names.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::bench::files::Files;
use crate::bench::row::{Group, Row, Work};
use crate::bench::sample::{Contender, Reading, Sample, Unit};
use crate::bench::target::{Bound, Target};
use crate::bench::testbed::{Place, RunError, Testbed};
use crate::support::raw::{Control, stream_transfer};
use crate::support::usage::ProcessTree;

/// The timeout of replies and data.
const TIMEOUT: Duration = Duration::from_secs(120);

/// The time limit of the row, most of which the real server needs.
const LIMIT: Duration = Duration::from_secs(80);

/// The growth that is compatible with constant memory, in MiB.
const GROWTH_MEBIBYTES: f64 = 8.0;

#[derive(Debug)]
struct Listing;

pub(super) fn rows() -> Vec<Row> {
    let description = "MLSD of a directory with very many names";
    let growth = Target {
        reading: Reading::Growth,
        bound: Bound::Number(GROWTH_MEBIBYTES),
    };
    let row = Row::new(Group::Listing, "mlsd", description, Unit::Names, Listing);
    vec![
        row.limit(LIMIT)
            .target(Target::of_theirs(3.0))
            .target(growth),
    ]
}

impl Work for Listing {
    /// The server is a fresh one that has listed a small directory, so that further growth is caused by the names.
    #[expect(clippy::cast_precision_loss, reason = "numbers of this size are exact")]
    fn run(&self, testbed: &Testbed, contender: Contender) -> Result<Sample, RunError> {
        let Contender::Server(kind) = contender else {
            return Err(RunError::Unable("the pump has no directories".to_owned()));
        };
        make(testbed)?;
        let server = testbed.fresh_server(kind)?;
        let tree = ProcessTree::of(server.pid());
        let mut control = Control::anonymous(server.address())?;
        control.set_timeout(TIMEOUT);
        let small = server.path(testbed.name(Place::Memory, Files::Few)?);
        list(&mut control, small.trim_end_matches('/'))?;
        let before = tree.peak_memory();
        let started = Instant::now();
        let lines = list(&mut control, &server.path("names"))?;
        let elapsed = started.elapsed();
        let grown = tree.peak_memory().saturating_sub(before);
        // The listing may also contain the directory itself and its parent.
        if !(testbed.sizes.names..=testbed.sizes.names + 2).contains(&lines) {
            let words = format!("{lines} of {} names were listed", testbed.sizes.names);
            return Err(RunError::Failed(words));
        }
        let sample = Sample::new(testbed.sizes.names as f64 / elapsed.as_secs_f64());
        Ok(sample.with(Reading::Growth, grown as f64 / f64::from(1 << 20)))
    }

    fn clean(&self, testbed: &Testbed) {
        // If this fails, it is removed with the testbed.
        let _ = fs::remove_dir_all(directory(testbed));
    }
}

fn directory(testbed: &Testbed) -> PathBuf {
    testbed.tree(Place::Memory).root().join("names")
}

/// Makes the directory at the first run.
fn make(testbed: &Testbed) -> io::Result<()> {
    let directory = directory(testbed);
    if directory.exists() {
        return Ok(());
    }
    fs::create_dir(&directory)?;
    for index in 0..testbed.sizes.names {
        File::create(directory.join(format!("name-{index:07}")))?;
    }
    Ok(())
}

/// Counts the lines of a listing.
fn list(control: &mut Control, path: &str) -> io::Result<usize> {
    let mut lines = 0;
    stream_transfer(control, &format!("MLSD {path}"), |mut channel| {
        channel.set_read_timeout(Some(TIMEOUT))?;
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
