//! The servers on which faults are made, each for the faults that do not disturb each other.

use std::any::Any;
use std::fs;
use std::net::SocketAddr;

use tempfile::TempDir;

use crate::certificates::Authority;
use crate::hosts::{Clustered, Host, Mounted, Restarting, public_directory};
use crate::site::Site;

pub(crate) struct World {
    /// With users of all kinds, and one data port, which is taken.
    pub(crate) site: Site,
    /// With little space for files and logs.
    pub(crate) tiny: Mounted,
    /// On a disk that loses blocks.
    pub(crate) lossy: Mounted,
    /// With few descriptors.
    pub(crate) few: Host,
    /// With certificates of its own.
    pub(crate) certified: Certified,
    /// With one worker thread in each direction.
    pub(crate) narrow: Host,
    /// With one transfer at a time.
    pub(crate) single: Host,
    /// With little memory for buffers.
    pub(crate) lean: Host,
    /// With little memory for the rings of RDMA.
    pub(crate) ringed: Host,
    /// With brokers, and two threads for files.
    pub(crate) grid: Host,
    pub(crate) restarting: Restarting,
    /// With data nodes.
    pub(crate) clustered: Clustered,
    /// Clients that stay.
    pub(crate) held: Vec<Box<dyn Any>>,
}

/// The descriptors of a process of [`World::few`].
pub(crate) const DESCRIPTORS: usize = 256;

impl World {
    pub(crate) fn new() -> Self {
        let limit = format!("--nofile={DESCRIPTORS}:{DESCRIPTORS}");
        Self {
            site: Site::new(),
            tiny: Mounted::tiny(),
            lossy: Mounted::on_an_image(),
            few: Host::with(&[], |launch| launch.through("prlimit").through(limit)),
            certified: Certified::new(),
            narrow: Host::new(&["--movers", "1"]),
            single: Host::new(&["--max-transfers", "1"]),
            lean: Host::new(&["--buffer-memory", "8M", "--stack", "tcp"]),
            ringed: Host::new(&["--rdma-memory", "8M", "--anonymous-drivers", "tcp,rdma"]),
            grid: Host::for_accounts(),
            restarting: Restarting::new(),
            clustered: Clustered::new(),
            held: Vec::new(),
        }
    }

    /// The pages of metrics.
    pub(crate) fn targets(&self) -> Vec<SocketAddr> {
        let hosts = [
            &self.few,
            &self.certified.host,
            &self.narrow,
            &self.single,
            &self.lean,
            &self.ringed,
            &self.grid,
            &self.clustered.host,
        ];
        let mut targets: Vec<_> = hosts.iter().map(|host| host.metrics).collect();
        targets.extend([
            self.site.metrics,
            self.tiny.metrics,
            self.lossy.metrics,
            self.restarting.metrics,
        ]);
        targets
    }
}

/// A server with a host certificate and a trust directory that tests change.
pub(crate) struct Certified {
    pub(crate) host: Host,
    authority: Authority,
    place: TempDir,
}

impl Certified {
    fn new() -> Self {
        let place = public_directory();
        let authority = Authority::new(place.path().join("authority"), "Authority", 300);
        let [cert, key, trust, gridmap] = FILES.map(|name| place.path().join(name));
        fs::create_dir(&trust).expect("made");
        authority.trust(&trust, 300);
        authority.issue(300, &cert, &key);
        fs::write(&gridmap, "").expect("written");
        let flags = FILES.iter().zip([cert, key, trust, gridmap]);
        let host = Host::with(&["--gsi"], |launch| {
            flags.fold(launch, |launch, (name, path)| {
                launch.arg(format!("--{name}")).arg(path)
            })
        });
        Self {
            host,
            authority,
            place,
        }
    }

    /// Replaces the host certificate by one that ends in this many days.
    pub(crate) fn replace_certificate(&self, days: u32) {
        let path = |name| self.place.path().join(name);
        self.authority.issue(days, &path("cert"), &path("key"));
    }

    /// Adds an authority that ends in this many days, with a revocation list that ends in so many.
    pub(crate) fn trust(&self, name: &str, days: i32, list_days: u32) {
        let authority = Authority::new(self.place.path().join(name), name, days);
        authority.trust(&self.place.path().join("trust"), list_days);
    }
}

/// The names of files, and of their flags.
const FILES: [&str; 4] = ["cert", "key", "trust", "gridmap"];
