//! A session in the table.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use gridhaul_security::voms::Fqan;
use tokio::sync::SetOnce;

use crate::status::{Activity, SessionStatus, utc};
use crate::telemetry::Event;

/// The characters of a name, an identity or an attribute that are kept. Clients choose them.
const TEXT: usize = 512;

/// The attributes that are kept.
const ATTRIBUTES: usize = 32;

/// What is known of a session.
#[derive(Debug)]
pub(crate) struct SessionPart {
    pub(super) id: u64,
    pub(super) peer: SocketAddr,
    started: SystemTime,
    begun: Instant,
    told: Mutex<Told>,
    /// An [`Activity`] as a number.
    activity: AtomicU8,
    /// Milliseconds from the beginning to the last change of the activity.
    changed: AtomicU64,
    /// Set when an administrator ends the session.
    ended: SetOnce<()>,
}

/// From the events of the session.
#[derive(Debug, Default, Clone)]
pub(super) struct Told {
    pub(super) user: String,
    pub(super) identity: Option<String>,
    attributes: Vec<String>,
    protection: Option<String>,
    client: Option<String>,
    read_only: bool,
}

impl SessionPart {
    pub(super) fn new(id: u64, peer: SocketAddr) -> Self {
        Self {
            id,
            peer: SocketAddr::new(peer.ip().to_canonical(), peer.port()),
            started: SystemTime::now(),
            begun: Instant::now(),
            told: Mutex::default(),
            activity: AtomicU8::new(IDLE),
            changed: AtomicU64::new(0),
            ended: SetOnce::new(),
        }
    }

    /// Notes what an event of the session tells.
    pub(crate) fn observe(&self, event: &Event<'_>) {
        match *event {
            Event::Authenticated {
                mechanism,
                protection,
                identity,
                ..
            } => {
                self.note_protection(mechanism, protection);
                self.told().identity = identity.map(kept);
            }
            Event::LoggedIn {
                user,
                client,
                attributes,
                read_only,
                ..
            } => {
                let mut told = self.told();
                told.user = kept(user);
                told.identity = client.identity.map(kept);
                told.attributes = attributes.iter().take(ATTRIBUTES).map(attribute).collect();
                told.read_only = read_only;
            }
            Event::ClientInfo { info, .. } => self.told().client = Some(kept(info)),
            _ => {}
        }
    }

    /// Notes what protects the control channel.
    pub(crate) fn note_protection(&self, mechanism: &str, description: &str) {
        self.told().protection = Some(kept(&format!("{mechanism} {description}")));
    }

    /// `REIN`: the session has no user any more.
    pub(crate) fn log_out(&self) {
        let mut told = self.told();
        let protection = told.protection.take();
        *told = Told {
            protection,
            ..Told::default()
        };
    }

    /// Notes what the session does.
    pub(crate) fn note(&self, activity: Activity) {
        let number = match activity {
            Activity::Idle => IDLE,
            Activity::Command => COMMAND,
            Activity::Transfer => TRANSFER,
        };
        self.activity.store(number, Ordering::Relaxed);
        let now = u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.changed.store(now, Ordering::Relaxed);
    }

    /// Whether an administrator has ended the session.
    pub(crate) fn is_ended(&self) -> bool {
        self.ended.initialized()
    }

    /// Waits until an administrator ends the session.
    pub(crate) fn ended(self: &Arc<Self>) -> impl Future<Output = ()> + Send + use<> {
        let part = Arc::clone(self);
        async move {
            part.ended.wait().await;
        }
    }
}

const IDLE: u8 = 0;
const COMMAND: u8 = 1;
const TRANSFER: u8 = 2;

impl SessionPart {
    /// Asks the session to end. Does nothing if that was asked before.
    pub(super) fn end(&self) {
        let _ = self.ended.set(());
    }

    /// What the session has told so far.
    pub(super) fn told(&self) -> std::sync::MutexGuard<'_, Told> {
        // Each change is complete, so the values after a panic are usable.
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn status(&self) -> SessionStatus {
        let told = self.told().clone();
        let activity = match self.activity.load(Ordering::Relaxed) {
            COMMAND => Activity::Command,
            TRANSFER => Activity::Transfer,
            _ => Activity::Idle,
        };
        let changed = Duration::from_millis(self.changed.load(Ordering::Relaxed));
        let idle = self.begun.elapsed().saturating_sub(changed).as_secs();
        SessionStatus {
            id: self.id,
            peer: self.peer.to_string(),
            user: told.user,
            identity: told.identity,
            attributes: told.attributes,
            protection: told.protection,
            client: told.client,
            started: utc(self.started),
            idle_seconds: if activity == Activity::Idle { idle } else { 0 },
            activity,
            read_only: told.read_only,
        }
    }
}

fn kept(text: &str) -> String {
    text.chars().take(TEXT).collect()
}

fn attribute(fqan: &Fqan) -> String {
    kept(fqan.as_str())
}
