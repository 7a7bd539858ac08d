//! A large file from server to server, driven by raw control channels, compared with the bare pump.

use std::fs::File;
use std::io;
use std::time::Duration;

use rustix::fs::{Advice, fadvise};

use crate::bench::files::Files;
use crate::bench::pump::Pump;
use crate::bench::row::{Group, Row, Work};
use crate::bench::sample::{Contender, Reading, Sample, Unit, Variant};
use crate::bench::session::{CopySettings, Protection, Session, copy};
use crate::bench::target::Target;
use crate::bench::testbed::{Place, RunError, Testbed, pki, processor_at_rest, processor_since};
use crate::support::raw::Identity;
use crate::support::{Kind, Server, UserKind};

/// The time limit of rows that the pump runs as well, in all variants.
const LIMIT: Duration = Duration::from_secs(40);

#[derive(Debug)]
struct ServerToServer {
    /// The places of the source and of the destination.
    places: [Place; 2],
    settings: CopySettings,
    /// Whether the source is dropped from the page cache.
    cold: bool,
}

/// Anonymous users, and the pump with as many connections.
pub(super) fn rows() -> Vec<Row> {
    let row = |name: &str, description: &str, channels| {
        let settings = CopySettings {
            channels,
            protection: None,
        };
        let work = ServerToServer {
            places: [Place::Memory; 2],
            settings,
            cold: false,
        };
        Row::new(Group::ThirdParty, name, description, Unit::Gigabytes, work)
            .contenders(&Contender::ALL)
            .limit(LIMIT)
    };
    vec![
        row("tpc-stream", "stream mode", None).target(Target::of_pump(0.95)),
        row("tpc-p1", "MODE E, 1 channel", Some(1)),
        row("tpc-p4", "MODE E, 4 channels", Some(4))
            .target(Target::of_pump(0.95))
            .target(Target::of_pump(1.05).of(Reading::Processor))
            .target(Target::of_theirs(1.3)),
        row("tpc-p16", "MODE E, 16 channels", Some(16)),
    ]
}

/// Users with certificates.
pub(super) fn protected_rows() -> Vec<Row> {
    use Protection::{Clear, Nothing, Private};
    let row = |name: &str, description: &str, channels, protection| {
        let settings = CopySettings {
            channels,
            protection: Some(protection),
        };
        let work = ServerToServer {
            places: [Place::Certified; 2],
            settings,
            cold: false,
        };
        let description = format!("server to server, {description}");
        Row::new(Group::Protected, name, description, Unit::Gigabytes, work)
    };
    vec![
        row("tpc-dcau-n-p4", "DCAU N, 4 channels", Some(4), Nothing),
        row("tpc-prot-c-p4", "PROT C, 4 channels", Some(4), Clear),
        row("tpc-prot-p-stream", "PROT P, stream mode", None, Private)
            .target(Target::of_theirs(2.5)),
        row("tpc-prot-p-p4", "PROT P, 4 channels", Some(4), Private).target(Target::of_theirs(2.5)),
    ]
}

/// From and to a disk, and the pump.
pub(super) fn disk_rows() -> Vec<Row> {
    let row = |name: &str, description: &str, places, cold| {
        let settings = CopySettings {
            channels: Some(4),
            protection: None,
        };
        let work = ServerToServer {
            places,
            settings,
            cold,
        };
        let description = format!("{description}, MODE E, 4 channels");
        Row::new(Group::Disk, name, description, Unit::Gigabytes, work)
            .contenders(&Contender::ALL)
            .limit(LIMIT)
            .target(Target::of_theirs(1.0))
    };
    let (disk, memory) = (Place::Disk, Place::Memory);
    vec![
        row("disk-cold-p4", "cold disk to memory", [disk, memory], true),
        row(
            "disk-warm-p4",
            "page cache to memory",
            [disk, memory],
            false,
        ),
        row("disk-write-p4", "memory to disk", [memory, disk], false),
    ]
}

impl Work for ServerToServer {
    fn run(&self, testbed: &Testbed, contender: Contender) -> Result<Sample, RunError> {
        match contender {
            Contender::Server(kind) => self.servers(testbed, kind),
            Contender::Pump(variant) => self.pump(testbed, variant),
        }
    }
}

impl ServerToServer {
    fn servers(&self, testbed: &Testbed, kind: Kind) -> Result<Sample, RunError> {
        let [from, to] = self.places;
        let servers = [
            &testbed.servers(kind, from)?[0],
            &testbed.servers(kind, to)?[1],
        ];
        let name = testbed.name(from, Files::Large)?;
        let mut source = self.session(servers[0], from)?;
        let mut destination = self.session(servers[1], to)?;
        self.settle(testbed)?;
        let before = processor_at_rest(servers);
        let paths = [servers[0].path(name), servers[1].path("up/large")];
        let copied = copy([&mut source, &mut destination], [&paths[0], &paths[1]]);
        drop((source, destination));
        let elapsed = copied.inspect_err(|_| drop(testbed.clear()))?;
        let used = processor_since(servers, before);
        let bytes = testbed.sizes.large;
        testbed.clear_exactly(1, bytes)?;
        Ok(Sample::speed(bytes, elapsed).with_both_ends(used, bytes))
    }

    fn session(&self, server: &Server, place: Place) -> Result<Session, RunError> {
        let mut session = match place {
            Place::Certified => {
                let identity = Identity::user(pki()?, UserKind::Spaces)?;
                Session::certified(server.address(), &identity)?
            }
            Place::Memory | Place::Disk => Session::anonymous(server.address())?,
        };
        session.prepare(self.settings)?;
        Ok(session)
    }

    /// Writes dirty pages of earlier runs to the disk, and drops a cold file from the page cache.
    fn settle(&self, testbed: &Testbed) -> Result<(), RunError> {
        if self.places.contains(&Place::Disk) {
            rustix::fs::sync();
        }
        if self.cold {
            let path = testbed.tree(self.places[0]).path(Files::Large)?;
            fadvise(File::open(path)?, 0, None, Advice::DontNeed).map_err(io::Error::from)?;
        }
        Ok(())
    }

    fn pump(&self, testbed: &Testbed, variant: Variant) -> Result<Sample, RunError> {
        let pump = Pump {
            program: &testbed.pump,
            variant,
            connections: self.settings.channels.unwrap_or(1),
        };
        let [from, to] = self.places.map(|place| testbed.tree(place));
        let from = from.path(Files::Large)?;
        let to = to.root().join("up/large");
        self.settle(testbed)?;
        let pumped = pump.run(&from, &to, testbed.sizes.large);
        let pumped = pumped.inspect_err(|_| drop(testbed.clear()))?;
        testbed.clear_exactly(1, testbed.sizes.large)?;
        let sample = Sample::speed(testbed.sizes.large, pumped.elapsed);
        Ok(sample.with_both_ends(pumped.processor, testbed.sizes.large))
    }
}
