//! Every alert: the fault that fires it, or why no test makes that fault.

use std::fs;
use std::io::Read as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::thread;
use std::time::Duration;

use gridhaul_interop::raw::{Control, GsiControl, Identity, TIMEOUT, connect_from, put_stream};
use gridhaul_interop::{Pki, UserKind};
use rustix::process::{Pid, Signal, kill_process};

use crate::prometheus::Prometheus;
use crate::rings::hold_a_ring;
use crate::world::{DESCRIPTORS, World};

/// A fault that fires an alert.
pub(crate) struct Fault {
    pub(crate) alert: &'static str,
    /// What happens, for the table of the documentation.
    pub(crate) words: &'static str,
    /// The page of metrics of the server that has the fault.
    pub(crate) target: fn(&World) -> SocketAddr,
    /// Makes the fault.
    pub(crate) once: fn(&mut World),
    /// Repeats what only a count of events shows, until the alert fires.
    pub(crate) again: fn(&mut World, &Prometheus),
}

/// Nothing is done once.
const NOTHING: fn(&mut World) = |_| {};

/// Nothing is repeated.
pub(crate) const LASTS: fn(&mut World, &Prometheus) = |_, _| {};

/// In the order in which they are made: a killed server has no other fault afterwards.
pub(crate) const FAULTS: &[Fault] = &[
    Fault {
        alert: "GridhaulDiskFull",
        words: "files are stored on a full file system",
        target: |world| world.tiny.metrics,
        once: NOTHING,
        again: |world, _| overfill(world, 1),
    },
    Fault {
        alert: "GridhaulTransfersFailing",
        words: "many files are stored on a full file system",
        target: |world| world.tiny.metrics,
        once: NOTHING,
        again: |world, _| overfill(world, 10),
    },
    Fault {
        alert: "GridhaulLogLost",
        words: "the file system of the transfer log is full",
        target: |world| world.tiny.metrics,
        once: NOTHING,
        again: |world, _| overfill(world, 10),
    },
    Fault {
        alert: "GridhaulStorageErrors",
        words: "a file is read whose blocks the disk has lost",
        target: |world| world.lossy.metrics,
        once: |world| world.lossy.lose_blocks(),
        again: |world, _| {
            let mut control = world.lossy.session();
            let _ = gridhaul_interop::raw::get_stream(&mut control, "/file");
        },
    },
    Fault {
        alert: "GridhaulDescriptorsNearlyUsedUp",
        words: "clients log in until most descriptors of a server with few of them are open",
        target: |world| world.few.metrics,
        once: |world| {
            let sessions: Vec<Control> = (0..DESCRIPTORS * 4 / 5)
                .map(|_| world.few.session())
                .collect();
            world.held.push(Box::new(sessions));
        },
        again: LASTS,
    },
    Fault {
        alert: "GridhaulServerErrors",
        words: "files are fetched while no descriptor is free",
        target: |world| world.few.metrics,
        once: NOTHING,
        again: |world, _| fetch_without_descriptors(world),
    },
    Fault {
        alert: "GridhaulWorkersExhausted",
        words: "a second client fetches a file while a slow one does, with one worker thread",
        target: |world| world.narrow.metrics,
        once: |world| {
            let (first, second) = (world.narrow.session(), world.narrow.session());
            for control in [first, second] {
                let held = ask_for_big(control);
                world.held.push(Box::new(held));
            }
        },
        again: LASTS,
    },
    Fault {
        alert: "GridhaulTransfersQueued",
        words: "a second client fetches a file while a slow one does, with max-transfers = 1",
        target: |world| world.single.metrics,
        once: |world| {
            let (first, second) = (world.single.session(), world.single.session());
            for control in [first, second] {
                let held = ask_for_big(control);
                world.held.push(Box::new(held));
            }
        },
        again: LASTS,
    },
    Fault {
        alert: "GridhaulBufferMemoryExhausted",
        words: "clients begin to fetch more files than buffer-memory has buffers, and read nothing",
        target: |world| world.lean.metrics,
        once: |world| {
            for _ in 0..40 {
                let held = ask_for_big(world.lean.session());
                world.held.push(Box::new(held));
            }
        },
        again: LASTS,
    },
    Fault {
        alert: "GridhaulDataConnectionsRefused",
        words: "another host connects to the data ports of a client",
        target: |world| world.ringed.metrics,
        once: NOTHING,
        again: |world, _| {
            let mut control = world.ringed.session();
            let address = control.passive().expect("a port");
            let stranger = Ipv4Addr::new(127, 0, 0, 2);
            let strangers: Vec<_> = (0..5)
                .map(|_| connect_from(stranger, address).expect("connected"))
                .collect();
            let mut data = control.connect_data(address).expect("connected");
            control.must("RETR /file", 150).expect("begun");
            data.read_to_end(&mut Vec::new()).expect("received");
            control.reply().expect("a reply");
            drop(strangers);
        },
    },
    Fault {
        alert: "GridhaulBrokersFailing",
        words: "the broker of an account is killed",
        target: |world| world.grid.metrics,
        once: NOTHING,
        again: |world, _| {
            let mut session = user_of(world, UserKind::Plain);
            session.must("SIZE /file", 213).expect("a size");
            brokers(world.grid.server.pid())
                .into_iter()
                .for_each(|broker| signal(broker, Signal::KILL));
            session.command("SIZE /file").expect("a reply");
        },
    },
    Fault {
        alert: "GridhaulFileThreadsExhausted",
        words: "the files of an account hang (its broker is stopped), with file-threads = 2",
        target: |world| world.grid.metrics,
        once: |world| {
            let user = [(); 4].map(|()| user_of(world, UserKind::Second));
            brokers(world.grid.server.pid()).into_iter().for_each(stop);
            for mut session in user {
                session.send_line("SIZE /file").expect("sent");
                world.held.push(Box::new(session));
            }
        },
        again: LASTS,
    },
    Fault {
        alert: "GridhaulReloadFailed",
        words: "a reload reads a wrong configuration file",
        target: |world| world.site.metrics,
        once: |world| world.site.reload_nonsense(),
        again: LASTS,
    },
    Fault {
        alert: "GridhaulPortsExhausted",
        words: "clients ask for data ports while another program holds all of port-range",
        target: |world| world.site.metrics,
        once: NOTHING,
        again: |world, _| world.site.exhaust_ports(),
    },
    Fault {
        alert: "GridhaulRefusalsHigh",
        words: "a client guesses passwords",
        target: |world| world.site.metrics,
        once: NOTHING,
        again: |world, _| world.site.guess_passwords(),
    },
    Fault {
        alert: "GridhaulRestarting",
        words: "the server is killed and started again and again",
        target: |world| world.restarting.metrics,
        once: NOTHING,
        again: restart,
    },
    Fault {
        alert: "GridhaulRdmaMemoryExhausted",
        words: "clients keep RDMA channels open until rdma-memory is used up",
        target: |world| world.ringed.metrics,
        once: NOTHING,
        again: |world, _| hold_a_ring(world),
    },
    Fault {
        alert: "GridhaulDataNodeDown",
        words: "one of two data nodes is killed",
        target: |world| world.clustered.host.metrics,
        once: |world| world.clustered.lose_node(),
        again: LASTS,
    },
    Fault {
        alert: "GridhaulNoDataNode",
        words: "the other data node is drained",
        target: |world| world.clustered.host.metrics,
        once: |world| world.clustered.drain_node(),
        again: LASTS,
    },
    Fault {
        alert: "GridhaulDown",
        words: "the server is killed",
        target: |world| world.site.metrics,
        once: |world| world.site.kill(),
        again: LASTS,
    },
];

/// The alerts that no test provokes, and why.
pub(crate) const NOT_PROVOKED: [(&str, &str); 1] = [(
    "GridhaulRdmaStalls",
    "only a device on a path that drops messages stalls; its counter is tested in user-mode Linux (make test-rdma) and the rule \
     with series that were made up",
)];

/// Stores files that do not fit.
fn overfill(world: &mut World, times: usize) {
    let mut control = world.tiny.session();
    let content = vec![1; 2 << 20];
    for _ in 0..times {
        let _ = put_stream(&mut control, "/new", &content);
    }
}

/// Asks for a large file, and reads nothing of it.
pub(crate) fn ask_for_big(mut control: Control) -> impl Sized + 'static {
    let address = control.passive().expect("a port");
    let channel = control.connect_data(address).expect("connected");
    control.send_line("RETR /big").expect("sent");
    (control, channel)
}

/// Restarts the server, and waits until Prometheus knows: it sees no server that is killed before it was scraped.
fn restart(world: &mut World, prometheus: &Prometheus) {
    let instance = world.restarting.metrics;
    let starts = format!("changes(process_start_time_seconds{{instance=\"{instance}\"}}[1h])");
    let before = prometheus.query_number(&starts);
    world.restarting.restart();
    prometheus.wait(
        "the new server is scraped",
        |prometheus| prometheus.query_number(&starts) > before,
        || {},
    );
}

/// Scrapers need a descriptor too, so the sessions end again.
fn fetch_without_descriptors(world: &mut World) {
    // A client that waits longer is not accepted, because a scraper has the last descriptor.
    const ACCEPTED_WITHIN: Duration = Duration::from_secs(2);

    let log_in = || {
        let mut control = Control::connect(world.few.server.address())?;
        control.set_timeout(ACCEPTED_WITHIN);
        control.reply()?;
        control.log_in().map(|()| control)
    };
    // The server may not have closed the sessions of the last attempt yet.
    let Ok(mut control) = log_in() else {
        return;
    };
    let listeners: Vec<_> = (0..3).map(|_| control.listen().expect("a port")).collect();
    let open = format!("/proc/{}/fd", world.few.server.pid());
    let has_free = || fs::read_dir(&open).expect("it runs").count() < DESCRIPTORS;
    let mut sessions = Vec::new();
    while has_free()
        && let Ok(session) = log_in()
    {
        sessions.push(session);
    }
    // Otherwise the machine is busy: the next attempt may succeed.
    if !has_free() {
        control.set_timeout(TIMEOUT);
        for _ in &listeners {
            let _ = control.command("RETR /file");
        }
    }
}

/// The brokers of a server.
fn brokers(server: u32) -> Vec<Pid> {
    let all = fs::read_dir("/proc").expect("proc").filter_map(|entry| {
        let name = entry.ok()?.file_name();
        name.to_str()?.parse::<i32>().ok()
    });
    let is_broker = |pid: &i32| {
        let name = fs::read_to_string(format!("/proc/{pid}/comm"));
        name.is_ok_and(|name| name.starts_with("gh-broker:")) && is_beneath(*pid, server)
    };
    all.filter(is_broker).filter_map(Pid::from_raw).collect()
}

fn is_beneath(pid: i32, top: u32) -> bool {
    let parent = |pid: &i32| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("PPid:"))?;
        line.trim().parse::<i32>().ok()
    };
    let mut parents = std::iter::successors(parent(&pid), parent).take(8);
    parents.any(|parent| u32::try_from(parent) == Ok(top))
}

fn signal(process: Pid, signal: Signal) {
    // It may have ended.
    let _ = kill_process(process, signal);
}

/// Stops a process, and waits until it has stopped: on a busy machine its threads still answer for a while.
fn stop(process: Pid) {
    signal(process, Signal::STOP);
    let stat = format!("/proc/{}/stat", process.as_raw_nonzero());
    // One that has ended has no state.
    while fs::read_to_string(&stat).is_ok_and(|stat| !stat.contains(") T ")) {
        thread::yield_now();
    }
}

/// A session of a user with a certificate.
fn user_of(world: &World, user: UserKind) -> GsiControl {
    let pki = Pki::shared().expect("certificates");
    let user = Identity::user(pki, user).expect("a credential");
    GsiControl::logged_in(world.grid.server.address(), &user).expect("logged in")
}
