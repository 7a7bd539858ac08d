//! Checksums: of a file in memory, and of a file that was just stored.

use std::fs::File;
use std::time::{Duration, Instant, SystemTime};

use crate::bench::files::Files;
use crate::bench::row::{Group, Row, Work};
use crate::bench::sample::{Contender, Reading, Sample, Unit};
use crate::bench::session::{CopySettings, Session, copy};
use crate::bench::target::{Bound, Target};
use crate::bench::testbed::{Place, RunError, Testbed};
use crate::support::Kind;

/// The limit for `CKSM` after a put, in milliseconds.
const AFTER_PUT_MILLISECONDS: f64 = 5.0;

/// `CKSM` of the large file.
#[derive(Debug)]
struct Checksum {
    algorithm: &'static str,
}

/// `CKSM` of the large file in the session that has stored it, as clients do after a put.
#[derive(Debug)]
struct AfterPut {
    algorithm: &'static str,
}

pub(super) fn rows() -> Vec<Row> {
    let checksum = |algorithm: &'static str, times| {
        let name = format!("cksm-{}", algorithm.to_lowercase());
        let description = format!("{algorithm} of a cached file");
        let work = Checksum { algorithm };
        let row = Row::new(Group::Checksums, name, description, Unit::Gigabytes, work);
        match times {
            Some(times) => row.target(Target::of_theirs(times)),
            None => row,
        }
    };
    let after_put = |algorithm: &'static str| {
        let name = format!("put-cksm-{}", algorithm.to_lowercase());
        let description = format!("{algorithm} after a put, until the reply");
        let work = AfterPut { algorithm };
        let target = Target {
            reading: Reading::Value,
            bound: Bound::Number(AFTER_PUT_MILLISECONDS),
        };
        Row::new(
            Group::Checksums,
            name,
            description,
            Unit::Milliseconds,
            work,
        )
        .target(target)
    };
    vec![
        checksum("ADLER32", Some(10.0)),
        checksum("CRC32C", Some(10.0)),
        checksum("MD5", Some(1.3)),
        checksum("SHA1", None),
        checksum("SHA256", Some(1.3)),
        checksum("SHA512", None),
        after_put("ADLER32"),
    ]
}

impl Work for Checksum {
    fn run(&self, testbed: &Testbed, contender: Contender) -> Result<Sample, RunError> {
        let name = testbed.name(Place::Memory, Files::Large)?;
        let [server, _] = testbed.servers(kind(contender)?, Place::Memory)?;
        let mut session = Session::anonymous(server.address())?;
        must_support(&mut session, self.algorithm)?;
        // A new modification time invalidates checksums that the server has cached.
        let file = File::options()
            .write(true)
            .open(testbed.tree(Place::Memory).path(Files::Large)?)?;
        file.set_modified(SystemTime::now())?;
        let elapsed = timed(&mut session, self.algorithm, &server.path(name))?;
        Ok(Sample::speed(testbed.sizes.large, elapsed))
    }
}

impl Work for AfterPut {
    fn run(&self, testbed: &Testbed, contender: Contender) -> Result<Sample, RunError> {
        let names = [Files::Few, Files::Large].map(|files| testbed.name(Place::Memory, files));
        let [few, large] = names;
        let (few, large) = (few?, large?);
        let servers = testbed.servers(kind(contender)?, Place::Memory)?;
        let mut sessions = Vec::new();
        for server in servers {
            let mut session = Session::anonymous(server.address())?;
            session.prepare(CopySettings {
                channels: Some(4),
                protection: None,
            })?;
            sessions.push(session);
        }
        let [source, destination] = &mut sessions[..] else {
            return Err(RunError::Failed("a copy has two ends".to_owned()));
        };
        must_support(destination, self.algorithm)?;
        let mut ask = |from: &str, to: &str| {
            let paths = [servers[0].path(from), servers[1].path(to)];
            copy([source, destination], [&paths[0], &paths[1]])?;
            timed(destination, self.algorithm, &paths[1])
        };
        // A server may compute checksums of arriving files only after a first CKSM.
        let elapsed = ask(&format!("{few}f00000"), "up/first").and_then(|_| ask(large, "up/large"));
        let (_, few_bytes) = Files::Few.count_and_bytes(testbed.sizes);
        testbed.clear_exactly(2, few_bytes + testbed.sizes.large)?;
        Ok(Sample::new(elapsed?.as_secs_f64() * 1e3))
    }
}

fn kind(contender: Contender) -> Result<Kind, RunError> {
    match contender {
        Contender::Server(kind) => Ok(kind),
        Contender::Pump(_) => Err(RunError::Unable("the pump has no checksums".to_owned())),
    }
}

/// `FEAT` lists algorithms as `CKSM MD5:10;ADLER32:10;`.
fn must_support(session: &mut Session, algorithm: &str) -> Result<(), RunError> {
    let features = session.must("FEAT", 211)?.text();
    if features.contains(&format!("{algorithm}:")) {
        return Ok(());
    }
    Err(RunError::Unable(format!("there is no {algorithm} in FEAT")))
}

/// The time until the final reply. A server may send 1xx replies before it.
fn timed(session: &mut Session, algorithm: &str, path: &str) -> Result<Duration, RunError> {
    let started = Instant::now();
    session.send_line(&format!("CKSM {algorithm} 0 -1 {path}"))?;
    session.success()?;
    Ok(started.elapsed())
}
