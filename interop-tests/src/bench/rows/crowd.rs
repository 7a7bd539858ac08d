//! Many clients at a time, and how evenly they are served.

use std::time::Duration;

use crate::bench::crowd::{Crowd, Shape, concurrent};
use crate::bench::ports;
use crate::bench::row::{Group, Row, Work};
use crate::bench::sample::{Contender, Reading, Sample, Unit, gigabytes};
use crate::bench::target::{Bound, Target};
use crate::bench::testbed::{RunError, Testbed, launch};
use crate::support::Kind;

/// How even a crowd must be served: the slowest client's share of the fastest one's.
const FAIRNESS: f64 = 0.5;

/// What the pool of our server may hold in these rows, as its option has it, and what the whole server may
/// have of memory then, in MiB: sessions and threads are not in the pool.
const POOL: (&str, f64) = ("256M", 320.0);

/// How long the row of a crowd may take: a thousand sessions need a while to log in.
const LIMIT: Duration = Duration::from_secs(60);

#[derive(Debug)]
struct Together {
    /// Which of the sizes of crowds.
    size: usize,
    shape: Shape,
}

pub(super) fn rows() -> Vec<Row> {
    let row = |size, shape: Shape| {
        let (word, words) = match shape {
            Shape::GetStream => ("get", "get, stream mode"),
            Shape::PutStream => ("put", "put, stream mode"),
            Shape::GetBlocks => ("get-blocks", "get, MODE E"),
            Shape::PutBlocks => ("put-blocks", "put, MODE E"),
        };
        let crowd = ["1", "100", "1000"][size];
        let name = format!("crowd-{crowd}-{word}");
        let what = format!("clients at a time: {crowd}, {words}");
        let work = Together { size, shape };
        Row::new(Group::Crowd, name, what, Unit::Gigabytes, work)
            .limit(LIMIT)
            .target(Target {
                reading: Reading::Fairness,
                bound: Bound::Number(FAIRNESS),
            })
            .target(Target {
                reading: Reading::Memory,
                bound: Bound::Number(POOL.1),
            })
    };
    let mut rows = vec![
        row(0, Shape::GetStream),
        row(1, Shape::GetStream),
        row(1, Shape::PutStream),
    ];
    // The real server has a process for each client, and a machine that runs it may have no time for clients.
    let ours = |shape| row(2, shape).contenders(&[Contender::OURS]);
    rows.extend(Shape::ALL.map(ours));
    rows
}

impl Work for Together {
    fn run(&self, testbed: &Testbed, contender: Contender) -> Result<Sample, RunError> {
        let Contender::Server(kind) = contender else {
            return Err(RunError::Unable("the pump has no clients".to_owned()));
        };
        let room = testbed.room("crowd")?;
        let launch = match kind {
            Kind::Gridhaul => launch(kind, &room).arg("--buffer-memory").arg(POOL.0),
            Kind::Globus => launch(kind, &room),
        };
        let server = launch.start()?;
        let crowd = Crowd {
            sessions: testbed.sizes.crowds[self.size],
            file: testbed.sizes.crowd_bytes,
            duration: testbed.sizes.crowd_times[self.size],
        };
        if matches!(self.shape, Shape::GetStream | Shape::PutStream) {
            ports::wait_for_free()?;
        }
        let fared = concurrent(crowd, &server, self.shape)?;
        if let Some(first) = fared.errors.first() {
            let count = fared.errors.len();
            return Err(RunError::Failed(format!("{count} clients failed: {first}")));
        }
        Ok(
            Sample::new(gigabytes(fared.bytes()) / fared.elapsed.as_secs_f64())
                .with(Reading::Fairness, fared.fairness())
                .with(Reading::Memory, mebibytes(fared.peak.memory)),
        )
    }
}

#[expect(clippy::cast_precision_loss, reason = "numbers of this size are exact")]
fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}
