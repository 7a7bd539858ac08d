//! Reads the configuration of a running server again, for SIGHUP and for administrators.

use std::os::fd::OwnedFd;

use gridhaul_security::files::OpenFiles as _;
use tracing::{error, info, warn};

use crate::admin::{Done, ReloadReport};
use crate::config::{LogLevel, Problem, ServeArguments};
use crate::login::ConfigurationFile;
use crate::sandbox::{self, Sandbox};
use crate::server::Server;
use crate::telemetry::Logging;
use crate::validate::Validated;

/// What a reload needs beside the server.
pub(crate) struct Sources<'a> {
    pub(crate) arguments: &'a ServeArguments,
    pub(crate) logging: &'a Logging,
    pub(crate) confined: Confined,
}

/// The confinement of the process. A reload cannot widen it.
pub(crate) struct Confined {
    pub(crate) sandbox: Sandbox,
    pub(crate) process: sandbox::Process,
    pub(crate) file: ConfigurationFile,
}

/// Changes the level of the log of this process, until the next reload.
pub(crate) fn set_level(server: &Server, logging: &Logging, level: &str) -> Done {
    if let Err(error) = level.parse::<LogLevel>() {
        return Done::Failed(format!("log-level: {error}"));
    }
    match logging.set_level(level) {
        Ok(()) => {
            server.note_log_level(level);
            Done::Success
        }
        Err(error) => Done::Failed(error.to_string()),
    }
}

/// Reads the configuration again.
pub(crate) fn reload(server: &Server, sources: &Sources<'_>) -> ReloadReport {
    let report = reload_all(server, sources);
    server.count_reload(report.errors.is_empty());
    report
}

fn reload_all(server: &Server, sources: &Sources<'_>) -> ReloadReport {
    let Sources {
        arguments,
        logging,
        confined,
    } = sources;
    let mut report = ReloadReport::default();
    let running = server.config();
    let unread = unread(arguments);
    let validated = Validated::for_reload(arguments, &confined.file).checked();
    let (config, warnings) = match validated {
        Ok(checked) => checked,
        Err(errors) => {
            report.errors = reopen_logs(confined);
            report.errors.extend(unread);
            for error in errors.problems() {
                error!(%error, "the configuration is wrong; everything stays as it was");
                report.errors.push(error.to_string());
            }
            return report;
        }
    };
    let (config, kept) = config.reloaded(&running);
    report.errors = reopen_logs(confined);
    report.errors.extend(unread);
    tell(&warnings);
    if let Err(error) = logging.set_level(&config.log.level) {
        error!(%error, "the log was not reloaded");
        report.errors.push(error.to_string());
    }
    confined.sandbox.warn_of_new(&config, &confined.process);
    let changed = config.keys.changed_since(&running.keys);
    match server.reload(config) {
        Ok(sessions_ended) => {
            info!(applied = changed.join(" "), "reloaded");
            report.applied = changed;
            report.files = server.files_in_force();
            report.sessions_ended = sessions_ended;
            for reason in server.unusable_files() {
                error!(%reason, "a restart would fail");
                report.errors.push(reason);
            }
        }
        Err(error) => {
            error!(%error, "not everything was reloaded");
            report.errors.push(error.to_string());
        }
    }
    confined.sandbox.warn_of_new_users(server.grants());
    if let Some(front) = server.front() {
        let file = arguments.config.as_deref();
        let file = file.and_then(|path| confined.file.open(path).ok());
        front.reload(file.map(OwnedFd::from));
    }
    for name in &kept {
        warn!(
            setting = name.as_str(),
            "a change of this setting needs a restart"
        );
    }
    report.needs_restart = kept;
    report
}

/// Logs and returns which changed files a reload does not read. Only the start has the rights to read and to translate them.
fn unread(arguments: &ServeArguments) -> Vec<String> {
    let files = arguments.translated.iter();
    let changed = files.filter(|file| file.has_changed());
    let told = changed.map(|file| {
        let path = file.path().display();
        error!(
            %path,
            "this file of globus-gridftp-server has changed, and is read at the start only: restart the server"
        );
        format!("{path} has changed, and is read at the start only: restart the server")
    });
    told.collect()
}

/// Logs settings without effect.
pub(crate) fn tell(warnings: &[Problem]) {
    for problem in warnings {
        warn!(%problem, "a setting may not do what it is meant to");
    }
}

/// Opens the logs again, after a rotation: also when the new configuration is wrong, because rotated logs must not stay in
/// use. Returns the errors.
fn reopen_logs(confined: &Confined) -> Vec<String> {
    match confined.file.reopen_logs() {
        Ok(()) => Vec::new(),
        Err(error) => {
            error!(%error, "the logs were not reopened");
            vec![format!("the logs were not reopened: {error}")]
        }
    }
}
