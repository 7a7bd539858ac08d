//! A file from server to server over an emulated long path.

use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use crate::bench::files::Files;
use crate::bench::pump::Pump;
use crate::bench::row::{Group, Row, Work};
use crate::bench::sample::{Contender, Sample, Unit, Variant};
use crate::bench::session::{CopySettings, Session, begin};
use crate::bench::target::Target;
use crate::bench::testbed::{Place, RunError, Testbed, launch};
use crate::bench::wan::{End, Network, Path, missing};

/// The rate of every path.
const BITS_PER_SECOND: u64 = 1_000_000_000;

/// The time limit of a copy. The bytes that have arrived by then count: with losses these may be few.
const COPY_LIMIT: Duration = Duration::from_secs(6);

/// The time limit of a row.
const LIMIT: Duration = Duration::from_secs(18);

#[derive(Debug)]
struct Distant {
    path: Path,
    channels: usize,
}

/// The pump over a path without delay, rate limit or loss: the limit of the emulation itself.
#[derive(Debug)]
struct EmulationLimit;

pub(super) fn rows() -> Vec<Row> {
    let description = "the limit of the emulation: no delay, no loss";
    let pumps = Variant::ALL.map(Contender::Pump);
    let limit = Row::new(
        Group::Distance,
        "wan-limit",
        description,
        Unit::Megabits,
        EmulationLimit,
    );
    let mut rows = vec![limit.contenders(&pumps)];
    for loss in [0.0, 0.000_1, 0.001] {
        for channels in [1, 4, 16] {
            rows.push(row(50, loss, channels));
        }
    }
    for milliseconds in [10, 100] {
        for loss in [0.0, 0.001] {
            rows.push(row(milliseconds, loss, 4));
        }
    }
    rows
}

fn row(milliseconds: u64, loss: f64, channels: usize) -> Row {
    let path = Path {
        round_trip: Duration::from_millis(milliseconds),
        bits_per_second: Some(BITS_PER_SECOND),
        loss,
    };
    let percent = loss * 100.0;
    let name = format!("wan-{milliseconds}ms-{percent}%-p{channels}");
    let description = format!("{milliseconds} ms, {percent} % lost, MODE E, channels: {channels}");
    let work = Distant { path, channels };
    Row::new(Group::Distance, name, description, Unit::Megabits, work)
        .limit(LIMIT)
        .target(Target::of_theirs(0.95))
}

impl Work for Distant {
    fn run(&self, testbed: &Testbed, contender: Contender) -> Result<Sample, RunError> {
        let Contender::Server(kind) = contender else {
            return Err(RunError::Unable(
                "the pump makes no third-party copies".to_owned(),
            ));
        };
        let network = network(self.path)?;
        let root = testbed.tree(Place::Memory).root();
        let name = testbed.name(Place::Memory, Files::Distant)?;
        let server = |end| {
            // With a specific address globus-gridftp-server does a reverse lookup of it.
            let launch = launch(kind, root).address(Ipv4Addr::UNSPECIFIED.into());
            network.within(end, || launch.start().map_err(RunError::from))
        };
        let servers = [server(End::Near)?, server(End::Far)?];
        // Each control channel crosses the path, so that the address of each server's client is that of the other server.
        let mut source = self.session(&network, End::Near, servers[0].address().port())?;
        let mut destination = self.session(&network, End::Far, servers[1].address().port())?;
        let paths = [servers[0].path(name), servers[1].path("up/distant")];
        let started = begin([&mut source, &mut destination], [&paths[0], &paths[1]])?;
        let ended = source.success().and_then(|()| destination.success());
        let elapsed = started.elapsed();
        let arrived = fs::metadata(root.join("up/distant")).map_or(0, |file| file.blocks() * 512);
        drop((source, destination, servers, network));
        testbed.clear()?;
        match ended {
            Err(error) if error.kind() == io::ErrorKind::TimedOut => Ok(megabits(arrived, elapsed)),
            Err(error) => Err(error.into()),
            Ok(()) => Ok(megabits(testbed.sizes.distant, elapsed)),
        }
    }
}

impl Distant {
    /// A session from the other end with the server at this one.
    fn session(&self, network: &Network, end: End, port: u16) -> Result<Session, RunError> {
        let server = SocketAddr::new(network.address(end), port);
        let mut session = network.within(end.other(), || Session::anonymous(server))?;
        session.prepare(CopySettings {
            channels: Some(self.channels),
            protection: None,
        })?;
        session.set_timeout(COPY_LIMIT);
        Ok(session)
    }
}

impl Work for EmulationLimit {
    fn run(&self, testbed: &Testbed, contender: Contender) -> Result<Sample, RunError> {
        let Contender::Pump(variant) = contender else {
            return Err(RunError::Unable(
                "only the pump measures the emulation".to_owned(),
            ));
        };
        let network = network(Path {
            round_trip: Duration::ZERO,
            bits_per_second: None,
            loss: 0.0,
        })?;
        let pump = Pump {
            program: &testbed.pump,
            variant,
            connections: 4,
        };
        let bytes = testbed.sizes.distant;
        let from = testbed.tree(Place::Memory).path(Files::Distant)?;
        let to = testbed.tree(Place::Memory).root().join("up/distant");
        let address = network.address(End::Far);
        let (receiver, address) =
            network.within(End::Far, || pump.receiver(&to, bytes, address))?;
        let sender = network.within(End::Near, || pump.sender(&from, bytes, address))?;
        let pumped = Pump::finish(sender, receiver)?;
        testbed.clear_exactly(1, bytes)?;
        Ok(megabits(bytes, pumped.elapsed))
    }
}

fn network(path: Path) -> Result<Network, RunError> {
    match missing() {
        Some(reason) => Err(RunError::Unable(reason)),
        None => Ok(Network::new(path)?),
    }
}

#[expect(clippy::cast_precision_loss, reason = "numbers of this size are exact")]
fn megabits(bytes: u64, elapsed: Duration) -> Sample {
    Sample::new(bytes as f64 * 8.0 / 1e6 / elapsed.as_secs_f64())
}
