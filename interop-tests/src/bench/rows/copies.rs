//! Copies with `globus-url-copy`, as users make them: a large file and many small ones.

use std::time::Duration;

use crate::bench::files::Files;
use crate::bench::ports;
use crate::bench::row::{Group, Row, Work};
use crate::bench::sample::{Contender, Reading, Sample, Unit};
use crate::bench::target::Target;
use crate::bench::testbed::{Place, RunError, Testbed, processor_since, processor_times};
use crate::support::Kind;

/// How long rows of very many files may take.
const LIMIT: Duration = Duration::from_secs(40);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Get,
    Put,
    ThirdParty,
}

#[derive(Debug)]
struct Copy {
    way: Way,
    files: Files,
    place: Place,
    options: Vec<&'static str>,
}

/// Parallel channels: stream mode without.
const CHANNELS: [(&str, &[&str]); 4] = [
    ("stream", &[]),
    ("p1", &["-p", "1"]),
    ("p4", &["-p", "4"]),
    ("p16", &["-p", "16"]),
];

/// The large file, to and from a client.
pub(super) fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    for way in [Way::Get, Way::Put] {
        for (name, options) in CHANNELS {
            let what = format!("{}, {}", way.large_words(), options_words(options));
            rows.push(large(Place::Memory, way, name, &what, options));
        }
    }
    rows
}

/// The same for a user with a certificate, encrypted.
pub(super) fn protected_rows() -> Vec<Row> {
    let row = |way: Way| {
        let what = format!("{}, -dcpriv -p 4", way.large_words());
        large(
            Place::Certified,
            way,
            "prot-p-p4",
            &what,
            &["-dcpriv", "-p", "4"],
        )
    };
    vec![row(Way::Get), row(Way::Put)]
}

/// Many files, one after the other and with everything that the client knows.
pub(super) fn small_rows() -> Vec<Row> {
    use Way::{Get, Put, ThirdParty};
    let mut rows = Vec::new();
    for way in [Get, Put, ThirdParty] {
        let all = &["-fast", "-pp", "-cc", "4"];
        let row = many(Place::Memory, way, "small", "cc4", Files::Small, all);
        rows.push(row.limit(LIMIT).target(Target::of_theirs(2.0)));
    }
    // The client pipelines only between servers; with -fast it reuses data connections everywhere.
    for (way, name, options) in [
        (Get, "single", &[][..]),
        (Put, "single", &[]),
        (ThirdParty, "single", &[]),
        (Get, "fast", &["-fast"]),
        (Put, "fast", &["-fast"]),
        (ThirdParty, "pp", &["-fast", "-pp"]),
    ] {
        let row = many(Place::Memory, way, "few", name, Files::Few, options);
        rows.push(row.target(Target::of_theirs(1.0)));
    }
    for way in [Get, Put, ThirdParty] {
        let all = &["-fast", "-pp", "-cc", "4"];
        let row = many(Place::Memory, way, "medium", "cc4", Files::Medium, all);
        rows.push(row.target(Target::of_theirs(1.0)));
    }
    for (name, options) in [("nodcau", &["-nodcau"][..]), ("dcau", &[])] {
        let row = many(Place::Certified, Get, "few", name, Files::Few, options);
        rows.push(row.target(Target::of_theirs(1.0)));
    }
    rows
}

fn large(place: Place, way: Way, name: &str, what: &str, options: &[&'static str]) -> Row {
    let group = match place {
        Place::Certified => Group::Protected,
        _ => Group::Client,
    };
    let work = Copy {
        way,
        files: Files::Large,
        place,
        options: options.to_vec(),
    };
    let name = format!("{}-{name}", way.word());
    let end = way.reading();
    Row::new(group, name, what, Unit::Gigabytes, work)
        .target(Target::of_theirs(1.0))
        .target(Target::of_theirs(0.8).of(end))
}

fn many(
    place: Place,
    way: Way,
    size: &str,
    name: &str,
    files: Files,
    options: &[&'static str],
) -> Row {
    let length = match files {
        Files::Medium => "1 MiB",
        _ => "4 KiB",
    };
    let what = format!(
        "{} of {length}, {}",
        way.many_words(),
        options_words(options)
    );
    let name = format!("{size}-{}-{name}", way.word());
    let options = [options, &["-r", "-cd"]].concat();
    let work = Copy {
        way,
        files,
        place,
        options,
    };
    Row::new(Group::Small, name, what, Unit::Files, work)
}

fn options_words(options: &[&str]) -> String {
    match options {
        [] => "no options".to_owned(),
        options => options.join(" "),
    }
}

impl Way {
    fn word(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Put => "put",
            Self::ThirdParty => "tpc",
        }
    }

    fn large_words(self) -> &'static str {
        match self {
            Self::Get => "get to /dev/null",
            Self::Put => "put from memory to memory",
            Self::ThirdParty => "server to server",
        }
    }

    fn many_words(self) -> &'static str {
        match self {
            Self::Get => "get files",
            Self::Put => "put files",
            Self::ThirdParty => "files from server to server",
        }
    }

    /// What the processor time of the servers is counted as.
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
            return Err(RunError::Unable("only servers have clients".to_owned()));
        };
        let (from, to) = self.urls(testbed, kind)?;
        if self.files != Files::Large && !self.options.contains(&"-fast") {
            ports::wait_for_free()?;
        }
        let servers = testbed.servers(kind, self.place)?.each_ref();
        let before = processor_times(servers);
        let copied = testbed.copy(self.place, &self.options, from, to);
        // What a failed run left must not count for the next one.
        let elapsed = copied.inspect_err(|_| drop(testbed.clear()))?;
        let [first, second] = processor_since(servers, before);
        let (count, _) = self.files.count_and_bytes(testbed.sizes);
        let bytes = self.files.total(testbed.sizes);
        match (self.way, self.files) {
            (Way::Get, Files::Large) => testbed.clear_exactly(0, 0)?,
            _ => testbed.clear_exactly(count, bytes)?,
        }
        if self.files != Files::Large {
            return Ok(per_second(count, elapsed));
        }
        let sample = Sample::speed(bytes, elapsed);
        Ok(sample.with_processor(self.way.reading(), first + second, bytes))
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
        Ok(match self.way {
            Way::Get if self.files == Files::Large => (from, "file:///dev/null".to_owned()),
            Way::Get => (from, testbed.down()),
            Way::Put => (testbed.local(self.files)?, first.url(target)),
            Way::ThirdParty => (from, second.url(target)),
        })
    }
}

#[expect(clippy::cast_precision_loss, reason = "numbers of this size are exact")]
fn per_second(count: usize, elapsed: Duration) -> Sample {
    Sample::new(count as f64 / elapsed.as_secs_f64())
}
