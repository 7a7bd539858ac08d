//! Builds a trust store from the files of a directory.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::SystemTime;

use super::expiry::{self, TrustExpiry};
use super::file::{FileDefect, TrustFile, TrustFileKind, stem};
use super::lists::{self, Stems};
use super::problem::TrustProblem;
use super::{Directory, TrustStore};

/// Collects the files of a trust directory.
#[derive(Debug, Default)]
pub struct TrustBuilder {
    files: Vec<File>,
    last_good: LastGood,
}

#[derive(Debug)]
struct File {
    name: String,
    kind: TrustFileKind,
    content: Result<TrustFile, FileDefect>,
}

/// The last usable content of each file, by name.
#[derive(Clone, Debug, Default)]
pub struct LastGood(HashMap<String, TrustFile>);

/// A store, and the problems of the files that it was built from.
#[derive(Debug)]
pub struct Built {
    /// The store.
    pub store: TrustStore,
    /// The problems, serious ones first.
    pub problems: Vec<TrustProblem>,
    /// When the authorities and lists in use end.
    pub expiries: Arc<[TrustExpiry]>,
    /// The input for the next build.
    pub last_good: LastGood,
}

impl LastGood {
    /// The names of files with revocation lists.
    pub(crate) fn revocation_lists(&self) -> impl Iterator<Item = &str> {
        let files = self.0.iter();
        files
            .filter(|(_, content)| !content.revocation_lists().is_empty())
            .map(|(file, _)| &**file)
    }

    fn find(&self, file: &str, kind: TrustFileKind) -> Option<&TrustFile> {
        let found = self.0.get(file)?;
        let same_kind = matches!(
            (found, kind),
            (TrustFile::Certificates(_), TrustFileKind::Certificates)
                | (
                    TrustFile::RevocationLists(_),
                    TrustFileKind::RevocationLists
                )
                | (
                    TrustFile::SigningPolicy(_),
                    TrustFileKind::SigningPolicy { .. }
                )
        );
        same_kind.then_some(found)
    }
}

impl TrustBuilder {
    /// A builder that uses the last usable content of files that are unusable now.
    pub fn after(last_good: LastGood) -> Self {
        Self {
            files: Vec::new(),
            last_good,
        }
    }

    /// Adds a file. Its name determines its kind: `HASH.0`, `HASH.signing_policy`, `HASH.r0`, or plain names such as
    /// `ca.pem`, `ca.signing_policy`, `ca.crl`. Other files are ignored. Content that was added under another name is skipped.
    pub fn add(&mut self, file: &str, content: &[u8]) {
        if let Some(kind) = TrustFileKind::of(file) {
            self.add_parsed(file, kind, TrustFile::parse(kind, content));
        }
    }

    /// Adds a file that was parsed before, or why it could not be parsed.
    pub(crate) fn add_parsed(
        &mut self,
        file: &str,
        kind: TrustFileKind,
        content: Result<TrustFile, FileDefect>,
    ) {
        self.files.push(File {
            name: file.to_owned(),
            kind,
            content,
        });
    }

    /// The store, and the problems.
    pub fn build(self) -> (TrustStore, Vec<TrustProblem>) {
        let built = self.build_at(SystemTime::now());
        (built.store, built.problems)
    }

    /// The store as of `now`.
    pub fn build_at(self, now: SystemTime) -> Built {
        let (lists, others): (Vec<_>, Vec<_>) = self
            .files
            .into_iter()
            .partition(|file| file.kind == TrustFileKind::RevocationLists);
        let mut building = Building {
            last_good: self.last_good,
            directory: Directory::default(),
            problems: Vec::new(),
            good: HashMap::new(),
        };
        let names: Vec<_> = others.iter().map(|file| file.name.clone()).collect();
        let mut stems = Stems::default();
        for (file, name) in others.into_iter().zip(&names) {
            building.add_file(file, stem(name), &mut stems);
        }
        // Lists come last, because their validation needs the certificates.
        for file in lists {
            building.add_lists(file, &stems, now);
        }
        building.finish()
    }
}

struct Building {
    last_good: LastGood,
    directory: Directory,
    problems: Vec<TrustProblem>,
    good: HashMap<String, TrustFile>,
}

impl Building {
    /// A file with certificates or a signing policy.
    fn add_file<'a>(&mut self, file: File, stem: &'a str, stems: &mut Stems<'a>) {
        let File {
            name,
            kind,
            content,
        } = file;
        let content = match content {
            Ok(content) => content,
            Err(defect) => match self.take_last_good(&name, kind, &defect) {
                Some(before) => before,
                None => {
                    self.problems.push(TrustProblem {
                        file: name,
                        reason: defect.reason,
                        is_grave: false,
                    });
                    return;
                }
            },
        };
        match &content {
            TrustFile::Certificates(certificates) => {
                let names = stems.names.entry(stem).or_default();
                for certificate in &**certificates {
                    names.push(certificate.subject().clone());
                    self.directory.add_authority(certificate);
                }
            }
            TrustFile::SigningPolicy(policy) => {
                let authorities = policy.authorities().cloned();
                stems.policies.entry(stem).or_default().extend(authorities);
                let is_hashed = kind == TrustFileKind::SigningPolicy { is_hashed: true };
                self.directory.add_policy(policy, is_hashed);
            }
            TrustFile::RevocationLists(_) => {}
        }
        self.good.insert(name, content);
    }

    fn add_lists(&mut self, file: File, stems: &Stems<'_>, now: SystemTime) {
        let File {
            name,
            kind,
            content,
        } = file;
        let before = self.last_good.find(&name, kind);
        let judged = content.and_then(|content| {
            lists::judge(&self.directory, stems, &name, &content, before, now).map(|()| content)
        });
        let content = match judged {
            Ok(content) => content,
            Err(defect) => match self.take_last_good(&name, kind, &defect) {
                Some(before) => before,
                None => {
                    let problem = lists::refuse(&mut self.directory, stems, &name, defect);
                    self.problems.push(problem);
                    return;
                }
            },
        };
        lists::add(
            &mut self.directory,
            stems,
            &name,
            content.revocation_lists(),
        );
        self.good.insert(name, content);
    }

    /// The last usable content of a file that is unusable now. Adds a problem.
    fn take_last_good(
        &mut self,
        file: &str,
        kind: TrustFileKind,
        defect: &FileDefect,
    ) -> Option<TrustFile> {
        let before = self.last_good.find(file, kind)?.clone();
        self.problems.push(TrustProblem {
            file: file.to_owned(),
            reason: format!("{}; the previous content stays in use", defect.reason),
            is_grave: false,
        });
        Some(before)
    }

    fn finish(mut self) -> Built {
        self.problems
            .sort_by(|one, other| (!one.is_grave, &one.file).cmp(&(!other.is_grave, &other.file)));
        Built {
            expiries: expiry::of(&self.directory, &self.good),
            store: TrustStore {
                directory: Arc::new(self.directory),
                extra_anchors: Arc::default(),
                has_only_extra_anchors: false,
            },
            problems: self.problems,
            last_good: LastGood(self.good),
        }
    }
}

#[cfg(test)]
mod tests;
