//! Copies with `globus-url-copy`, as users make them: a large file and many small ones.

use std::time::Duration;

use crate::bench::files::Files;
use crate::bench::ports;
use crate::bench::row::{Group, Row, Work};
use crate::bench::sample::{Contender, Reading, Sample, Unit};
use crate::bench::target::Target;
use crate::bench::testbed::{Place, RunError, Testbed, processor_since, processor_times};
use crate::support::Kind;

/// The time limit of rows with very many files.
const LIMIT: Duration = Duration::from_secs(40);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Direction {
    Get,
    Put,
    ThirdParty,
}

#[derive(Debug)]
struct Copy {
    direction: Direction,
    files: Files,
    place: Place,
    options: Vec<&'static str>,
}

/// Options for parallel channels; without one, stream mode.
const CHANNELS: [(&str, &[&str]); 4] = [
    ("stream", &[]),
    ("p1", &["-p", "1"]),
    ("p4", &["-p", "4"]),
    ("p16", &["-p", "16"]),
];

/// The large file, to and from a client.
pub(super) fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    for direction in [Direction::Get, Direction::Put] {
        for (name, options) in CHANNELS {
            let description = format!("{}, {}", direction.large_label(), options_label(options));
            rows.push(large(Place::Memory, direction, name, &description, options));
        }
    }
    rows
}

/// The same for a user with a certificate, encrypted.
pub(super) fn protected_rows() -> Vec<Row> {
    let row = |direction: Direction| {
        let description = format!("{}, -dcpriv -p 4", direction.large_label());
        large(
            Place::Certified,
            direction,
            "prot-p-p4",
            &description,
            &["-dcpriv", "-p", "4"],
        )
    };
    vec![row(Direction::Get), row(Direction::Put)]
}

/// Many files, one after the other, and with all options of the client for many files.
pub(super) fn small_rows() -> Vec<Row> {
    use Direction::{Get, Put, ThirdParty};
    let mut rows = Vec::new();
    for direction in [Get, Put, ThirdParty] {
        let all = &["-fast", "-pp", "-cc", "4"];
        let row = many(Place::Memory, direction, "small", "cc4", Files::Small, all);
        rows.push(row.limit(LIMIT).target(Target::of_theirs(2.0)));
    }
    // The client pipelines only between servers; with -fast it reuses data connections everywhere.
    for (direction, name, options) in [
        (Get, "single", &[][..]),
        (Put, "single", &[]),
        (ThirdParty, "single", &[]),
        (Get, "fast", &["-fast"]),
        (Put, "fast", &["-fast"]),
        (ThirdParty, "pp", &["-fast", "-pp"]),
    ] {
        let row = many(Place::Memory, direction, "few", name, Files::Few, options);
        rows.push(row.target(Target::of_theirs(1.0)));
    }
    for direction in [Get, Put, ThirdParty] {
        let all = &["-fast", "-pp", "-cc", "4"];
        let row = many(
            Place::Memory,
            direction,
            "medium",
            "cc4",
            Files::Medium,
            all,
        );
        rows.push(row.target(Target::of_theirs(1.0)));
    }
    for (name, options) in [("nodcau", &["-nodcau"][..]), ("dcau", &[])] {
        let row = many(Place::Certified, Get, "few", name, Files::Few, options);
        rows.push(row.target(Target::of_theirs(1.0)));
    }
    rows
}

fn large(
    place: Place,
    direction: Direction,
    name: &str,
    description: &str,
    options: &[&'static str],
) -> Row {
    let group = match place {
        Place::Certified => Group::Protected,
        _ => Group::Client,
    };
    let work = Copy {
        direction,
        files: Files::Large,
        place,
        options: options.to_vec(),
    };
    let name = format!("{}-{name}", direction.name());
    let end = direction.reading();
    Row::new(group, name, description, Unit::Gigabytes, work)
        .target(Target::of_theirs(1.0))
        .target(Target::of_theirs(0.8).of(end))
}

fn many(
    place: Place,
    direction: Direction,
    size: &str,
    name: &str,
    files: Files,
    options: &[&'static str],
) -> Row {
    let length = match files {
        Files::Medium => "1 MiB",
        _ => "4 KiB",
    };
    let description = format!(
        "{} of {length}, {}",
        direction.many_label(),
        options_label(options)
    );
    let name = format!("{size}-{}-{name}", direction.name());
    let options = [options, &["-r", "-cd"]].concat();
    let work = Copy {
        direction,
        files,
        place,
        options,
    };
    Row::new(Group::Small, name, description, Unit::Files, work)
}

fn options_label(options: &[&str]) -> String {
    match options {
        [] => "no options".to_owned(),
        options => options.join(" "),
    }
}

impl Direction {
    fn name(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Put => "put",
            Self::ThirdParty => "tpc",
        }
    }

    fn large_label(self) -> &'static str {
        match self {
            Self::Get => "get to /dev/null",
            Self::Put => "put from memory to memory",
            Self::ThirdParty => "server to server",
        }
    }

    fn many_label(self) -> &'static str {
        match self {
            Self::Get => "get files",
            Self::Put => "put files",
            Self::ThirdParty => "files from server to server",
        }
    }

    /// The reading that the processor time of the servers is recorded as.
    fn reading(self) -> Reading {
        match self {
            Self::Get => Reading::Sender,
            Self::Put => Reading::Receiver,
            Self::ThirdParty => Reading::Processor,
        }
    }
}

impl Work for Copy {
    fn run(&self, testbed: &Testbed, contender: Contender) -> Result<Sample, RunError> {
        let Contender::Server(kind) = contender else {
            return Err(RunError::Unable("the pump has no clients".to_owned()));
        };
        let (from, to) = self.urls(testbed, kind)?;
        if self.files != Files::Large && !self.options.contains(&"-fast") {
            ports::wait_for_free()?;
        }
        let servers = testbed.servers(kind, self.place)?.each_ref();
        let before = processor_times(servers);
        let copied = testbed.copy(self.place, &self.options, from, to);
        // Files of a failed run must not count in the next one.
        let elapsed = copied.inspect_err(|_| drop(testbed.clear()))?;
        let [first, second] = processor_since(servers, before);
        let (count, _) = self.files.count_and_bytes(testbed.sizes);
        let bytes = self.files.total(testbed.sizes);
        match (self.direction, self.files) {
            (Direction::Get, Files::Large) => testbed.clear_exactly(0, 0)?,
            _ => testbed.clear_exactly(count, bytes)?,
        }
        if self.files != Files::Large {
            return Ok(per_second(count, elapsed));
        }
        let sample = Sample::speed(bytes, elapsed);
        Ok(sample.with_processor(self.direction.reading(), first + second, bytes))
    }
}

impl Copy {
    fn urls(&self, testbed: &Testbed, kind: Kind) -> Result<(String, String), RunError> {
        let [first, second] = testbed.servers(kind, self.place)?;
        let from = first.url(testbed.name(self.place, self.files)?);
        let target = match self.files {
            Files::Large => "up/large",
            _ => "up/",
        };
        Ok(match self.direction {
            Direction::Get if self.files == Files::Large => (from, "file:///dev/null".to_owned()),
            Direction::Get => (from, testbed.down()),
            Direction::Put => (testbed.local(self.files)?, first.url(target)),
            Direction::ThirdParty => (from, second.url(target)),
        })
    }
}

#[expect(clippy::cast_precision_loss, reason = "numbers of this size are exact")]
fn per_second(count: usize, elapsed: Duration) -> Sample {
    Sample::new(count as f64 / elapsed.as_secs_f64())
}
