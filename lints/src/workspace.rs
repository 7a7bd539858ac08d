//! The workspace's members and files.

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde::Deserialize;
use thiserror::Error;

/// Why a check could not run.
#[derive(Debug, Error)]
pub(crate) enum LintError {
    /// A file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The underlying OS error.
        source: std::io::Error,
    },
    /// A file is not Rust source.
    #[error("{}:{}: {source}", path.display(), source.span().start().line)]
    Rust {
        /// The file.
        path: PathBuf,
        /// What the parser found.
        source: syn::Error,
    },
    /// A configuration file is malformed.
    #[error("{}: {source}", path.display())]
    Toml {
        /// The file.
        path: PathBuf,
        /// What the parser found.
        source: Box<toml::de::Error>,
    },
    /// A declared module has no file.
    #[error("{}: there is no file for module `{module}`", declared_in.display())]
    MissingModule {
        /// The file that declares the module.
        declared_in: PathBuf,
        /// The module's name.
        module: String,
    },
    /// The command line names a package that the workspace does not have.
    #[error("no package {0} in the workspace")]
    UnknownPackage(String),
}

/// A crate of the workspace.
#[derive(Debug)]
pub(crate) struct Package {
    /// The package name without the common prefix `gridhaul-`.
    pub(crate) name: String,
    /// Its directory, relative to the top directory.
    pub(crate) directory: PathBuf,
}

/// The packages that the manifest in the current directory lists as members, in its order.
///
/// # Errors
///
/// If a manifest cannot be read or parsed.
pub(crate) fn packages() -> Result<Vec<Package>, LintError> {
    #[derive(Deserialize)]
    struct Manifest {
        workspace: Workspace,
    }
    #[derive(Deserialize)]
    struct Workspace {
        members: Vec<PathBuf>,
    }
    #[derive(Deserialize)]
    struct MemberManifest {
        package: Named,
    }
    #[derive(Deserialize)]
    struct Named {
        name: String,
    }
    let manifest: Manifest = toml_file(Path::new("Cargo.toml"))?;
    let mut packages = Vec::new();
    for directory in manifest.workspace.members {
        let member: MemberManifest = toml_file(&directory.join("Cargo.toml"))?;
        let name = member
            .package
            .name
            .trim_start_matches("gridhaul-")
            .to_owned();
        packages.push(Package { name, directory });
    }
    Ok(packages)
}

/// Parses a TOML file.
///
/// # Errors
///
/// If the file cannot be read or parsed.
pub(crate) fn toml_file<T: serde::de::DeserializeOwned>(path: &Path) -> Result<T, LintError> {
    toml::from_str(&read(path)?).map_err(|source| LintError::Toml {
        path: path.to_owned(),
        source: Box::new(source),
    })
}

/// Reads a text file.
///
/// # Errors
///
/// If the file cannot be read.
pub(crate) fn read(path: &Path) -> Result<String, LintError> {
    fs::read_to_string(path).map_err(|source| LintError::Read {
        path: path.to_owned(),
        source,
    })
}

/// All files below `directory` whose name ends in one of `extensions`, sorted, without build output and hidden directories.
///
/// # Errors
///
/// If a directory cannot be read.
pub(crate) fn files(directory: &Path, extensions: &[&str]) -> Result<Vec<PathBuf>, LintError> {
    let failed = |source| LintError::Read {
        path: directory.to_owned(),
        source,
    };
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let path = entry.path();
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if entry.file_type().map_err(failed)?.is_dir() {
            if !name.starts_with('.') && !name.starts_with("target") {
                found.extend(files(&path, extensions)?);
            }
        } else if path
            .extension()
            .is_some_and(|end| extensions.iter().any(|e| end == *e))
        {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}
