//! The crates that a program is built of, as cargo resolves them from `Cargo.lock`.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::Deserialize;

use crate::program::Program;

/// The dependencies are not known.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MetadataError {
    /// Cargo does not run.
    #[error("cannot run cargo metadata: {0}")]
    Run(io::Error),
    /// Cargo has failed; its message is on standard error.
    #[error("cargo metadata has failed")]
    Failed,
    /// The output has another form.
    #[error("cargo metadata: {0}")]
    Form(#[from] serde_json::Error),
    /// `Cargo.lock` cannot be used.
    #[error("Cargo.lock: {0}")]
    Lock(String),
    /// A crate has no licence text, or it cannot be read.
    #[error("{0}: {1}")]
    Licence(String, String),
}

/// A crate.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
pub(crate) struct Crate {
    pub(crate) name: String,
    pub(crate) version: String,
    /// An SPDX expression.
    pub(crate) license: Option<String>,
    pub(crate) description: Option<String>,
    /// `None` for crates of the workspace.
    pub(crate) source: Option<String>,
    id: String,
    manifest_path: PathBuf,
}

impl Crate {
    /// The directory of its sources.
    pub(crate) fn directory(&self) -> &Path {
        self.manifest_path
            .parent()
            .unwrap_or_else(|| Path::new("/"))
    }
}

/// A program and the crates that it is built of.
#[derive(Debug)]
pub(crate) struct Metadata {
    /// The crate of the program, without its dependencies.
    pub(crate) program: Crate,
    /// All others, by name and version.
    pub(crate) crates: Vec<Crate>,
    /// The SHA-256 sum of the archive of each crate, by name and version.
    pub(crate) checksums: BTreeMap<(String, String), String>,
}

#[derive(Debug, Deserialize)]
struct Output {
    packages: Vec<Crate>,
    resolve: Resolve,
}

#[derive(Debug, Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
}

#[derive(Debug, Deserialize)]
struct Node {
    id: String,
    deps: Vec<Dependency>,
}

#[derive(Debug, Deserialize)]
struct Dependency {
    pkg: String,
    dep_kinds: Vec<DependencyKind>,
}

#[derive(Debug, Deserialize)]
struct DependencyKind {
    /// `None` for code that is linked; else `dev` or `build`.
    kind: Option<String>,
}

impl Metadata {
    /// Asks cargo, for the platform of this build.
    ///
    /// # Errors
    ///
    /// When cargo fails.
    pub(crate) fn read(program: Program) -> Result<Self, MetadataError> {
        const MANIFEST: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../Cargo.toml");

        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
        let output = Command::new(cargo)
            .args(["metadata", "--format-version", "1", "--locked"])
            .args(["--filter-platform", &target, "--manifest-path", MANIFEST])
            .stderr(Stdio::inherit())
            .output()
            .map_err(MetadataError::Run)?;
        if !output.status.success() {
            return Err(MetadataError::Failed);
        }
        let output: Output = serde_json::from_slice(&output.stdout)?;
        let lock = Path::new(MANIFEST).with_file_name("Cargo.lock");
        let lock = std::fs::read_to_string(lock);
        let lock = lock.map_err(|error| MetadataError::Lock(error.to_string()))?;
        let checksums = checksums(&lock).map_err(|error| MetadataError::Lock(error.to_string()))?;
        let named = output.packages.iter();
        let mut named = named.filter(|one| one.name == program.package());
        let program = named.next().cloned().ok_or(MetadataError::Failed)?;
        let linked = linked(&output, &program);
        let crates = output.packages.into_iter();
        let crates = crates.filter(|one| linked.contains(&one.id) && one.id != program.id);
        let mut crates: Vec<Crate> = crates.collect();
        crates.sort();
        Ok(Self {
            program,
            crates,
            checksums,
        })
    }
}

/// The identifiers of the crates whose code is linked into the program.
fn linked(output: &Output, program: &Crate) -> BTreeSet<String> {
    let mut next = vec![program.id.clone()];
    let mut linked = BTreeSet::new();
    while let Some(id) = next.pop() {
        if linked.insert(id.clone()) {
            let node = output.resolve.nodes.iter().find(|node| node.id == id);
            let needed = node.into_iter().flat_map(|node| &node.deps);
            let needed = needed.filter(|dep| dep.dep_kinds.iter().any(|kind| kind.kind.is_none()));
            next.extend(needed.map(|dep| dep.pkg.clone()));
        }
    }
    linked
}

/// The sums in `Cargo.lock`. Crates of the workspace have none.
fn checksums(lock: &str) -> Result<BTreeMap<(String, String), String>, toml::de::Error> {
    #[derive(Deserialize)]
    struct Lock {
        package: Vec<Locked>,
    }
    #[derive(Deserialize)]
    struct Locked {
        name: String,
        version: String,
        checksum: Option<String>,
    }

    let lock: Lock = toml::from_str(lock)?;
    let packages = lock.package.into_iter();
    let sums = packages.filter_map(|one| Some(((one.name, one.version), one.checksum?)));
    Ok(sums.collect())
}
