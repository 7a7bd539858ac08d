//! Pipelines between two servers.

use gridhaul_protocol::command::TransferMode;
use gridhaul_protocol::feature::SimpleFeature;
use gridhaul_protocol::ranges::RangeSet;

use super::super::super::job::{Job, Place};
use super::super::super::present::small;
use super::super::super::shared::Shared;
use super::super::super::version::Version;
use super::batch::Way;
use super::sets_times;
use crate::location::{Server, Url};
use crate::session::{Session, TransferSettings};
use crate::transfer::ThirdPartyCopy;

/// What files between two servers have in common.
pub(super) struct Between {
    source: Server,
    destination: Server,
    settings: TransferSettings,
    /// Copies get the times of their sources.
    sets_times: bool,
}

/// Source and destination of a file between servers.
pub(super) fn way(job: &Job) -> Option<(&Url, &Url)> {
    match (&job.source, &job.destination) {
        // A file cannot be copied to itself.
        (Place::Remote(from), Place::Remote(to)) if !from.is_same_file(to) => Some((from, to)),
        _ => None,
    }
}

impl Between {
    /// `None` if transfers between these servers are not in MODE E, sizes cannot be compared, or bytes go through this machine.
    pub(super) fn of(shared: &Shared, source: &Session, destination: &Session) -> Option<Self> {
        let mut settings = shared.settings(&[source, destination]);
        let is_possible = settings.mode == TransferMode::Extended
            && destination.has(SimpleFeature::Size)
            && !shared.arguments.relay
            // Servers have no limit of the user.
            && shared.arguments.rate.is_none();
        let servers = [source, destination].map(|session| Some(session.server().clone()));
        shared.settle(&servers.into(), &mut settings);
        is_possible.then(|| Self {
            source: source.server().clone(),
            destination: destination.server().clone(),
            settings,
            sets_times: sets_times(shared, destination),
        })
    }
}

impl Way for Between {
    type Copy = ThirdPartyCopy;

    fn copy(&self, shared: &Shared, job: &Job) -> Option<(ThirdPartyCopy, Version)> {
        let (from, to) = way(job)?;
        if (&from.server, &to.server) != (&self.source, &self.destination) {
            return None;
        }
        let copy = ThirdPartyCopy {
            source: from.argument().ok()?,
            destination: to.argument().ok()?,
            part: None,
            size: Some(small(job.known)?),
            present: RangeSet::new(),
            settings: self.settings.clone(),
            modified: job.known.modified.filter(|_| self.sets_times),
            verify: shared.arguments.checksum,
            stall: shared.arguments.data.channels.stall_timeout,
        };
        Some((copy, job.known))
    }
}
