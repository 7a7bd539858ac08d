//! The transfer of a file: from a server, to a server, or between two of them.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gridhaul_protocol::command::TransferMode;
use gridhaul_protocol::feature::SimpleFeature;
use gridhaul_protocol::path::PathArgument;
use gridhaul_storage::UploadForm;
use gridhaul_transfer::Admission;

use super::super::super::report::Watch;
use super::super::error::CopyError;
use super::super::job::{Job, Place};
use super::super::present::Present;
use super::super::settings::how;
use super::super::special;
use super::super::streams::Metered;
use super::super::version::Version;
use super::found::Content;
use super::receiving::{Doubtful, Receiving};
use super::{Worker, open};
use crate::location::Url;
use crate::session::{Session, TransferSettings};
use crate::transfer::{Direction, FileCopy, ThirdPartyCopy, Transferred, third_party, two_party};

/// A transfer that took longer may have had time for a change of its source.
const QUICK: Duration = Duration::from_secs(2);

/// One round trip more, to ask about the source, costs little behind a transfer of so many.
const ROUND_TRIPS: u32 = 10;

/// The source is asked whether it has changed after a transfer that took longer.
pub(super) fn quick(source: &Session) -> Duration {
    let round_trip = source.round_trip();
    round_trip.map_or(QUICK, |one| QUICK.min(one.saturating_mul(ROUND_TRIPS)))
}

/// A file of this machine.
pub(super) struct Local<'a> {
    pub(super) path: &'a Path,
    pub(super) root: &'a Arc<Path>,
    pub(super) beneath: &'a Path,
}

impl Worker {
    /// Copies a file once.
    pub(super) async fn transfer(
        &mut self,
        job: &Job,
        present: &mut Present,
        watch: &mut Watch<'_>,
    ) -> Result<Transferred, CopyError> {
        match (&job.source, &job.destination) {
            (Place::Local { .. }, Place::Local { .. }) => Err(CopyError::Local),
            (
                Place::Remote(from),
                Place::Local {
                    path,
                    root,
                    beneath,
                },
            ) => {
                let to = Local {
                    path,
                    root,
                    beneath,
                };
                // The futures of all ways together would be too large for the stack of a thread.
                Box::pin(self.get(from, &to, job, present, watch)).await
            }
            (
                Place::Local {
                    path,
                    root,
                    beneath,
                },
                Place::Remote(to),
            ) => {
                let from = Local {
                    path,
                    root,
                    beneath,
                };
                Box::pin(self.put(&from, to, job.known, present, watch)).await
            }
            (Place::Remote(from), Place::Remote(to)) => match self.shared.arguments.relay {
                true => Box::pin(self.relayed(from, to, job.known, watch)).await,
                false => Box::pin(self.between(from, to, job.known, present, watch)).await,
            },
        }
    }

    async fn put(
        &mut self,
        from: &Local<'_>,
        to: &Url,
        known: Version,
        present: &mut Present,
        watch: &mut Watch<'_>,
    ) -> Result<Transferred, CopyError> {
        let shared = Arc::clone(&self.shared);
        let remote = to.argument()?;
        let version = present_version(from.path)?;
        if version.differs_from(&known) {
            // The journal is about the version that was found.
            watch.records_nothing();
        }
        let session = open(&mut self.destination, &shared, &to.server).await?;
        let mut settings = shared.settings(&[&*session]);
        let files = self.files(from.root, Admission::none())?;
        present.begins(version, settings.mode);
        let session = open(&mut self.destination, &shared, &to.server).await?;
        let here = Content::Here(&files, from.beneath);
        let is_doubtful = Receiving::new(session, &remote, version, shared.stall())
            .search(present, form(settings.mode), here)
            .await?;
        watch.begins(settings.mode, present.ranges());
        let session = open(&mut self.destination, &shared, &to.server).await?;
        let way = (None, Some(to.server.clone()));
        let flight = shared.begin(&way, &mut settings);
        let copy = FileCopy {
            direction: Direction::Put,
            local: from.beneath.to_owned(),
            stream: None,
            remote: remote.clone(),
            part: shared.arguments.part(),
            size: shared.bytes_of(version),
            present: present.restart(),
            stack: shared.stack_here(&settings),
            settings,
            handling: shared.handling(),
            modified: None,
            verify: shared.arguments.checksum,
            first_connection: None,
            stall: shared.stall(),
        };
        watch.says(|| how(&copy.settings, Some(&copy.stack), &copy.present));
        let mut metered = Metered {
            flight,
            observer: watch,
        };
        let done = two_party(session, &files, &copy, &mut metered).await?;
        drop(metered);
        let here = Content::Here(&files, from.beneath);
        let ranges = Doubtful {
            continued: is_doubtful.then_some(&copy.present),
            unproven: &done.unproven,
        };
        let receiving = Receiving::new(session, &remote, version, shared.stall());
        receiving.check(ranges, here).await?;
        if version.differs_from(&Version::of_file(from.path)?) {
            return Err(CopyError::Changed);
        }
        self.keep_time(&remote, version).await?;
        Ok(done)
    }

    async fn between(
        &mut self,
        from: &Url,
        to: &Url,
        known: Version,
        present: &mut Present,
        watch: &mut Watch<'_>,
    ) -> Result<Transferred, CopyError> {
        if from.is_same_file(to) {
            return Err(CopyError::Same);
        }
        if self.shared.arguments.rate.is_some() {
            return Err(CopyError::RateOfServers);
        }
        let shared = Arc::clone(&self.shared);
        let (source_path, destination_path) = (from.argument()?, to.argument()?);
        let source = open(&mut self.source, &shared, &from.server).await?;
        let destination = open(&mut self.destination, &shared, &to.server).await?;
        let started = Instant::now();
        let version = Version::of_source(source, &source_path, known).await?;
        let quick = quick(source);
        let settings = shared.settings(&[&*source, &*destination]);
        present.begins(version, settings.mode);
        let earlier = present.received();
        let done = match &earlier {
            Some(done) => done.clone(),
            None => {
                self.move_between(settings, (from, to), present, watch)
                    .await?
            }
        };
        if started.elapsed() > quick || earlier.is_some() || !present.restart().is_empty() {
            // If the source has failed, the next attempt asks it.
            present.is_received(&done);
            let source = open(&mut self.source, &shared, &from.server).await?;
            if version.differs_from(&Version::of_facts(source, &source_path).await?) {
                return Err(CopyError::Changed);
            }
        }
        self.keep_time(&destination_path, version).await?;
        Ok(done)
    }

    async fn move_between(
        &mut self,
        mut settings: TransferSettings,
        (from, to): (&Url, &Url),
        present: &mut Present,
        watch: &mut Watch<'_>,
    ) -> Result<Transferred, CopyError> {
        let shared = Arc::clone(&self.shared);
        let (source_path, destination_path) = (from.argument()?, to.argument()?);
        let source = open(&mut self.source, &shared, &from.server).await?;
        let destination = open(&mut self.destination, &shared, &to.server).await?;
        let version = present.version();
        let receiving = Receiving::new(destination, &destination_path, version, shared.stall());
        let there = Content::There(source, source_path.clone());
        let is_doubtful = receiving
            .search(present, form(settings.mode), there)
            .await?;
        watch.begins(settings.mode, present.ranges());
        let source = open(&mut self.source, &shared, &from.server).await?;
        let destination = open(&mut self.destination, &shared, &to.server).await?;
        let way = (Some(from.server.clone()), Some(to.server.clone()));
        let flight = shared.begin(&way, &mut settings);
        let copy = ThirdPartyCopy {
            source: source_path,
            destination: destination_path,
            part: shared.arguments.part(),
            size: shared.bytes_of(version),
            present: present.restart(),
            settings,
            modified: None,
            verify: shared.arguments.checksum,
            stall: shared.stall(),
        };
        watch.says(|| how(&copy.settings, None, &copy.present));
        let mut metered = Metered {
            flight,
            observer: watch,
        };
        let moving = third_party(source, destination, &copy, &mut metered);
        let done = Box::pin(moving).await?;
        drop(metered);
        let receiving = Receiving::new(destination, &copy.destination, version, shared.stall());
        let there = Content::There(source, copy.source.clone());
        let ranges = Doubtful {
            continued: is_doubtful.then_some(&copy.present),
            unproven: &done.unproven,
        };
        receiving.check(ranges, there).await?;
        Ok(done)
    }

    /// Gives the copy on a server the time of its source, if that is wanted.
    pub(super) async fn keep_time(
        &mut self,
        path: &PathArgument,
        version: Version,
    ) -> Result<(), CopyError> {
        let modified = version
            .modified
            .filter(|_| self.shared.arguments.keeps_times());
        if let (Some(modified), Some(session)) = (modified, &mut self.destination) {
            let set = session.set_modified(path, modified).await;
            set.map_err(CopyError::Destination)?;
            if !session.has(SimpleFeature::Mfmt) {
                self.shared.note_without_times(session.server());
            }
        }
        Ok(())
    }
}

/// The version of a file of this machine that is about to be sent.
fn present_version(path: &Path) -> Result<Version, CopyError> {
    let version = Version::of_file(path)?;
    match special::is_special(path) {
        true => Err(CopyError::Special(path.display().to_string())),
        false => Ok(version),
    }
}

/// How the bytes of an upload in this mode arrive.
pub(super) fn form(mode: TransferMode) -> UploadForm {
    match mode {
        TransferMode::Stream => UploadForm::Stream,
        TransferMode::Extended => UploadForm::Blocks,
    }
}
