//! This server in the place of globus-gridftp-server: its name, its command line, its files and its environment.
//!
//! What the command line asks for and this server does not have is refused, by name and with the reason; a limit of access that
//! cannot be carried over keeps the server from starting, also if it is in a file.

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use super::arguments::{self, Argument, ArgumentError};
use super::detach::detached;
use super::given::{Given, Place, Placed, Value};
use super::import::resolve;
use super::read::{self, ReadError};
use super::table;
use super::translate::{Facts, TranslateError, translate};
use super::translation::{Entry, Translation, Weight};
use crate::called_as::GLOBUS;
use crate::config::{ServeArguments, Settings, SourceFile, has_host_credential};
use crate::server::Mode;
use crate::{inetd, privileges, serve as serving, ssh, version};

/// Why the server does not start.
#[derive(Debug, thiserror::Error)]
enum StandInError {
    #[error(transparent)]
    Argument(#[from] ArgumentError),
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    Translate(#[from] TranslateError),
    #[error("an argument is not UTF-8 text: {0:?}")]
    NotText(OsString),
    #[error("{}", .0.join("\n"))]
    Refused(Vec<String>),
    #[error("{0}")]
    Settings(toml::de::Error),
    #[error("the current directory: {0}")]
    Directory(io::Error),
}

/// Serves with these arguments of globus-gridftp-server. Must be called while the process has one thread.
pub fn serve(arguments: &[OsString]) -> ExitCode {
    /// xinetd starts a program again at once while a connection waits, without a limit.
    const PAUSE: Duration = Duration::from_secs(3);

    let is_restarted = inetd::listens();
    let status = start(arguments);
    if is_restarted && status != ExitCode::SUCCESS {
        thread::sleep(PAUSE);
    }
    status
}

fn start(arguments: &[OsString]) -> ExitCode {
    /// As globus-gridftp-server ends when its configuration is wrong.
    const WRONG: u8 = 2;

    if let Err(error) = inetd::keep_messages_from_client() {
        return ended(Err(error.to_string()));
    }
    match prepare(arguments) {
        Ok(Task::Tell(text)) => {
            // There is no other place to report that standard output is closed.
            let _ = io::stdout().write_all(text.as_bytes());
            ExitCode::SUCCESS
        }
        Ok(Task::Ssh(arguments)) => {
            ended(ssh::serve(&arguments).map_err(|error| error.to_string()))
        }
        Ok(Task::Inetd(arguments)) => {
            ended(inetd::serve(&arguments).map_err(|error| error.to_string()))
        }
        Ok(Task::Serve(mode, arguments)) => foreground(mode, &arguments),
        Ok(Task::Detach(mode, arguments, pidfile)) => {
            let keeps_errors = is_service();
            let detached = detached(pidfile.as_deref(), keeps_errors, || {
                foreground(mode, &arguments);
            });
            detached.unwrap_or_else(|error| ended(Err(error.to_string())))
        }
        Err(error) => {
            ended(Err(error.to_string()));
            ExitCode::from(WRONG)
        }
    }
}

/// What the command line asks for.
enum Task {
    Tell(String),
    Serve(Mode, Box<ServeArguments>),
    Ssh(Box<ServeArguments>),
    Inetd(Box<ServeArguments>),
    Detach(Mode, Box<ServeArguments>, Option<PathBuf>),
}

fn prepare(arguments: &[OsString]) -> Result<Task, StandInError> {
    let words = arguments.iter().map(|word| {
        let text = word.clone().into_string();
        text.map_err(StandInError::NotText)
    });
    let parsed = arguments::parse(&words.collect::<Result<Vec<_>, _>>()?)?;
    let mut given = Given::default();
    read_environment(&mut given);
    let base = std::env::current_dir().map_err(StandInError::Directory)?;
    let mut files = Vec::new();
    read_files(&parsed, &mut given, &mut files)?;
    let files = files
        .into_iter()
        .map(|file| SourceFile::now(base.join(file)));
    for (option, placed) in parsed {
        given.set(option, placed);
    }
    if ["help", "longhelp"].iter().any(|name| given.is_on(name)) {
        return Ok(Task::Tell(help()));
    }
    if ["version", "versions"].iter().any(|name| given.is_on(name)) {
        return Ok(Task::Tell(format!(
            "gridhaul-server {}\n",
            version::VERSION
        )));
    }
    let translation = translate(
        &given,
        &Facts {
            is_root: privileges::is_root(),
            has_credential: has_host_credential(),
            port: 0,
            base: base.clone(),
            resolve: &resolve,
        },
    )?;
    refuse(&translation, &given)?;
    task(&translation, &given, &base, files.collect())
}

fn task(
    translation: &Translation,
    given: &Given,
    base: &Path,
    translated: Vec<SourceFile>,
) -> Result<Task, StandInError> {
    let text = translation.settings();
    let settings: Settings = toml::from_str(&text).map_err(StandInError::Settings)?;
    let runs_once = given.is_off("fork") || given.is_on("debug");
    let is_worker = given.is_on("ssh") || given.is_on("inetd");
    let detaches = given.is_on("detach") && !runs_once && !is_worker;
    let has_no_log = detaches || given.is_on("inetd");
    let settings = Settings {
        // The default of globus-gridftp-server. Its callers may read standard error.
        log_level: settings.log_level.or_else(|| "error".parse().ok()),
        // As with globus-gridftp-server.
        log_file: settings
            .log_file
            .or_else(|| (has_no_log && !is_service()).then(|| "/dev/null".into())),
        // inetd has the port.
        listen: settings.listen.filter(|_| !given.is_on("inetd")),
        // inetd may start one for each connection.
        admin_socket: (given.is_on("inetd") && !inetd::listens()).then(|| "none".into()),
        ..settings
    };
    let arguments = Box::new(ServeArguments {
        settings,
        translated,
        ..ServeArguments::default()
    });
    if given.is_on("ssh") {
        return Ok(Task::Ssh(arguments));
    }
    if given.is_on("inetd") {
        return Ok(Task::Inetd(arguments));
    }
    let mode = match given.is_on("single") {
        true => Mode::Single,
        false => Mode::Daemon,
    };
    if !detaches {
        return Ok(Task::Serve(mode, arguments));
    }
    let pidfile = given.text("pidfile");
    let pidfile = pidfile.map(|path| base.join(path.replace("${localstatedir}", "/var")));
    Ok(Task::Detach(mode, arguments, pidfile))
}

/// The variables of this process that the table has.
fn read_environment(given: &mut Given) {
    for variable in table::VARIABLES {
        let name = variable.name;
        if let Ok(value) = std::env::var(name) {
            let written = format!("{name}={value}");
            given.set_variable(
                name,
                Placed {
                    value,
                    place: Place::Environment,
                    written,
                },
            );
        }
    }
}

/// The files of `-C` and `-c`, else those in the usual places. As with globus-gridftp-server, a file that does not exist counts
/// as empty (`-c none`). `files` gets all files and directories.
fn read_files(
    parsed: &[Argument],
    given: &mut Given,
    files: &mut Vec<PathBuf>,
) -> Result<(), StandInError> {
    let named = |name: &str| {
        let mut found = parsed.iter().rev();
        let (_, placed) = found.find(|(option, _)| option.name() == name)?;
        match &placed.value {
            Value::Text(path) => Some(PathBuf::from(path)),
            _ => None,
        }
    };
    let base = named("config_base_path").unwrap_or_default();
    if let Some(directory) = named("config_dir") {
        let directory = base.join(directory);
        let read = read::read_directory(&directory, given)?;
        files.extend([vec![directory], read].concat());
    }
    let file = match named("c") {
        Some(file) => Some(base.join(file)),
        None => {
            let location = given.variable("GLOBUS_LOCATION").map(PathBuf::from);
            let location = location.map(|location| location.join("etc/gridftp.conf"));
            let system = ["/etc/gridftp.conf", "/etc/grid-security/gridftp.conf"];
            let mut places = location.into_iter().chain(system.map(PathBuf::from));
            places.find(|file| file.exists())
        }
    };
    files.extend(file.clone());
    if let Some(file) = file.filter(|file| file.exists()) {
        read::read_file(&file, given)?;
    }
    Ok(())
}

/// What this server cannot do instead of globus-gridftp-server.
fn refuse(translation: &Translation, given: &Given) -> Result<(), StandInError> {
    let mut refused: Vec<String> = Vec::new();
    for entry in translation.all() {
        let is_argument = entry
            .origins
            .iter()
            .any(|(place, _)| *place == Place::Argument);
        let told = match entry.weight {
            Weight::Carried => continue,
            Weight::Missing if !is_argument => {
                eprintln!("{GLOBUS} (gridhaul): {}", reason(entry));
                continue;
            }
            Weight::Missing | Weight::Guard => reason(entry),
        };
        refused.push(told);
    }
    if given.get("restrict_paths").is_some() && refused.is_empty() {
        eprintln!(
            "{GLOBUS} (gridhaul): restrict_paths: paths of clients begin in the directory that it names"
        );
    }
    match refused.is_empty() {
        true => Ok(()),
        false => Err(StandInError::Refused(refused)),
    }
}

fn reason(entry: &Entry) -> String {
    let origins: Vec<String> = entry
        .origins
        .iter()
        .map(|(place, written)| format!("{place}: {written}"))
        .collect();
    format!("{}: {}", origins.join(", "), entry.remark)
}

fn help() -> String {
    format!(
        "{GLOBUS} [OPTION]... is served by gridhaul-server {}. Its options, and the settings of gridhaul-server \
         that take their place:\n\n{}",
        version::VERSION,
        table::markdown()
    )
}

/// Whether standard error leads to the journal of systemd.
fn is_service() -> bool {
    std::env::var_os("JOURNAL_STREAM").is_some()
}

fn foreground(mode: Mode, arguments: &ServeArguments) -> ExitCode {
    ended(serving::serve_as(mode, arguments).map_err(|error| error.to_string()))
}

fn ended(done: Result<(), String>) -> ExitCode {
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // A detached server may have no reader any more.
            let _ = writeln!(io::stderr(), "{GLOBUS} (gridhaul): {error}");
            ExitCode::FAILURE
        }
    }
}
