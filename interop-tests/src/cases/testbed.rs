//! The servers and directories that cases share.
//!
//! All servers of a [`Testbed`] serve the same directory tree, in which each run of a case has a
//! directory of its own. Started as root, both servers act as `nobody`, and the files of a case belong to
//! `nobody` too.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::OnceLock;

use tempfile::TempDir;

use super::setup::Role;
use crate::support::{Cluster, Copier, Failure, Kind, Launch, Pki, Server};

/// Servers, started at their first use, and the tree that they serve.
#[derive(Debug)]
pub struct Testbed {
    servers: [OnceLock<Result<Started, Failure>>; Role::COUNT * 2],
    /// Dropped, and removed, after the servers have ended.
    directory: TempDir,
    /// The data nodes of each server of ours whose role has none.
    nodes: u8,
    /// Runs the commands of `globus-url-copy`.
    copier: Copier,
}

/// A server, alone or with data nodes.
#[derive(Debug)]
enum Started {
    Alone(Server),
    Cluster(Cluster),
}

impl Started {
    fn new(launch: &Launch, nodes: u8) -> Result<Self, Failure> {
        Ok(match nodes {
            0 => Self::Alone(launch.start()?),
            nodes => Self::Cluster(Cluster::start(launch, nodes)?),
        })
    }

    fn server(&self) -> &Server {
        match self {
            Self::Alone(server) => server,
            Self::Cluster(cluster) => cluster.server(),
        }
    }
}

impl Testbed {
    /// Makes the tree; starts nothing yet.
    ///
    /// # Errors
    ///
    /// When a temporary directory cannot be made.
    pub fn new() -> io::Result<Self> {
        let directory = tempfile::Builder::new()
            .prefix("gridhaul-interop-")
            .tempdir()?;
        // `tempdir` sets mode 0700, which keeps `nobody` out.
        fs::set_permissions(directory.path(), Permissions::from_mode(0o755))?;
        for part in ["root", "local"] {
            fs::create_dir(directory.path().join(part))?;
        }
        Ok(Self {
            servers: [const { OnceLock::new() }; Role::COUNT * 2],
            directory,
            nodes: 0,
            copier: Copier::default(),
        })
    }

    /// The same, with this number of data nodes in every server of ours.
    ///
    /// # Errors
    ///
    /// As [`Testbed::new`].
    pub fn with_nodes(nodes: u8) -> io::Result<Self> {
        Ok(Self {
            nodes,
            ..Self::new()?
        })
    }

    /// The same, with this program in the place of `globus-url-copy`.
    #[must_use]
    pub fn with_copier(self, copier: Copier) -> Self {
        Self { copier, ..self }
    }

    /// The program that runs the commands of `globus-url-copy`.
    pub fn copier(&self) -> &Copier {
        &self.copier
    }

    /// The tree that the servers serve.
    pub(super) fn remote(&self) -> PathBuf {
        self.directory.path().join("root")
    }

    /// The tree of files that clients copy from and to.
    pub(super) fn local(&self) -> PathBuf {
        self.directory.path().join("local")
    }

    /// The server of `kind` for `role`.
    ///
    /// # Errors
    ///
    /// When it does not start, now or at the first use.
    pub fn server(&self, kind: Kind, role: Role) -> Result<&Server, Failure> {
        let index = role as usize * 2 + usize::from(kind == Kind::Globus);
        let pki = role.needs_certificates().then(Pki::shared).transpose();
        let pki = pki.map_err(|error| Failure::Wrong(error.to_string()))?;
        let nodes = match (role.nodes(), kind) {
            (0, Kind::Gridhaul) => self.nodes,
            (nodes, _) => nodes,
        };
        let started =
            self.servers[index].get_or_init(|| Started::new(&self.launch(kind, role, pki), nodes));
        started
            .as_ref()
            .map(Started::server)
            .map_err(|error| Failure::Wrong(error.to_string()))
    }

    fn launch(&self, kind: Kind, role: Role, pki: Option<&'static Pki>) -> Launch {
        let root = match role {
            Role::WholeMachine => PathBuf::from("/"),
            _ => self.remote(),
        };
        let mut launch = Launch::new(kind, root);
        if kind == Kind::Gridhaul {
            // Many cases expect a refusal, and all of them come from one address.
            launch = launch.arg("--penalty-exempt").arg("127.0.0.0/8");
            if role.nodes() > 0 || self.nodes > 0 {
                // The nodes of the partner are not at the address of the client, and some users are anonymous.
                launch = launch.arg("--data-hosts").arg("127.0.0.0/8");
            }
        }
        match (role, pki) {
            (Role::Ipv6, _) => launch.ipv6(),
            (Role::ReadOnly, _) => launch.read_only(),
            (Role::Tls, Some(pki)) => launch.tls(pki),
            (
                Role::GsiRsa | Role::SecondGsiRsa | Role::TwoNodesRsa | Role::ThreeNodesRsa,
                Some(pki),
            ) => launch.gsi(pki),
            (_, Some(pki)) if kind == Kind::Gridhaul => {
                launch.gsi(pki).arg("--delegation-keys").arg("ec")
            }
            (_, Some(pki)) => launch.gsi(pki),
            (_, None) => launch,
        }
    }
}
