//! Messages to the service manager: sd_notify(3).
//!
//! The serving process sends them, because it is the main process of the service, and by default systemd listens to no other.
//! The socket is connected before the process is confined. Sending never waits.

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tracing::warn;

use super::environment::Environment;

/// A line of status that has changed is sent after this time.
const STATUS_EVERY: Duration = Duration::from_secs(5);

/// The time for the end of a process, beside that for its transfers.
const ENDING: Duration = Duration::from_secs(15);

/// The connection to the service manager. Without one, messages are discarded.
#[derive(Debug)]
pub(crate) struct Notifier {
    socket: Option<UnixDatagram>,
    /// Whether the manager watches for signs of life, and how often they are due.
    beat: Option<Duration>,
    /// An error is told once.
    has_failed: AtomicBool,
}

impl Notifier {
    /// Connects to the service manager, if there is one.
    pub(crate) fn connect(environment: &Environment) -> Self {
        let socket = environment.notify_socket.as_deref();
        let socket = socket.and_then(|name| match connected(name) {
            Ok(socket) => Some(socket),
            Err(error) => {
                let socket = name.to_string_lossy();
                warn!(%socket, %error, "the service manager cannot be told anything");
                None
            }
        });
        Self {
            // sd_watchdog_enabled(3): half of the time, so that a late one does no harm.
            beat: environment.watchdog.map(|within| within / 2),
            socket,
            has_failed: AtomicBool::new(false),
        }
    }

    /// The server serves, or goes on after a reload.
    pub(crate) fn ready(&self, status: &str) {
        self.send(&format!("READY=1\nSTATUS={status}\n"));
    }

    /// A reload begins. [`Notifier::ready`] ends it.
    pub(crate) fn reloading(&self) {
        let now = clock_gettime(ClockId::Monotonic);
        let micros = now.tv_sec * 1_000_000 + now.tv_nsec / 1000;
        self.send(&format!("RELOADING=1\nMONOTONIC_USEC={micros}\n"));
    }

    /// The server ends, and gives its transfers this time.
    pub(crate) fn stopping(&self, grace: Duration) {
        let most = grace.saturating_add(ENDING).as_micros();
        let most = u64::try_from(most).unwrap_or(u64::MAX);
        self.send(&format!(
            "STOPPING=1\nEXTEND_TIMEOUT_USEC={most}\nSTATUS=stopping\n"
        ));
    }

    /// Another process is the main process of the service from now on. This one must not send anything after that.
    pub(crate) fn main_process(&self, process: u32) {
        self.send(&format!("MAINPID={process}\n"));
    }

    /// Gives signs of life and tells the status, as long as the future is polled: `status` must not block. Where the threads
    /// of the runtime are stuck, or a lock of the server is, there is no sign of life.
    pub(crate) async fn beat(self: Arc<Self>, status: impl Fn() -> String + Send) {
        if self.socket.is_none() {
            return;
        }
        let mut told = String::new();
        let every = self
            .beat
            .map_or(STATUS_EVERY, |beat| beat.min(STATUS_EVERY));
        loop {
            let now = status();
            let mut lines = String::new();
            if self.beat.is_some() {
                lines.push_str("WATCHDOG=1\n");
            }
            if now != told {
                lines.push_str(&format!("STATUS={now}\n"));
                told = now;
            }
            if !lines.is_empty() {
                self.send(&lines);
            }
            tokio::time::sleep(every).await;
        }
    }

    fn send(&self, lines: &str) {
        let Some(socket) = &self.socket else {
            return;
        };
        if let Err(error) = socket.send(lines.as_bytes())
            && !self.has_failed.swap(true, Ordering::Relaxed)
        {
            warn!(%error, "the service manager takes no messages");
        }
    }
}

fn connected(name: &OsStr) -> io::Result<UnixDatagram> {
    let socket = UnixDatagram::unbound()?;
    match name.as_bytes().strip_prefix(b"@") {
        Some(abstract_name) => {
            socket.connect_addr(&SocketAddr::from_abstract_name(abstract_name)?)?;
        }
        None => socket.connect(name)?,
    }
    socket.set_nonblocking(true)?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn notifier(name: &str, watchdog: Option<Duration>) -> Notifier {
        Notifier::connect(&Environment {
            notify_socket: Some(name.into()),
            watchdog,
            ..Environment::default()
        })
    }

    fn received(manager: &UnixDatagram) -> String {
        let mut buffer = [0; 1024];
        let bytes = manager.recv(&mut buffer).expect("a message");
        String::from_utf8(buffer[..bytes].to_vec()).expect("UTF-8")
    }

    #[test]
    fn messages_go_to_paths_and_to_abstract_names() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("notify");
        let manager = UnixDatagram::bind(&path).expect("bound");
        notifier(path.to_str().expect("UTF-8"), None).ready("serving");
        assert_eq!(received(&manager), "READY=1\nSTATUS=serving\n");
        let name = format!("gridhaul-test-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).expect("a name");
        let manager = UnixDatagram::bind_addr(&address).expect("bound");
        let notifier = notifier(&format!("@{name}"), None);
        notifier.reloading();
        let message = received(&manager);
        let micros = message.strip_prefix("RELOADING=1\nMONOTONIC_USEC=");
        let micros = micros.and_then(|rest| rest.trim_end().parse::<u64>().ok());
        assert!(micros.is_some_and(|micros| micros > 0), "{message}");
        notifier.stopping(Duration::from_secs(60));
        assert_eq!(
            received(&manager),
            "STOPPING=1\nEXTEND_TIMEOUT_USEC=75000000\nSTATUS=stopping\n"
        );
        notifier.main_process(7);
        assert_eq!(received(&manager), "MAINPID=7\n");
    }

    #[test]
    fn a_manager_that_reads_nothing_holds_nothing_up() {
        let name = format!("gridhaul-deaf-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).expect("a name");
        let _manager = UnixDatagram::bind_addr(&address).expect("bound");
        let notifier = notifier(&format!("@{name}"), None);
        for _ in 0..10_000 {
            notifier.ready("serving");
        }
        assert!(notifier.has_failed.load(Ordering::Relaxed));
    }

    #[tokio::test(start_paused = true)]
    async fn signs_of_life_come_twice_in_the_time_of_the_watchdog() {
        let name = format!("gridhaul-beats-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).expect("a name");
        let manager = UnixDatagram::bind_addr(&address).expect("bound");
        let watchdog = Some(Duration::from_secs(2));
        let notifier = Arc::new(notifier(&format!("@{name}"), watchdog));
        let beat = notifier.beat(|| "serving".to_owned());
        let time = Duration::from_millis(3500);
        assert!(tokio::time::timeout(time, beat).await.is_err());
        manager.set_nonblocking(true).expect("set");
        assert_eq!(received(&manager), "WATCHDOG=1\nSTATUS=serving\n");
        for _ in 0..3 {
            assert_eq!(received(&manager), "WATCHDOG=1\n");
        }
        assert!(manager.recv(&mut [0; 64]).is_err());
    }
}
