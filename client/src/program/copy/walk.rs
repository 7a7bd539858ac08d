//! Directory trees: finds the files, and makes the directories of the copy.
//!
//! At most one listing for each level of a tree is open, so a tree of a million entries needs little memory.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gridhaul_storage::is_unfinished_upload;

use super::destination::Destination;
use super::error::CopyError;
use super::job::{Job, Place};
use super::jobs::Jobs;
use super::loops::Probe;
use super::preview::{Preview, Previewer};
use super::renewed::Renewed;
use super::shared::Shared;
use super::tree::{DANGLING, DEPTH, Found, LINK, SPECIAL, UNFINISHED, read_tree};
use crate::listing::{Lister, Listing};
use crate::session::{Kind, Session};

/// Finds the files of trees.
pub(super) struct Walker<'a> {
    shared: &'a Arc<Shared>,
    jobs: &'a Jobs,
    /// The directories of the copy.
    copy: Destination<'a>,
}

/// How a walk goes on after an entry.
enum Next {
    /// With its content, if it is a directory.
    Into,
    /// Without its content.
    Past,
    /// Not at all.
    Stop,
}

impl<'a> Walker<'a> {
    pub(super) fn new(shared: &'a Arc<Shared>, jobs: &'a Jobs) -> Self {
        Self {
            shared,
            jobs,
            copy: Destination::new(shared),
        }
    }

    /// Copies the content of the directory `source` into the directory `destination`, which is made.
    pub(super) async fn tree(
        &mut self,
        source: &Place,
        destination: &Place,
    ) -> Result<(), CopyError> {
        if source.contains(destination) {
            return Err(CopyError::Within);
        }
        let destination = &destination.without_last_slash();
        self.copy.enter(destination, None).await?;
        let mut probe = Probe::new(self.shared, destination, self.copy.left());
        let walked = match source {
            Place::Local { path, .. } => self.local(path, (source, destination), &mut probe).await,
            Place::Remote(url) => {
                let mut session = Renewed::new(self.shared, &url.server);
                let walked = self
                    .remote(&mut session, (source, destination), &mut probe)
                    .await;
                session.end();
                walked
            }
        };
        probe.end().await;
        if walked.is_err() {
            self.copy.spoil_all();
        }
        self.copy.finish().await;
        walked
    }

    /// Makes a directory of the copy, if there is none.
    pub(super) async fn directory(&mut self, place: &Place) -> Result<(), CopyError> {
        let entered = self.copy.enter(&place.without_last_slash(), None).await;
        // It may have other entries than the sources.
        self.copy.spoil_all();
        self.copy.finish().await;
        entered
    }

    async fn local(
        &mut self,
        root: &Path,
        (source, destination): (&Place, &Place),
        probe: &mut Probe<'_>,
    ) -> Result<(), CopyError> {
        if probe.is_source(None, source).await? {
            return Err(CopyError::SameDirectory);
        }
        let previewer = Previewer::start(self.shared, destination);
        let (mut runs, reading) = read_tree(root, previewer);
        // The directory whose content is not copied.
        let mut passed: Option<PathBuf> = None;
        'walk: while let Some(run) = runs.recv().await {
            let is_passed = |passed: &PathBuf| run.directory.starts_with(passed);
            if passed.as_ref().is_some_and(is_passed) {
                continue;
            }
            let within = |place: &Place| {
                let names = run.directory.iter();
                names.fold(place.clone(), |place, name| place.join(name.as_bytes()))
            };
            let (above, below) = (within(source), within(destination));
            let mut is_here = false;
            for entry in run.entries {
                is_here = is_here || self.copy.is_at(&below);
                if let (true, Some(name), Ok(Found::File(known))) =
                    (is_here, &entry.name, &entry.found)
                    && self.copy.has_entry(&above, name.as_bytes(), *known)
                {
                    self.shared.report.unchanged();
                    continue;
                }
                let (from, to) = match &entry.name {
                    Some(name) => (above.join(name.as_bytes()), below.join(name.as_bytes())),
                    None => (above.clone(), below.clone()),
                };
                let found = match entry.found {
                    Ok(Found::Directory) if probe.is_at(None, &from).await? => {
                        Err(CopyError::Itself)
                    }
                    found => found,
                };
                let next = self.found(&from, &to, found, entry.preview).await;
                match (next, entry.name) {
                    (Next::Into, _) | (Next::Past, None) => {}
                    (Next::Past, Some(name)) => passed = Some(run.directory.join(name)),
                    (Next::Stop, _) => {
                        self.copy.spoil_all();
                        break 'walk;
                    }
                }
            }
        }
        drop(runs);
        // It ends when the channel is closed.
        reading.await.map_err(|_| CopyError::Walk)
    }

    async fn remote(
        &mut self,
        session: &mut Renewed<'_>,
        (source, destination): (&Place, &Place),
        probe: &mut Probe<'_>,
    ) -> Result<(), CopyError> {
        if probe.is_source(Some(&mut *session), source).await? {
            return Err(CopyError::SameDirectory);
        }
        let lister = Lister::new(&self.shared.machine)?;
        let mut levels = vec![Level {
            listing: self.list(session, &lister, source).await?,
            source: source.clone(),
            destination: destination.clone(),
        }];
        while let Some(level) = levels.last_mut() {
            let entry = match level.listing.next() {
                None => {
                    levels.pop();
                    continue;
                }
                Some(Ok(entry)) => entry,
                Some(Err(error)) => {
                    self.failed(&level.source, &level.destination, &error.into());
                    self.copy.spoil(&level.destination);
                    levels.pop();
                    continue;
                }
            };
            let from = level.source.join(&entry.name);
            let to = level.destination.join(&entry.name);
            let found = match entry.facts.kind {
                Some(Kind::Directory) if entry.facts.is_link => Found::Skipped(LINK),
                Some(Kind::Directory) => Found::Directory,
                Some(Kind::File) | None if is_unfinished(&entry.name) => Found::Skipped(UNFINISHED),
                Some(Kind::File) | None => Found::File(entry.facts.into()),
                Some(Kind::Link) => match self.link(session, &from).await? {
                    Found::File(_) if is_unfinished(&entry.name) => Found::Skipped(UNFINISHED),
                    found => found,
                },
                Some(Kind::Other) => Found::Skipped(SPECIAL),
            };
            let is_directory = matches!(found, Found::Directory);
            let found = match is_directory && probe.is_at(Some(&mut *session), &from).await? {
                true => Err(CopyError::Itself),
                false => Ok(found),
            };
            match self.found(&from, &to, found, None).await {
                Next::Into => {}
                Next::Past => continue,
                Next::Stop => {
                    self.copy.spoil_all();
                    break;
                }
            }
            if !is_directory {
                continue;
            }
            let listed = match levels.len() < DEPTH {
                true => self.list(session, &lister, &from).await,
                false => Err(CopyError::Deep(DEPTH)),
            };
            match listed {
                Ok(listing) => levels.push(Level {
                    listing,
                    source: from,
                    destination: to,
                }),
                Err(error) if !session.is_usable() => return Err(error),
                Err(error) => {
                    self.copy.spoil(&to);
                    self.failed(&from, &to, &error);
                }
            }
        }
        Ok(())
    }

    /// What a link of a server leads to.
    async fn link(&self, session: &mut Renewed<'_>, from: &Place) -> Result<Found, CopyError> {
        let Place::Remote(url) = from else {
            return Ok(Found::Skipped(SPECIAL));
        };
        let facts = session.facts(from, url, CopyError::Source).await?;
        let facts = facts.unwrap_or_default();
        Ok(match facts.kind {
            Some(Kind::File) => Found::File(facts.into()),
            Some(Kind::Directory) => Found::Skipped(LINK),
            _ => Found::Skipped(DANGLING),
        })
    }

    async fn list(
        &self,
        session: &mut Renewed<'_>,
        lister: &Lister,
        place: &Place,
    ) -> Result<Listing, CopyError> {
        let Place::Remote(url) = place else {
            return Err(CopyError::Local);
        };
        let (path, channels) = (url.argument()?, &self.shared.arguments.data.channels);
        let list = async |session: &mut Session| {
            let how = channels.listings(session);
            Ok(lister.list(session, &path, &how).await?)
        };
        session.retried(place, list).await
    }

    /// Acts on an entry.
    async fn found(
        &mut self,
        from: &Place,
        to: &Place,
        found: Result<Found, CopyError>,
        preview: Option<Preview>,
    ) -> Next {
        if found.is_err() {
            // Before the directory is left, which removes what its source does not have.
            self.copy.spoil(to);
        }
        self.copy.go_to_parent_of(to).await;
        match self.act(from, to, found, preview).await {
            Ok(next) => next,
            Err(error) => {
                // Nothing is removed around an entry that has failed.
                self.copy.spoil(to);
                self.failed(from, to, &error);
                Next::Past
            }
        }
    }

    async fn act(
        &mut self,
        from: &Place,
        to: &Place,
        found: Result<Found, CopyError>,
        preview: Option<Preview>,
    ) -> Result<Next, CopyError> {
        match found {
            Ok(Found::File(known)) => {
                if self.copy.has(from, to, known).await? {
                    self.shared.report.unchanged();
                    return Ok(Next::Into);
                }
                let job = Job {
                    source: from.clone(),
                    destination: to.clone(),
                    known,
                    is_only: false,
                };
                self.shared.report.finds(job.known.size);
                Ok(match self.jobs.send(job).await {
                    Ok(()) => Next::Into,
                    // The workers have gone: the program ends.
                    Err(_) => Next::Stop,
                })
            }
            Ok(Found::Directory) => {
                // Nothing that it has would be tried.
                if let Some(reason) = self.shared.gives_up() {
                    return Err(reason);
                }
                let entered = self.copy.enter(to, preview).await;
                entered.map(|()| Next::Into)
            }
            Ok(Found::Skipped(reason)) => {
                self.shared.report.skipped(&from.words(), reason);
                Ok(Next::Past)
            }
            Err(error) => Err(error),
        }
    }

    fn failed(&self, from: &Place, to: &Place, error: &CopyError) {
        let (from, to) = (from.words(), to.words());
        self.shared.failed((&from, &to), error, "");
    }
}

/// Whether a server has no complete file under this name: it refuses to send it.
fn is_unfinished(name: &[u8]) -> bool {
    is_unfinished_upload(Path::new(OsStr::from_bytes(name)))
}

/// A directory of a server whose listing is being read.
struct Level {
    listing: Listing,
    source: Place,
    destination: Place,
}
