//! Many concurrent clients, and the fairness among them.

use std::time::Duration;

use crate::bench::crowd::{Crowd, TransferKind, concurrent};
use crate::bench::ports;
use crate::bench::row::{Group, Row, Work};
use crate::bench::sample::{Contender, Reading, Sample, Unit, gigabytes, mebibytes};
use crate::bench::target::{Bound, Target};
use crate::bench::testbed::{RunError, Testbed, launch};
use crate::support::Kind;

/// The fairness target: the slowest client's share divided by the fastest one's.
const FAIRNESS: f64 = 0.5;

/// The buffer memory of our server in these rows, as its option, and the target for the memory of the whole server
/// in MiB, which also has sessions and threads.
const POOL: (&str, f64) = ("256M", 320.0);

/// The time limit of a row: the logins of a thousand sessions take some time.
const LIMIT: Duration = Duration::from_secs(60);

#[derive(Debug)]
struct Concurrent {
    /// The index of the size of the crowd.
    size: usize,
    kind: TransferKind,
}

pub(super) fn rows() -> Vec<Row> {
    let row = |size, kind: TransferKind| {
        let (word, words) = match kind {
            TransferKind::GetStream => ("get", "get, stream mode"),
            TransferKind::PutStream => ("put", "put, stream mode"),
            TransferKind::GetBlocks => ("get-blocks", "get, MODE E"),
            TransferKind::PutBlocks => ("put-blocks", "put, MODE E"),
        };
        let crowd = ["1", "100", "1000"][size];
        let name = format!("crowd-{crowd}-{word}");
        let description = format!("clients at a time: {crowd}, {words}");
        let work = Concurrent { size, kind };
        Row::new(Group::Crowd, name, description, Unit::Gigabytes, work)
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
        row(0, TransferKind::GetStream),
        row(1, TransferKind::GetStream),
        row(1, TransferKind::PutStream),
    ];
    // The real server has a process for each client, and may leave no processor time for the clients.
    let ours = |kind| row(2, kind).contenders(&[Contender::OURS]);
    rows.extend(TransferKind::ALL.map(ours));
    rows
}

impl Work for Concurrent {
    fn run(&self, testbed: &Testbed, contender: Contender) -> Result<Sample, RunError> {
        let Contender::Server(kind) = contender else {
            return Err(RunError::Unable("the pump has no clients".to_owned()));
        };
        let root = testbed.empty_directory("crowd")?;
        let launch = match kind {
            Kind::Gridhaul => launch(kind, &root).arg("--buffer-memory").arg(POOL.0),
            Kind::Globus => launch(kind, &root),
        };
        let server = launch.start()?;
        let crowd = Crowd {
            sessions: testbed.sizes.crowds[self.size],
            file: testbed.sizes.crowd_bytes,
            duration: testbed.sizes.crowd_times[self.size],
        };
        if matches!(self.kind, TransferKind::GetStream | TransferKind::PutStream) {
            ports::wait_for_free()?;
        }
        let result = concurrent(crowd, &server, self.kind)?;
        if let Some(first) = result.errors.first() {
            let count = result.errors.len();
            return Err(RunError::Failed(format!("{count} clients failed: {first}")));
        }
        Ok(
            Sample::new(gigabytes(result.bytes()) / result.elapsed.as_secs_f64())
                .with(Reading::Fairness, result.fairness())
                .with(Reading::Memory, mebibytes(result.peak.memory)),
        )
    }
}
