//! One transfer, one fault, and the checks.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::cut::Weather;
use super::dice::Dice;
use super::remains::{BOUND, any, none_within};
use super::steady::{self, Seen};
use super::transfer::{self, Copied, Operation, ThirdParty};
use super::world::{NODES, World};
use crate::support::{Failure, check, content};

/// What happens during a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Fault {
    /// SIGKILL of a node.
    Node,
    /// SIGKILL of the control server.
    Server,
    /// The connections between the control server and a node are reset, and new ones too.
    Reset,
    /// The network between them passes nothing on.
    Silence,
}

impl Fault {
    pub(super) const ALL: [Self; 4] = [Self::Node, Self::Server, Self::Reset, Self::Silence];
}

/// What a round does; all of it follows from the seed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Script {
    operation: Operation,
    pub(super) fault: Fault,
    victim: usize,
    /// From the start of the client to the fault.
    delay: Duration,
    /// From the fault to the repair.
    outage: Duration,
}

/// After this time a transfer has files and sockets on nodes, also on a busy machine.
const SEEN_AFTER: Duration = Duration::from_secs(1);

/// A round in which nothing was wrong.
#[derive(Debug)]
pub(super) struct Passed {
    /// The client had not finished at the fault.
    pub(super) struck: bool,
    /// The client saw an error, and restarted. Restarts of globus-url-copy by itself are not known.
    pub(super) interrupted: bool,
    /// Fetches of the steady sessions.
    pub(super) fetched: usize,
    /// Of these, interrupted by the fault of their own node or control server.
    pub(super) hit: usize,
}

impl Script {
    pub(super) fn of(seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let fault = dice.one_of(&Fault::ALL);
        let outage = match fault {
            // Shorter and longer than the 15 seconds in which it is found.
            Fault::Silence => dice.below(22_000),
            _ => dice.below(3_000),
        };
        let operation = dice.one_of(&Operation::ALL);
        Self {
            operation,
            fault,
            victim: usize::try_from(dice.below(NODES as u64)).unwrap_or_default(),
            delay: Duration::from_millis(dice.below(operation.millis())),
            outage: Duration::from_millis(outage),
        }
    }

    /// Plays the round.
    pub(super) fn play(self, world: &mut World) -> Result<Passed, Failure> {
        let target = "target";
        let (server, other) = (world.server.address(), world.other.address());
        let stop = AtomicBool::new(false);
        let expected = std::fs::read(world.root().join("steady"))?;
        let identity = world.identity.clone();
        let ended_before = self.ended(world);
        let (copied, began, struck, steady) = thread::scope(|scope| {
            let steady = [server, other].map(|address| {
                let (identity, expected, stop) = (&identity, &expected, &stop);
                scope.spawn(move || steady::fetch(address, identity, expected, stop))
            });
            let copying = self.begin_copy(world, scope, target);
            thread::sleep(self.delay);
            let began = Instant::now();
            // Otherwise nothing that is found later would mean anything. The client may still read what the kernel holds of a
            // transfer that has ended for the nodes.
            let is_seen = any(world);
            let runs = is_seen || !self.ends_soon(world, ended_before);
            let struck = runs && !copying.is_finished();
            let is_seen = self.delay < SEEN_AFTER || is_seen || !struck;
            let seen = check(is_seen, || {
                "nothing of the sessions is seen on the nodes".to_owned()
            });
            let repaired = seen.and_then(|()| self.strike(world));
            let copied = copying.join();
            stop.store(true, Ordering::Release);
            let steady = steady.map(|one| one.join().unwrap_or_default());
            let copied = copied.unwrap_or_else(|_| Err(Failure::wrong("the client panicked")));
            (repaired.and(copied), began, struck, steady)
        });
        let checked = self.check(world, target, copied, steady);
        world.wait_for_nodes()?;
        none_within(
            world,
            (began + BOUND).max(Instant::now() + Duration::from_secs(3)),
        )?;
        let passed = checked?;
        check_directory(world, target)?;
        Ok(Passed { struck, ..passed })
    }

    /// How often the control server has logged the end of such a transfer.
    fn ended(self, world: &World) -> usize {
        let (verb, path) = match self.operation {
            Operation::Get => ("RETR", "/big"),
            Operation::Put | Operation::ThirdParty => ("STOR", "/target"),
        };
        let words = format!("verb=\"{verb}\" path=\"{path}\"");
        let log = world.server.log();
        log.lines().filter(|line| line.contains(&words)).count()
    }

    /// Whether the control server logs the end of another transfer than those `before`, within the time in which a log is
    /// written.
    fn ends_soon(self, world: &World, before: usize) -> bool {
        let deadline = Instant::now() + Duration::from_millis(500);
        while Instant::now() < deadline {
            if self.ended(world) > before {
                return true;
            }
            thread::sleep(Duration::from_millis(20));
        }
        false
    }

    fn begin_copy<'scope>(
        self,
        world: &World,
        scope: &'scope thread::Scope<'scope, '_>,
        target: &'static str,
    ) -> thread::ScopedJoinHandle<'scope, Result<Copied, Failure>> {
        let (server, identity) = (world.server.address(), world.identity.clone());
        let (local, path) = (world.local("fetched"), format!("/{target}"));
        let source = world.local("source");
        match self.operation {
            Operation::Put => scope.spawn(move || transfer::put(server, &identity, &source, &path)),
            Operation::Get => scope.spawn(move || transfer::get(server, &identity, "/big", &local)),
            Operation::ThirdParty => {
                let client = ThirdParty::new(world, "big", target);
                scope.spawn(move || client.run())
            }
        }
    }

    /// The fault, and its repair.
    fn strike(self, world: &mut World) -> Result<(), Failure> {
        let victim = self.victim;
        match self.fault {
            Fault::Node => {
                world.nodes[victim].kill()?;
                thread::sleep(self.outage);
                world.nodes[victim].restart()
            }
            Fault::Server => {
                world.kill_server()?;
                thread::sleep(self.outage);
                world.restart_server()
            }
            Fault::Reset | Fault::Silence => {
                let weather = match self.fault {
                    Fault::Silence => Weather::Silent,
                    _ => Weather::Refusing,
                };
                world.links[victim].set(weather);
                thread::sleep(self.outage);
                world.links[victim].set(Weather::Fair);
                Ok(())
            }
        }
    }

    fn check(
        self,
        world: &World,
        target: &str,
        copied: Result<Copied, Failure>,
        steady: [Seen; 2],
    ) -> Result<Passed, Failure> {
        let copied = copied?;
        let (source, stored) = (world.local("source"), world.root().join(target));
        match self.operation {
            Operation::Put => content::same(&source, &stored)?,
            Operation::Get => content::same(&source, &world.local("fetched"))?,
            Operation::ThirdParty => content::same(&world.root().join("big"), &stored)?,
        }
        let mut hit = 0;
        for (seen, over_links) in steady.iter().zip([true, false]) {
            for one in &seen.disturbances {
                if !self.may_disturb(one.node, over_links) {
                    return Err(Failure::wrong(format!(
                        "a steady session is disturbed: {one:?}"
                    )));
                }
                hit += 1;
            }
        }
        Ok(Passed {
            struck: false,
            interrupted: !copied.errors.is_empty(),
            fetched: steady.iter().map(|seen| seen.fetched).sum(),
            hit,
        })
    }

    /// Whether the fault may end a fetch of a steady session on this node, of the control server that is `over_links`.
    fn may_disturb(self, node: Option<usize>, over_links: bool) -> bool {
        match self.fault {
            Fault::Node => node == Some(self.victim),
            Fault::Server => over_links,
            Fault::Reset | Fault::Silence => over_links && node == Some(self.victim),
        }
    }
}

/// No file is left but those that belong there; the target is removed for the next round.
fn check_directory(world: &World, target: &str) -> Result<(), Failure> {
    let mut surplus = Vec::new();
    for entry in std::fs::read_dir(world.root())? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if !["big", "steady", target].contains(&name.as_str()) {
            surplus.push(name);
        }
    }
    if !surplus.is_empty() {
        let reason = format!("files are left over: {surplus:?}");
        return Err(Failure::wrong(reason));
    }
    let _ = std::fs::remove_file(world.root().join(target));
    Ok(())
}

impl fmt::Display for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?} during {:?}, node {}, after {} ms, for {} ms",
            self.fault,
            self.operation,
            self.victim,
            self.delay.as_millis(),
            self.outage.as_millis()
        )
    }
}
