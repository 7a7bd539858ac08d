//! Security files that are read again when they change, and whose problems go to the log.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use gridhaul_security::bans::BanList;
use gridhaul_security::files::{
    BanListFile, FileError, GridmapFile, TrustDirectory, VomsDirectory,
};
use gridhaul_security::gridmap::Gridmap;
use gridhaul_security::trust::TrustStore;
use gridhaul_security::voms::VomsServers;
use tracing::{error, warn};

use super::Opener;
use crate::locks::lock;
use crate::telemetry::Repeats;

/// The interval of messages about a file that stays unusable.
const REMIND: Duration = Duration::from_secs(60);

/// A file or directory, in its last usable state.
pub(super) trait Source: Sized {
    type Content: fmt::Debug;

    /// What a failure means, for the log.
    const FAILURE: &'static str;

    fn open(path: &Path, opener: &Opener) -> Result<Self, FileError>;
    fn current(&self) -> Arc<Self::Content>;
    /// The parts that are not used.
    fn problems(&self) -> Vec<String>;
    /// The reason why the present state is not used: the same error object until the file can be read again.
    fn failure(&self) -> Option<Arc<FileError>>;
}

/// A source whose problems go to the log, once each time it is read.
#[derive(Debug)]
pub(super) struct Told<S: Source> {
    path: PathBuf,
    source: S,
    last: Mutex<Last<S>>,
}

/// The state that was logged last.
#[derive(Debug)]
struct Last<S: Source> {
    content: Weak<S::Content>,
    failure: Weak<FileError>,
    /// The messages about the failure.
    repeats: Repeats,
}

impl<S: Source> Told<S> {
    pub(super) fn open(path: &Path, opener: &Opener) -> Result<Self, FileError> {
        let told = Self {
            path: path.to_owned(),
            source: S::open(path, opener)?,
            last: Mutex::new(Last {
                content: Weak::new(),
                failure: Weak::new(),
                repeats: Repeats::new(REMIND),
            }),
        };
        told.current();
        Ok(told)
    }

    /// Where it is.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The present content. Blocks on files, at most once a second.
    pub(super) fn current(&self) -> Arc<S::Content> {
        let content = self.source.current();
        let mut last = lock(&self.last);
        if !std::ptr::eq(last.content.as_ptr(), Arc::as_ptr(&content)) {
            last.content = Arc::downgrade(&content);
            self.tell_problems();
        }
        if let Some(failure) = self.source.failure() {
            let is_new = !std::ptr::eq(last.failure.as_ptr(), Arc::as_ptr(&failure));
            if is_new {
                last.failure = Arc::downgrade(&failure);
                last.repeats = Repeats::new(REMIND);
            }
            if last.repeats.due().is_some() {
                error!(error = %failure, "{}", S::FAILURE);
            }
        }
        content
    }

    /// The present content, unless the file cannot be used now. Blocks on files, at most once a second.
    pub(super) fn usable(&self) -> Result<Arc<S::Content>, Arc<FileError>> {
        let content = self.current();
        match self.source.failure() {
            None => Ok(content),
            Some(failure) => Err(failure),
        }
    }

    fn tell_problems(&self) {
        /// A bound on the log.
        const MOST: usize = 20;

        let path = self.path.display();
        let problems = self.source.problems();
        for problem in problems.iter().take(MOST) {
            warn!(%path, %problem, "a part of a security file is not used");
        }
        if problems.len() > MOST {
            let more = problems.len() - MOST;
            warn!(%path, more, "further parts of a security file are not used");
        }
    }
}

impl Source for TrustDirectory {
    type Content = TrustStore;

    const FAILURE: &'static str =
        "a security file cannot be read again; what was there stays in use";

    fn open(path: &Path, _: &Opener) -> Result<Self, FileError> {
        Self::open(path)
    }

    fn current(&self) -> Arc<TrustStore> {
        self.current()
    }

    fn problems(&self) -> Vec<String> {
        let problems = self.problems().into_iter();
        problems
            .map(|problem| format!("{}: {}", problem.file, problem.reason))
            .collect()
    }

    fn failure(&self) -> Option<Arc<FileError>> {
        self.failure()
    }
}

impl Source for BanListFile {
    type Content = BanList;

    const FAILURE: &'static str =
        "a ban list cannot be used: no user logs in with a certificate until it is repaired";

    fn open(path: &Path, opener: &Opener) -> Result<Self, FileError> {
        Self::open_with(path, Arc::new(opener.clone()))
    }

    fn current(&self) -> Arc<BanList> {
        self.current()
    }

    fn problems(&self) -> Vec<String> {
        Vec::new()
    }

    fn failure(&self) -> Option<Arc<FileError>> {
        self.failure()
    }
}

impl Source for GridmapFile {
    type Content = Gridmap;

    const FAILURE: &'static str =
        "the grid-mapfile cannot be read: it maps no users until it can be";

    fn open(path: &Path, opener: &Opener) -> Result<Self, FileError> {
        Self::open_with(path, Arc::new(opener.clone()))
    }

    fn current(&self) -> Arc<Gridmap> {
        self.current()
    }

    fn problems(&self) -> Vec<String> {
        self.problems().iter().map(ToString::to_string).collect()
    }

    fn failure(&self) -> Option<Arc<FileError>> {
        self.failure()
    }
}

impl Source for VomsDirectory {
    type Content = VomsServers;

    const FAILURE: &'static str =
        "a security file cannot be read again; what was there stays in use";

    fn open(path: &Path, _: &Opener) -> Result<Self, FileError> {
        Self::open(path)
    }

    fn current(&self) -> Arc<VomsServers> {
        self.current()
    }

    fn problems(&self) -> Vec<String> {
        let problems = self.problems().into_iter();
        problems
            .map(|problem| format!("{}: {}", problem.path.display(), problem.reason))
            .collect()
    }

    fn failure(&self) -> Option<Arc<FileError>> {
        self.failure()
    }
}
