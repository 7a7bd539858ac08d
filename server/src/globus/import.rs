//! `gridhaul-server import`: from the configuration of globus-gridftp-server to a configuration file of this server.

use std::io::{self, Write};
use std::net::{IpAddr, ToSocketAddrs as _};
use std::path::{Path, PathBuf};

use super::given::Given;
use super::read::{self, ReadError};
use super::table;
use super::translate::{Facts, TranslateError, translate};
use crate::config::ImportArguments;

/// How much was carried over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Imported {
    /// Everything that limits access.
    AllLimits,
    /// Some limits of access are missing: the output names them.
    SomeLimits,
}

/// An error of `import`. There is no output then.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// There is no configuration in the usual places.
    #[error(
        "there is neither /etc/gridftp.conf nor /etc/grid-security/gridftp.conf: name the files"
    )]
    Nothing,
    /// A file cannot be used.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// An option has a value with which no server starts.
    #[error(transparent)]
    Translate(#[from] TranslateError),
    /// The output cannot be written.
    #[error("cannot write the configuration: {0}")]
    Write(#[from] io::Error),
}

/// The files that the unit and the init script of globus-gridftp-server read before it starts.
const VARIABLES: [&str; 2] = [
    "/etc/sysconfig/globus-gridftp-server",
    "/etc/default/globus-gridftp-server",
];

/// Writes the configuration to `out`, or the table of options.
///
/// # Errors
///
/// When a file cannot be read or has a mistake, or `out` fails.
pub fn import(arguments: &ImportArguments, out: &mut impl Write) -> Result<Imported, ImportError> {
    if arguments.options {
        out.write_all(table::markdown().as_bytes())?;
        return Ok(Imported::AllLimits);
    }
    let mut given = Given::default();
    let sources = read_all(&sources(arguments)?, &mut given)?;
    let facts = Facts {
        is_root: true,
        has_credential: has_host_certificate(),
        port: 2811,
        base: PathBuf::from("/"),
        resolve: &resolve,
    };
    let translation = translate(&given, &facts)?;
    out.write_all(translation.annotated(&sources).as_bytes())?;
    Ok(match translation.keeps_guards() {
        true => Imported::AllLimits,
        false => Imported::SomeLimits,
    })
}

/// A file or directory to read.
enum Source {
    Variables(PathBuf),
    Configuration(PathBuf),
}

/// What is named, else what is in the usual places. Of two values the later counts: files override directories, as in
/// globus-gridftp-server.
fn sources(arguments: &ImportArguments) -> Result<Vec<Source>, ImportError> {
    let named = |paths: &[PathBuf]| paths.to_vec();
    let mut variables = named(&arguments.environment);
    let mut configurations = named(&arguments.config_dir);
    configurations.extend(named(&arguments.files));
    if configurations.is_empty() {
        let there = |path: &&str| Path::new(path).exists();
        let file = ["/etc/gridftp.conf", "/etc/grid-security/gridftp.conf"];
        let file = file.iter().find(|path| there(path));
        let file = file.ok_or(ImportError::Nothing)?;
        let found = ["/etc/gridftp.d"].into_iter().filter(there);
        configurations.extend(found.chain([*file]).map(PathBuf::from));
        if variables.is_empty() {
            variables.extend(
                VARIABLES
                    .iter()
                    .filter(|path| there(path))
                    .map(PathBuf::from),
            );
        }
    }
    let variables = variables.into_iter().map(Source::Variables);
    Ok(variables
        .chain(configurations.into_iter().map(Source::Configuration))
        .collect())
}

/// Reads all, and returns the names of the files.
fn read_all(sources: &[Source], given: &mut Given) -> Result<Vec<String>, ReadError> {
    let mut names = Vec::new();
    for source in sources {
        match source {
            Source::Variables(path) => {
                read::read_variables(path, given)?;
                names.push(path.clone());
            }
            Source::Configuration(path) if path.is_dir() => {
                names.extend(read::read_directory(path, given)?);
            }
            Source::Configuration(path) => {
                read::read_file(path, given)?;
                names.push(path.clone());
            }
        }
    }
    Ok(names
        .iter()
        .map(|path| path.display().to_string())
        .collect())
}

fn has_host_certificate() -> bool {
    let directory = Path::new("/etc/grid-security");
    ["hostcert.pem", "hostkey.pem"]
        .iter()
        .all(|file| directory.join(file).exists())
}

/// The first address of a host, as globus-gridftp-server takes it.
pub(super) fn resolve(host: &str) -> Option<IpAddr> {
    let mut addresses = (host, 0).to_socket_addrs().ok()?;
    addresses.next().map(|address| address.ip())
}
