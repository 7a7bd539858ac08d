//! Patterns in the last component of a source, like `gsiftp://HOST/data/*.h5`.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use globset::{GlobBuilder, GlobMatcher};
use tokio::task::block_in_place;

use super::error::CopyError;
use super::job::Place;
use super::renewed::{Renewed, facts_of};
use super::shared::Shared;
use crate::listing::Lister;
use crate::session::{Kind, Session};

/// More files need a recursive copy, which does not keep them in memory.
const MOST: usize = 100_000;

/// A pattern for the names in a directory.
pub(super) struct Pattern {
    directory: Place,
    names: GlobMatcher,
    /// The pattern begins with a dot, as hidden names do.
    is_hidden: bool,
}

impl Pattern {
    /// The pattern of a source. `None`: it has none, or a file has exactly this name.
    pub(super) async fn of(shared: &Shared, source: &Place) -> Result<Option<Self>, CopyError> {
        let name = source.name();
        let is_pattern = name.iter().any(|byte| matches!(byte, b'*' | b'?' | b'['));
        if !is_pattern || source.ends_with_slash() || exists(shared, source).await? {
            return Ok(None);
        }
        let wrong = || CopyError::Pattern(source.words());
        let text = std::str::from_utf8(name).map_err(|_| wrong())?;
        let glob = GlobBuilder::new(text).literal_separator(true).build();
        Ok(Some(Self {
            directory: source.parent(),
            names: glob.map_err(|_| wrong())?.compile_matcher(),
            is_hidden: name.starts_with(b"."),
        }))
    }

    /// The places that match, in the order of their names. Directories count only in a recursive copy.
    pub(super) async fn places(&self, shared: &Shared) -> Result<Vec<Place>, CopyError> {
        let mut names = match &self.directory {
            Place::Local { path, .. } => block_in_place(|| self.of_directory(path, shared))?,
            Place::Remote(url) => {
                let (path, channels) = (url.argument()?, &shared.arguments.data.channels);
                let lister = Lister::new(&shared.machine)?;
                let list = async |session: &mut Session| {
                    let how = channels.listings(session);
                    Ok(lister.list(session, &path, &how).await?)
                };
                let mut session = Renewed::new(shared, &url.server);
                let listing = session.retried(&self.directory, list).await;
                session.end();
                let mut names = Vec::new();
                for entry in listing? {
                    let entry = entry?;
                    let is_directory = entry.facts.kind == Some(Kind::Directory);
                    self.take(entry.name, is_directory, shared, &mut names)?;
                }
                names
            }
        };
        names.sort();
        let places = names.iter().map(|name| self.directory.join(name));
        Ok(places.collect())
    }

    fn of_directory(&self, path: &Path, shared: &Shared) -> Result<Vec<Vec<u8>>, CopyError> {
        let failed = |error| CopyError::File(path.display().to_string(), error);
        let mut names = Vec::new();
        for entry in fs::read_dir(path).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let is_directory = entry.path().is_dir();
            let name = entry.file_name().as_bytes().to_vec();
            self.take(name, is_directory, shared, &mut names)?;
        }
        Ok(names)
    }

    fn take(
        &self,
        name: Vec<u8>,
        is_directory: bool,
        shared: &Shared,
        names: &mut Vec<Vec<u8>>,
    ) -> Result<(), CopyError> {
        let is_seen = self.is_hidden || !name.starts_with(b".");
        let is_wanted = !is_directory || shared.arguments.recursive;
        if is_seen && is_wanted && self.names.is_match(Path::new(OsStr::from_bytes(&name))) {
            names.push(name);
        }
        match names.len() > MOST {
            true => Err(CopyError::ManyMatches(self.directory.words())),
            false => Ok(()),
        }
    }
}

async fn exists(shared: &Shared, place: &Place) -> Result<bool, CopyError> {
    match place {
        Place::Local { path, .. } => Ok(path.exists()),
        Place::Remote(url) => {
            let facts = facts_of(shared, place, url, CopyError::Source).await?;
            Ok(facts.is_some())
        }
    }
}
