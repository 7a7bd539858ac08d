//! What every part of a session may use: the server, the settings and the addresses.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use gridhaul_protocol::reply::Reply;
use gridhaul_shares::Source;
use rustls::ServerConfig;
use tokio::time::Instant;

use super::control::Control;
use super::end::End;
use super::failure::Failure;
use crate::config::Config;
use crate::live::SessionEntry;
use crate::login::Logins;
use crate::shared::Settings;
use crate::shared::Shared;
use crate::shutdown::PhaseWatch;
use crate::telemetry::Event;

/// Server, settings and addresses of one session.
#[derive(Debug)]
pub(super) struct Context {
    pub(super) shared: Arc<Shared>,
    /// The server's settings when the session began, or at the last `REIN`.
    pub(super) settings: Settings,
    pub(super) phase: PhaseWatch,
    /// The session in the table for administrators.
    pub(super) live: SessionEntry,
    /// The number of the session in the log.
    pub(super) id: u64,
    /// The client's address, as IPv4 if it is an IPv4-mapped one.
    pub(super) peer: IpAddr,
    /// The client's port on the control connection.
    pub(super) port: u16,
    /// The server's address on the control connection, likewise.
    pub(super) local: IpAddr,
    /// Why the present command failed, if its reply has less detail.
    pub(super) failure: Option<Failure>,
    /// The login timeout runs from here: when the client connected, or ended a login by `REIN`.
    pub(super) connected: Instant,
}

impl Context {
    pub(super) fn new(
        shared: Arc<Shared>,
        phase: PhaseWatch,
        id: u64,
        peer: SocketAddr,
        local: SocketAddr,
    ) -> Self {
        Self {
            settings: shared.settings(),
            live: shared.live.session(id, peer),
            shared,
            phase,
            id,
            peer: peer.ip().to_canonical(),
            port: peer.port(),
            local: local.ip().to_canonical(),
            failure: None,
            connected: Instant::now(),
        }
    }

    /// Why the session ends after its phase was reached.
    pub(super) fn end_of_phase(&self) -> End {
        match self.phase.is_refused() {
            true => End::Refused,
            false => End::Shutdown,
        }
    }

    pub(super) fn config(&self) -> &Config {
        &self.settings.config
    }

    pub(super) fn login_deadline(&self) -> Instant {
        self.connected + self.config().limits.login_timeout
    }

    /// The source that shares are counted for before login.
    pub(super) fn source(&self) -> Source {
        Source::at(self.peer)
    }

    pub(super) fn publish(&self, event: &Event<'_>) {
        self.live.observe(event);
        self.shared.journal.publish(event);
    }

    /// Appends a reply to the output of the control channel.
    pub(super) fn send(&self, control: &mut Control, reply: &Reply) {
        self.publish(&Event::Reply {
            session: self.id,
            reply,
        });
        control.reply(reply);
    }

    /// Puts a question to the part that decides about logins, which may be another process. It blocks, so it runs on a
    /// thread for logins. `None` if that thread panicked.
    pub(super) async fn ask_logins<T: Send + 'static>(
        &self,
        question: impl FnOnce(&dyn Logins) -> T + Send + 'static,
    ) -> Option<T> {
        let logins = Arc::clone(&self.settings.logins);
        let threads = &self.shared.threads;
        threads
            .log_in(&self.source(), move || question(&*logins))
            .await
    }

    /// The TLS configuration with the host's certificate, if there is one.
    pub(super) async fn host_tls(&self) -> Option<Arc<ServerConfig>> {
        self.ask_logins(|logins| logins.host_tls()).await.flatten()
    }

    pub(super) fn greeting(&self) -> Reply {
        match &self.config().banner {
            Some(banner) => Reply::new(220, banner),
            None => {
                let (host, version) = (&self.shared.host, crate::version::VERSION);
                Reply::new(220, format!("{host} GridFTP Server {version} ready."))
            }
        }
    }
}
