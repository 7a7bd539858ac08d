//! `gridhaul copy`.

use std::collections::HashSet;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gridhaul_protocol::command::TransferMode;
use gridhaul_protocol::path::PathArgument;
use gridhaul_protocol::ranges::RangeSet;
use gridhaul_protocol::stack::StackSpec;
use gridhaul_transfer::{Handling, NodeSession, UploadName};

use super::Ending;
use super::arguments::{CopyArguments, DataArguments};
use super::report::{Copied, Form, Report};
use super::servers::{OpenError, Servers};
use crate::control::ControlError;
use crate::local::{LocalConfig, LocalMachine};
use crate::location::{Location, LocationError, Server, Url};
use crate::session::{Session, TransferSettings};
use crate::transfer::{
    Direction, FileCopy, ThirdPartyCopy, TransferFailure, Transferred, third_party, two_party,
};

/// Why a file was not copied.
#[derive(Debug, thiserror::Error)]
enum CopyError {
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error("{0}")]
    Transfer(#[source] Box<TransferFailure>),
    #[error("{0}")]
    Control(#[from] ControlError),
    #[error("both are files of this machine: use cp")]
    Local,
    #[error("the source and the destination are the same file")]
    Same,
    #[error("another source of this command was copied there: name the destinations one by one")]
    Twice,
    #[error("{0}: a name that FTP cannot send")]
    Name(String),
    #[error("{0}: {1}")]
    File(String, std::io::Error),
    #[error("{0} is a directory: name the files")]
    Directory(String),
}

pub(super) async fn run(arguments: &CopyArguments) -> Ending {
    let form = match (arguments.json, arguments.quiet) {
        (true, _) => Form::Json,
        (_, true) => Form::Quiet,
        _ => Form::Lines,
    };
    let (sources, destination) = match locations(&arguments.locations) {
        Ok(locations) => locations,
        Err(error) => {
            eprintln!("gridhaul: {error}");
            return Ending::Usage;
        }
    };
    let machine = LocalMachine::new(LocalConfig::default());
    if let Some(stack) = &arguments.data.stack
        && let Err(error) = machine.check_stack(stack)
    {
        eprintln!("gridhaul: --stack {stack}: {error}");
        return Ending::Usage;
    }
    let mut report = Report::start(form, sources.len());
    let files = match machine.files(Path::new("/")) {
        Ok(files) => files,
        Err(error) => {
            report.failed(None, &error.to_string());
            return Ending::Failed;
        }
    };
    let mut copying = Copying {
        arguments,
        servers: Servers::new(&arguments.login),
        files,
        source: None,
        destination: None,
    };
    let mut targets = HashSet::new();
    for source in &sources {
        let target = copying
            .target(source, &destination, sources.len() > 1)
            .await;
        let done = match target {
            Ok(target) if !targets.insert(target.to_string()) => Err((target, CopyError::Twice)),
            Ok(target) => copying.file(source, &target, &mut report).await,
            Err(error) => Err((destination.clone(), error)),
        };
        if let Err((target, error)) = done {
            let names = (source.to_string(), target.to_string());
            report.failed(Some((&names.0, &names.1)), &error.to_string());
        }
    }
    copying.close().await;
    match report.done() {
        true => Ending::Complete,
        false => Ending::Failed,
    }
}

fn locations(texts: &[String]) -> Result<(Vec<Location>, Location), LocationError> {
    let mut all = texts
        .iter()
        .map(|text| Location::parse(text))
        .collect::<Result<Vec<_>, _>>()?;
    let destination = all.pop();
    // clap demands two at least.
    let destination = destination.unwrap_or_else(|| Location::Local(PathBuf::from(".")));
    Ok((all, destination))
}

/// A copy of several files, with the sessions that it has.
struct Copying<'a> {
    arguments: &'a CopyArguments,
    servers: Servers<'a>,
    /// All files of this machine.
    files: Arc<dyn NodeSession>,
    source: Option<Session>,
    destination: Option<Session>,
}

impl Copying<'_> {
    /// Where a source goes: into the destination if that is a directory, else to its name.
    async fn target(
        &mut self,
        source: &Location,
        destination: &Location,
        are_many: bool,
    ) -> Result<Location, CopyError> {
        let name = name_of(source);
        Ok(match destination {
            Location::Local(path) => {
                let text = path.as_os_str().as_bytes();
                match are_many || text.ends_with(b"/") || path.is_dir() {
                    true => Location::Local(path.join(std::ffi::OsString::from_vec(name))),
                    false => destination.clone(),
                }
            }
            Location::Remote(url) => {
                let is_directory = are_many || url.path.ends_with(b"/") || {
                    let path = argument(url)?;
                    let session = self.destination(&url.server).await?;
                    session.is_directory(&path).await? == Some(true)
                };
                match is_directory {
                    true => Location::Remote(within(url, &name)),
                    false => destination.clone(),
                }
            }
        })
    }

    /// Copies a file, and reports it.
    async fn file(
        &mut self,
        source: &Location,
        target: &Location,
        report: &mut Report,
    ) -> Result<(), (Location, CopyError)> {
        let names = (source.to_string(), target.to_string());
        let copied = async {
            let mut watch = report.watch(&names.0, &names.1);
            let done = match (source, target) {
                (Location::Local(_), Location::Local(_)) => Err(CopyError::Local),
                (Location::Remote(from), Location::Local(to)) => {
                    self.get(from, to, &mut watch).await
                }
                (Location::Local(from), Location::Remote(to)) => {
                    self.put(from, to, &mut watch).await
                }
                (Location::Remote(from), Location::Remote(to)) => {
                    self.between(from, to, &mut watch).await
                }
            }?;
            Ok::<_, CopyError>(done)
        };
        let done = copied.await.map_err(|error| (target.clone(), error))?;
        report.copied(&Copied {
            source: &names.0,
            destination: &names.1,
            bytes: done.bytes,
            took: done.took,
            channels: done.channels,
            checksum: done.checksum.as_deref(),
        });
        Ok(())
    }

    async fn get(
        &mut self,
        from: &Url,
        to: &Path,
        watch: &mut super::report::Watch<'_>,
    ) -> Result<Transferred, CopyError> {
        let (remote, local) = (argument(from)?, absolute(to)?);
        let arguments = self.arguments;
        let files = Arc::clone(&self.files);
        let session = self.source(&from.server).await?;
        let size = session.size(&remote).await?;
        let copy = FileCopy {
            direction: Direction::Get,
            local,
            remote,
            size,
            present: RangeSet::new(),
            settings: settings(&arguments.data, session.login().identity().is_some()),
            stack: stack(&arguments.data),
            handling: Handling {
                // No program sees a part of a file under its name.
                upload: UploadName::Temporary,
                ..Handling::default()
            },
            verify: arguments.checksum,
            stall: arguments.data.stall_timeout,
        };
        let done = two_party(session, &files, &copy, watch).await;
        done.map_err(|error| CopyError::Transfer(Box::new(error)))
    }

    async fn put(
        &mut self,
        from: &Path,
        to: &Url,
        watch: &mut super::report::Watch<'_>,
    ) -> Result<Transferred, CopyError> {
        let (local, remote) = (absolute(from)?, argument(to)?);
        let metadata = std::fs::metadata(&local)
            .map_err(|error| CopyError::File(from.display().to_string(), error))?;
        if metadata.is_dir() {
            return Err(CopyError::Directory(from.display().to_string()));
        }
        let arguments = self.arguments;
        let files = Arc::clone(&self.files);
        let session = self.destination(&to.server).await?;
        let copy = FileCopy {
            direction: Direction::Put,
            local,
            remote,
            size: metadata.is_file().then_some(metadata.len()),
            present: RangeSet::new(),
            settings: settings(&arguments.data, session.login().identity().is_some()),
            stack: stack(&arguments.data),
            handling: Handling::default(),
            verify: arguments.checksum,
            stall: arguments.data.stall_timeout,
        };
        let done = two_party(session, &files, &copy, watch).await;
        done.map_err(|error| CopyError::Transfer(Box::new(error)))
    }

    async fn between(
        &mut self,
        from: &Url,
        to: &Url,
        watch: &mut super::report::Watch<'_>,
    ) -> Result<Transferred, CopyError> {
        if from == to {
            return Err(CopyError::Same);
        }
        let (source_path, destination_path) = (argument(from)?, argument(to)?);
        let arguments = self.arguments;
        self.source(&from.server).await?;
        self.destination(&to.server).await?;
        let (Some(source), Some(destination)) = (&mut self.source, &mut self.destination) else {
            return Err(ControlError::Closed.into());
        };
        let size = source.size(&source_path).await?;
        let sessions = [&*source, &*destination];
        let with_certificates = sessions.iter().all(|one| one.login().identity().is_some());
        let copy = ThirdPartyCopy {
            source: source_path,
            destination: destination_path,
            size,
            present: RangeSet::new(),
            settings: settings(&arguments.data, with_certificates),
            verify: arguments.checksum,
            stall: arguments.data.stall_timeout,
        };
        let done = third_party(source, destination, &copy, watch).await;
        let done = done.map_err(|error| CopyError::Transfer(Box::new(error)))?;
        Ok(done)
    }

    async fn source(&mut self, server: &Server) -> Result<&mut Session, CopyError> {
        session(&mut self.source, &mut self.servers, server).await
    }

    async fn destination(&mut self, server: &Server) -> Result<&mut Session, CopyError> {
        session(&mut self.destination, &mut self.servers, server).await
    }

    async fn close(self) {
        for session in [self.source, self.destination].into_iter().flatten() {
            session.close().await;
        }
    }
}

/// The session with a server: the one that there is, or a new one in its place.
async fn session<'a>(
    place: &'a mut Option<Session>,
    servers: &mut Servers<'_>,
    server: &Server,
) -> Result<&'a mut Session, CopyError> {
    let kept = place.take();
    let kept = kept.filter(|session| session.server() == server && session.is_usable());
    let session = match kept {
        Some(session) => session,
        None => servers.open(server).await?,
    };
    Ok(place.insert(session))
}

fn settings(data: &DataArguments, with_certificates: bool) -> TransferSettings {
    TransferSettings {
        mode: match data.parallel {
            1 => TransferMode::Stream,
            _ => TransferMode::Extended,
        },
        parallelism: data.parallel,
        protection: data.protection(with_certificates),
        stack: data.stack.clone(),
    }
}

/// The stack of this machine.
fn stack(data: &DataArguments) -> StackSpec {
    let default = || StackSpec {
        drivers: vec![gridhaul_protocol::stack::DriverSpec {
            name: "auto".to_owned(),
            options: Vec::new(),
        }],
    };
    data.stack.clone().unwrap_or_else(default)
}

fn argument(url: &Url) -> Result<PathArgument, CopyError> {
    PathArgument::new(url.path.clone()).ok_or_else(|| CopyError::Name(url.to_string()))
}

fn absolute(path: &Path) -> Result<PathBuf, CopyError> {
    std::path::absolute(path).map_err(|error| CopyError::File(path.display().to_string(), error))
}

fn name_of(location: &Location) -> Vec<u8> {
    let path = match location {
        Location::Local(path) => path.as_os_str().as_bytes(),
        Location::Remote(url) => &url.path,
    };
    let mut names = path.split(|byte| *byte == b'/').rev();
    names
        .find(|name| !name.is_empty())
        .unwrap_or_default()
        .to_vec()
}

fn within(url: &Url, name: &[u8]) -> Url {
    let mut path = url.path.clone();
    if !path.ends_with(b"/") {
        path.push(b'/');
    }
    path.extend_from_slice(name);
    Url {
        server: url.server.clone(),
        path,
    }
}
