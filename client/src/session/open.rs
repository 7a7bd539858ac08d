//! Opening a session.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use gridhaul_protocol::command::{Command, Representation};
use gridhaul_protocol::feature;

use super::settings::Told;
use super::{Session, StoredMarkers};
use crate::control::{AddressFamily, Control, ControlError, DialogueObserver};
use crate::location::Server;
use crate::login::{self, Login};

/// How sessions are opened.
#[derive(Debug, Clone, Copy)]
pub struct SessionConfig {
    /// The addresses that are tried.
    pub family: AddressFamily,
    /// The longest wait for a connection and for a reply.
    pub patience: Duration,
    /// Sees the commands that the server is sent, and its replies.
    pub observer: Option<DialogueObserver>,
}

/// How a session began.
#[derive(Debug, Clone)]
pub struct Welcome {
    /// The text of the greeting.
    pub greeting: String,
    /// The time until the greeting, with the look-up of the name.
    pub connected: Duration,
    /// The time from the greeting to the end of the login.
    pub logged_in: Duration,
}

/// Why there is no session.
#[derive(Debug, thiserror::Error)]
#[error("{server}: {error}")]
pub struct SessionError {
    /// The server.
    pub server: Server,
    /// What failed.
    #[source]
    pub error: ControlError,
}

impl Default for SessionConfig {
    fn default() -> Self {
        Self {
            family: AddressFamily::default(),
            patience: Duration::from_secs(60),
            observer: None,
        }
    }
}

/// The next [`Session::id`].
static IDS: AtomicU64 = AtomicU64::new(0);

impl Session {
    /// Connects and logs in.
    ///
    /// # Errors
    ///
    /// When the server cannot be reached, or refuses.
    pub async fn open(
        server: &Server,
        login: Login,
        config: SessionConfig,
    ) -> Result<Self, SessionError> {
        let opened = Self::try_open(server, login, config).await;
        opened.map_err(|error| SessionError {
            server: server.clone(),
            error,
        })
    }

    async fn try_open(
        server: &Server,
        login: Login,
        config: SessionConfig,
    ) -> Result<Self, ControlError> {
        let started = Instant::now();
        let (family, patience) = (config.family, config.patience);
        let mut control = match &login {
            Login::Ssh(ssh) => Control::open_over_ssh(server, ssh, family, patience).await?,
            _ => Control::open(server, family, patience).await?,
        };
        let connected = started.elapsed();
        let greeting = control.greeting();
        if let Some(observer) = config.observer {
            control.observe(server, observer);
        }
        let mut control = login::log_in(control, server, &login).await?;
        let welcome = Welcome {
            greeting,
            connected,
            logged_in: started.elapsed().saturating_sub(connected),
        };
        let features = feature::parse(&control.ask(&Command::Feat).await?);
        control.must(&Command::Type(Representation::Image)).await?;
        let settings = Told::after_login(login.identity().is_some());
        Ok(Self {
            control,
            server: server.clone(),
            login,
            welcome,
            features,
            settings,
            own_stack: None,
            data_credential: None,
            kept: None,
            markers: StoredMarkers::Unknown,
            id: IDS.fetch_add(1, Ordering::Relaxed),
        })
    }
}
