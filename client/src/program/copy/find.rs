//! Finds the files that a command names.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

use super::destination::Destination;
use super::error::CopyError;
use super::job::{Job, Place};
use super::jobs::Jobs;
use super::pattern::Pattern;
use super::renewed::facts_of;
use super::shared::Shared;
use super::version::{Version, permissions_of};
use super::walk::Walker;
use crate::location::{End, Location};
use crate::session::Kind;

/// Sources that go to one destination.
#[derive(Debug)]
pub(in crate::program) struct Errand {
    pub(super) sources: Vec<Location>,
    pub(super) destination: Location,
}

impl Errand {
    pub(super) fn new(sources: Vec<Location>, destination: Location) -> Self {
        Self {
            sources,
            destination,
        }
    }

    /// The last of these locations is the destination.
    pub(in crate::program) fn of(mut locations: Vec<Location>) -> Option<Self> {
        let destination = locations.pop()?;
        (!locations.is_empty()).then_some(Self {
            sources: locations,
            destination,
        })
    }

    /// Makes sessions of sources differ from those of destinations.
    pub(in crate::program) fn tell_ends(&mut self) {
        let tell = |location: &mut Location, end| {
            if let Location::Remote(url) = location {
                url.server.end = Some(end);
            }
        };
        for source in &mut self.sources {
            tell(source, End::Source);
        }
        tell(&mut self.destination, End::Destination);
    }

    /// The sources and, last, the destination.
    pub(in crate::program) fn locations(&self) -> Vec<Location> {
        let sources = self.sources.iter().cloned();
        sources.chain([self.destination.clone()]).collect()
    }

    /// Whether an end is on this machine.
    pub(super) fn is_here(&self) -> bool {
        let mut all = self.sources.iter().chain([&self.destination]);
        all.any(|one| matches!(one, Location::Local(_)))
    }

    /// Whether files of a server go to a server.
    pub(super) fn is_between_servers(&self) -> bool {
        let is_remote = |location: &Location| matches!(location, Location::Remote(_));
        is_remote(&self.destination) && self.sources.iter().any(is_remote)
    }

    /// The number of sources.
    pub(super) fn len(&self) -> usize {
        self.sources.len()
    }

    /// The directory of this machine that trees of servers go to.
    fn root(&self) -> Option<&Path> {
        let is_remote = |location: &Location| matches!(location, Location::Remote(_));
        match &self.destination {
            Location::Local(path) if self.sources.iter().any(is_remote) => Some(path),
            _ => None,
        }
    }
}

/// Sends a job for each file of the sources, and reports what cannot be copied.
pub(super) async fn find(shared: &Arc<Shared>, errands: Vec<Errand>, jobs: Jobs) {
    let mut targets = HashSet::new();
    let is_only = errands.len() == 1;
    let makes_root = shared.arguments.recursive && !shared.arguments.dry_run;
    for errand in errands {
        let failed = |error: CopyError, source: Option<&Location>| {
            let from = source.map(ToString::to_string).unwrap_or_default();
            let to = errand.destination.to_string();
            let names = source.map(|_| (from.as_str(), to.as_str()));
            shared.report.failed(names, &error.to_string());
        };
        let destination = match Place::of(&errand.destination) {
            Ok(destination) => destination,
            Err(error) => {
                failed(error, None);
                continue;
            }
        };
        let mut finder = Finder {
            shared,
            jobs: &jobs,
            destination,
            root: errand.root().filter(|_| makes_root),
            are_many: errand.sources.len() > 1,
            is_only,
            targets: &mut targets,
        };
        for source in &errand.sources {
            let found = match Place::of(source) {
                Ok(place) => finder.sources(&place).await,
                Err(error) => Err(error),
            };
            if let Err(error) = found {
                failed(error, Some(source));
            }
        }
    }
}

struct Finder<'a> {
    shared: &'a Arc<Shared>,
    jobs: &'a Jobs,
    destination: Place,
    /// The destination as a directory that becomes a root of its own, once a source needs that.
    root: Option<&'a Path>,
    are_many: bool,
    /// There are no other sources.
    is_only: bool,
    /// Where sources go. Two of them must not go to one place.
    targets: &'a mut HashSet<String>,
}

impl Finder<'_> {
    /// Copies a source, or all that its pattern matches.
    async fn sources(&mut self, source: &Place) -> Result<(), CopyError> {
        let Some(pattern) = Pattern::of(self.shared, source).await? else {
            return self.source(source).await;
        };
        let are_many = std::mem::replace(&mut self.are_many, true);
        let found = pattern.places(self.shared).await?;
        for place in &found {
            if let Err(error) = self.source(place).await {
                let (from, to) = (place.words(), self.destination.words());
                let names = Some((from.as_str(), to.as_str()));
                self.shared.report.failed(names, &error.to_string());
            }
        }
        self.are_many = are_many;
        match found.is_empty() {
            true => Err(CopyError::NoMatch(source.words())),
            false => Ok(()),
        }
    }

    async fn source(&mut self, source: &Place) -> Result<(), CopyError> {
        let arguments = &self.shared.arguments;
        let (kind, known) = self.look_at(source).await?;
        let is_directory = kind == Some(Kind::Directory);
        if is_directory && !arguments.recursive {
            return Err(CopyError::Directory(source.words()));
        }
        if (is_directory || self.are_many)
            && let Some(root) = self.root
        {
            self.destination = Place::as_root(root)?;
            self.root = None;
        }
        if is_directory {
            // The content of one directory becomes the content of the destination; several ones keep their names.
            let target = match self.are_many {
                true => self.destination.join(source.name()),
                false => self.destination.clone(),
            };
            self.claim(&target)?;
            if self.are_many {
                Walker::new(self.shared, self.jobs)
                    .directory(&self.destination)
                    .await?;
            }
            return Walker::new(self.shared, self.jobs)
                .tree(source, &target)
                .await;
        }
        let target = self.target(source).await?;
        self.claim(&target)?;
        let mut copy = Destination::new(self.shared);
        let has = copy.has(source, &target, known).await;
        let made = match arguments.create_dirs && !arguments.dry_run {
            true => copy.make_all(&target.parent()).await,
            false => Ok(()),
        };
        copy.finish().await;
        made?;
        if has? {
            self.shared.report.unchanged();
            return Ok(());
        }
        let job = Job {
            source: source.clone(),
            destination: target,
            known,
            is_only: self.is_only && !self.are_many,
        };
        // The workers have gone only when the program ends.
        self.shared.report.finds(job.known.size);
        let _ = self.jobs.send(job).await;
        Ok(())
    }

    fn claim(&mut self, target: &Place) -> Result<(), CopyError> {
        match self.targets.insert(target.words()) {
            true => Ok(()),
            false => Err(CopyError::Twice),
        }
    }

    /// The type of a source, and its version, as far as they are known.
    async fn look_at(&self, source: &Place) -> Result<(Option<Kind>, Version), CopyError> {
        match source {
            Place::Local { path, .. } => {
                // A file that does not exist is reported by the worker.
                let Ok(found) = std::fs::metadata(path) else {
                    return Ok((None, Version::default()));
                };
                let kind = found.is_dir().then_some(Kind::Directory);
                let version = Version {
                    size: found.is_file().then_some(found.len()),
                    modified: found.modified().ok(),
                    mode: Some(permissions_of(&found)),
                };
                Ok((kind, version))
            }
            Place::Remote(url) => {
                let facts = facts_of(self.shared, source, url, CopyError::Source);
                let facts = facts.await?.unwrap_or_default();
                Ok((facts.kind, facts.into()))
            }
        }
    }

    /// Where a file goes: into the destination if that is a directory, else to its name.
    async fn target(&self, source: &Place) -> Result<Place, CopyError> {
        let destination = &self.destination;
        let is_directory = self.are_many
            || destination.ends_with_slash()
            || match destination {
                _ if self.shared.arguments.no_target_directory => false,
                Place::Local { path, .. } => path.is_dir(),
                Place::Remote(url) => {
                    let failed = CopyError::Destination;
                    let facts = facts_of(self.shared, destination, url, failed).await?;
                    facts.is_some_and(|facts| facts.kind == Some(Kind::Directory))
                }
            };
        Ok(match is_directory {
            true => destination.join(source.name()),
            false => destination.clone(),
        })
    }
}
