//! Pipelines between this machine and a server.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use gridhaul_protocol::command::TransferMode;
use gridhaul_protocol::path::PathArgument;
use gridhaul_protocol::ranges::RangeSet;
use gridhaul_transfer::{Demands, Handling, UploadName};

use super::super::super::job::{Job, Place};
use super::super::super::present::small;
use super::super::super::shared::Shared;
use super::super::super::version::Version;
use super::batch::Way;
use super::sets_times;
use crate::location::{Server, Url};
use crate::session::{Session, TransferSettings};
use crate::transfer::{Direction, FileCopy};

/// What files between this machine and a server have in common.
pub(super) struct Here {
    direction: Direction,
    server: Server,
    root: Arc<Path>,
    pub(super) settings: TransferSettings,
    /// Uploads get the times of their sources.
    sets_times: bool,
}

/// Which way a file goes, at which server, and the root of the local files.
pub(super) fn way(job: &Job) -> Option<(Direction, &Url, &Arc<Path>)> {
    match (&job.source, &job.destination) {
        (Place::Remote(url), Place::Local { root, .. }) => Some((Direction::Get, url, root)),
        (Place::Local { root, .. }, Place::Remote(url)) => Some((Direction::Put, url, root)),
        _ => None,
    }
}

impl Here {
    /// `None` if transfers with this server are not in MODE E.
    pub(super) fn of(
        shared: &Shared,
        session: &Session,
        direction: Direction,
        root: Arc<Path>,
    ) -> Option<Self> {
        let settings = match direction {
            Direction::Put => {
                let settings = shared.settings(&[session]);
                (settings.mode == TransferMode::Extended).then_some(settings)
            }
            _ => shared.settings_of_blocks(session),
        };
        let (mut settings, server) = (settings?, session.server().clone());
        let way = match direction {
            Direction::Put => (None, Some(server.clone())),
            _ => (Some(server.clone()), None),
        };
        shared.settle(&way, &mut settings);
        Some(Self {
            direction,
            server,
            root,
            settings,
            sets_times: direction == Direction::Put && sets_times(shared, session),
        })
    }

    /// `None` if the file is not small, or of unknown size.
    fn file(
        &self,
        shared: &Shared,
        local: &Path,
        remote: PathArgument,
        version: Version,
        handling: Handling,
    ) -> Option<FileCopy> {
        let arguments = &shared.arguments;
        Some(FileCopy {
            direction: self.direction,
            local: local.to_owned(),
            remote,
            part: None,
            size: Some(small(version)?),
            present: RangeSet::new(),
            stack: shared.stack_here(&self.settings),
            settings: self.settings.clone(),
            handling,
            modified: version.modified.filter(|_| self.sets_times),
            verify: arguments.checksum,
            first_connection: None,
            stream: None,
            stall: arguments.data.channels.stall_timeout,
        })
    }
}

impl Way for Here {
    type Copy = FileCopy;

    fn copy(&self, shared: &Shared, job: &Job) -> Option<(FileCopy, Version)> {
        let (direction, url, root) = way(job)?;
        if direction != self.direction || url.server != self.server || *root != self.root {
            return None;
        }
        let remote = url.argument().ok()?;
        match (&job.source, &job.destination) {
            (Place::Local { path, beneath, .. }, _) => {
                let version = Version::of_file(path).ok()?;
                let copy = self.file(shared, beneath, remote, version, shared.handling())?;
                Some((copy, version))
            }
            (_, Place::Local { path, beneath, .. }) => {
                // A device or a pipe cannot be replaced.
                let is_file = fs::metadata(path).map_or(true, |found| found.is_file());
                let version = job.known;
                let modified = version.modified;
                let handling = Handling {
                    upload: UploadName::Temporary,
                    frees_room: true,
                    demands: Demands {
                        modified: modified.filter(|_| shared.arguments.keeps_times()),
                        ..Demands::default()
                    },
                    ..shared.handling()
                };
                let copy = self.file(shared, beneath, remote, version, handling);
                Some((copy.filter(|_| is_file)?, version))
            }
            _ => None,
        }
    }
}
