//! The variables and sockets that the program was started with.
//!
//! Sockets are passed as systemd does it: sd_listen_fds(3). A new version gets those of the running one in the same way, and
//! the variable [`UPGRADE`] with the version of what the two say to each other.

use std::env;
use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::process;
use std::time::Duration;

use gridhaul_accounts::process::{remove_variables, take_passed};

/// Where messages to the service manager go.
pub(super) const NOTIFY_SOCKET: &str = "NOTIFY_SOCKET";
/// The time in microseconds within which the service manager wants a sign of life, and the process that it wants it from.
pub(super) const WATCHDOG_USEC: &str = "WATCHDOG_USEC";
pub(super) const WATCHDOG_PID: &str = "WATCHDOG_PID";
/// The number of sockets, their names, and the process that they are for.
pub(super) const LISTEN_FDS: &str = "LISTEN_FDS";
pub(super) const LISTEN_FDNAMES: &str = "LISTEN_FDNAMES";
pub(super) const LISTEN_PID: &str = "LISTEN_PID";
/// Set if a running version starts the program: the [`PROTOCOL`] of that version.
pub(super) const UPGRADE: &str = "GRIDHAUL_UPGRADE";

/// The version of the messages between the running version and the new one, and of the names of sockets.
pub(super) const PROTOCOL: &str = "1";

/// The name of the socket to the running version.
pub(super) const TO_PREDECESSOR: &str = "upgrade";

/// The name of sockets for control connections.
pub(crate) const CONTROL: &str = "gridftp";

/// The name of the socket that inetd passes. xinetd cannot separate the families, so it may accept both.
pub(crate) const INETD: &str = "inetd";

/// Before the names of sockets that the version before opened, as opposed to the service manager.
pub(crate) const BOUND: &str = "bound-";

/// More sockets are a mistake.
const MOST_SOCKETS: u16 = 250;

/// What starts the program says something that it does not mean.
#[derive(Debug, thiserror::Error)]
pub enum EnvironmentError {
    /// The number of sockets is none.
    #[error("{LISTEN_FDS}={0} in the environment is no number of sockets up to {MOST_SOCKETS}")]
    Count(String),
    /// There are fewer sockets.
    #[error("{LISTEN_FDS}={0} in the environment, but there are fewer open descriptors: {1}")]
    Closed(u16, std::io::Error),
    /// There are more sockets than names.
    #[error("{LISTEN_FDNAMES} in the environment does not name each of {0} sockets")]
    Names(u16),
    /// The time of the watchdog is none.
    #[error("{WATCHDOG_USEC}={0} in the environment is no time in microseconds")]
    Watchdog(String),
    /// The running version is too old or too new for an upgrade.
    #[error(
        "the running version hands over in another way ({UPGRADE}={0}, not {PROTOCOL}): restart the server instead"
    )]
    OtherProtocol(String),
    /// The environment cannot be changed.
    #[error("cannot clean the environment: {0}")]
    System(#[from] std::io::Error),
}

/// A socket that the program was started with.
#[derive(Debug)]
pub(crate) struct Passed {
    /// Empty if it has none.
    pub(crate) name: String,
    pub(crate) socket: OwnedFd,
}

/// What the program was started with, apart from its arguments.
#[derive(Debug, Default)]
pub(crate) struct Environment {
    /// Begins with `@` for an abstract address.
    pub(super) notify_socket: Option<OsString>,
    /// The time within which the service manager wants a sign of life.
    pub(crate) watchdog: Option<Duration>,
    pub(crate) passed: Vec<Passed>,
    /// The running version that starts this one.
    pub(super) predecessor: Option<OwnedFd>,
}

impl Environment {
    /// Takes the variables out of the environment, so that programs and modules of others do not have them, and the sockets.
    /// Must be called once, while the process has one thread, and before it opens anything.
    ///
    /// # Errors
    ///
    /// When they contradict themselves, or are those of another version.
    pub(crate) fn take() -> Result<Self, EnvironmentError> {
        let notify_socket = env::var_os(NOTIFY_SOCKET).filter(|socket| !socket.is_empty());
        let watchdog = is_for_us(WATCHDOG_PID, true)
            .then(|| text(WATCHDOG_USEC))
            .flatten();
        let watchdog = watchdog.map(|text| micros(&text)).transpose()?;
        let (mut passed, mut predecessor) = (Vec::new(), None);
        let upgrade = text(UPGRADE);
        if is_for_us(LISTEN_PID, false) {
            if let Some(other) = upgrade.filter(|version| version != PROTOCOL) {
                return Err(EnvironmentError::OtherProtocol(other));
            }
            let is_upgrade = text(UPGRADE).is_some();
            for socket in sockets()? {
                match is_upgrade && socket.name == TO_PREDECESSOR {
                    true => predecessor = Some(socket.socket),
                    false => passed.push(socket),
                }
            }
        }
        remove_variables(&[
            NOTIFY_SOCKET,
            WATCHDOG_USEC,
            WATCHDOG_PID,
            LISTEN_FDS,
            LISTEN_FDNAMES,
            LISTEN_PID,
            UPGRADE,
        ])?;
        Ok(Self {
            notify_socket,
            watchdog,
            passed,
            predecessor,
        })
    }
}

fn text(name: &str) -> Option<String> {
    env::var_os(name).map(|value| value.to_string_lossy().into_owned())
}

/// Whether a variable names this process. They are inherited, and may be meant for the process that started this one.
fn is_for_us(name: &str, default: bool) -> bool {
    text(name).map_or(default, |process| process == process::id().to_string())
}

fn micros(text: &str) -> Result<Duration, EnvironmentError> {
    let micros = text.parse().ok().filter(|micros| *micros > 0);
    micros
        .map(Duration::from_micros)
        .ok_or_else(|| EnvironmentError::Watchdog(text.to_owned()))
}

fn sockets() -> Result<Vec<Passed>, EnvironmentError> {
    let Some(count) = text(LISTEN_FDS) else {
        return Ok(Vec::new());
    };
    let number = count.parse().ok().filter(|count| *count <= MOST_SOCKETS);
    let count: u16 = number.ok_or(EnvironmentError::Count(count))?;
    let names = names(count, text(LISTEN_FDNAMES).as_deref())?;
    // SAFETY: the callers call this once, before the process opens anything, so nothing else owns the descriptors.
    let sockets = unsafe { take_passed(count) };
    let sockets = sockets.map_err(|error| EnvironmentError::Closed(count, error))?;
    let named = names.into_iter().zip(sockets);
    Ok(named
        .map(|(name, socket)| Passed { name, socket })
        .collect())
}

/// The name of each socket.
fn names(count: u16, names: Option<&str>) -> Result<Vec<String>, EnvironmentError> {
    let names: Vec<String> = match names {
        Some(names) if count > 0 => names.split(':').map(str::to_owned).collect(),
        Some(_) => Vec::new(),
        None => vec![String::new(); usize::from(count)],
    };
    match names.len() == usize::from(count) {
        true => Ok(names),
        false => Err(EnvironmentError::Names(count)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_socket_has_a_name() {
        assert_eq!(names(2, Some("gridftp:")).expect("named"), ["gridftp", ""]);
        assert_eq!(names(2, None).expect("no names at all"), ["", ""]);
        assert!(names(0, Some("")).expect("none").is_empty());
        assert!(matches!(
            names(2, Some("gridftp")),
            Err(EnvironmentError::Names(2))
        ));
        assert!(names(1, Some("a:b")).is_err());
    }

    #[test]
    fn the_time_of_the_watchdog_is_positive() {
        let half = micros("500000").expect("a time");
        assert_eq!(half, Duration::from_millis(500));
        for wrong in ["", "0", "-1", "1s", "99999999999999999999"] {
            assert!(micros(wrong).is_err(), "{wrong}");
        }
    }
}
