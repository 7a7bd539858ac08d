//! A session: one control channel from greeting to goodbye.
//!
//! A session never touches a data socket or a file's bytes: it speaks to a data node
//! ([`gridhaul_transfer::NodeSession`]) in plain values. One task serves a session; it carries out one
//! command after another, and reads the control channel all the while, so that `ABOR`, `STAT` and the
//! end of the connection are noticed in the middle of a transfer.

mod authenticate;
mod channel_security;
mod channels;
mod checksum;
mod control;
mod dispatch;
mod end;
mod features;
mod files;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod handover;
mod listing;
mod login;
mod names;
mod order;
mod rdma;
mod replies;
mod site;
mod status;
mod transfer;
mod user;
mod watch;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use gridhaul_protocol::negotiated::{DataPolicy, Negotiated};
use gridhaul_protocol::reply::Reply;
use gridhaul_protocol::stack::StackSpec;
use gridhaul_security::credential::Credential;
use gridhaul_shares::Source;
use gridhaul_stack::{Details, Movement};
use gridhaul_storage::StorageError;
use tokio::time::Instant;

use crate::admission::{Misconduct, Place};
use crate::handover::Guest;
use crate::shared::Settings;
use crate::shared::Shared;
use crate::shutdown::{Phase, PhaseWatch};
use crate::telemetry::Event;

use authenticate::Protection;
use control::{Control, Request};
use end::End;
use login::Login;
use user::User;

pub(crate) use channel_security::GSI;
pub(crate) use control::Stream;
pub(crate) use login::{LocalUser, beginning};

/// Replies are collected while more commands wait, up to so many bytes.
const UNSENT_BYTES: usize = 16 * 1024;

/// One control channel and what was agreed on it.
#[derive(Debug)]
pub(crate) struct Session {
    shared: Arc<Shared>,
    settings: Settings,
    phase: PhaseWatch,
    id: u64,
    /// The client's address, IPv4 where it is.
    peer: IpAddr,
    /// Our address on the control connection, IPv4 where it is.
    local: IpAddr,
    connected: Instant,
    protection: Protection,
    /// The client is this user, whatever name and password it gives.
    local_user: Option<LocalUser>,
    /// Its place among the connections of the listeners; a session that another program or process brought has none.
    place: Option<Place>,
    /// It began in the front process, which is told when it ends.
    guest: Option<Guest>,
    /// Something came before login that is no command.
    sent_garbage: bool,
    /// `REIN` ended a login.
    had_login: bool,
    login: Login,
    /// Passwords, certificates and identities that were refused.
    failures: u32,
    negotiated: Negotiated,
    /// Commands about protection that changed it before login, as lines.
    agreed: Vec<String>,
    /// Why the last `RNFR` failed.
    rename_refusal: Option<StorageError>,
    /// `DCSC P`.
    own_credential: Option<Arc<Credential>>,
    /// `SITE SETNETSTACK`; `None` is the server's own.
    stack: Option<Box<StackSpec>>,
    /// The data port that was set last runs over the driver `rdma`.
    port_is_rdma: bool,
    /// What there is to tell of the data channels of the last transfer.
    last_channels: LastChannels,
    /// `SITE TASKID`.
    task_id: Option<String>,
}

/// The data channels of a transfer, as `SITE GETNETSTACK` tells of them.
#[derive(Debug, Default)]
struct LastChannels {
    count: usize,
    /// How the driver moved the bytes, where it had a choice.
    movement: Option<Movement>,
    details: Details,
}

impl Session {
    pub(crate) fn new(
        shared: Arc<Shared>,
        phase: PhaseWatch,
        peer: SocketAddr,
        local: SocketAddr,
    ) -> Self {
        let id = shared.next_session();
        shared
            .journal
            .publish(&Event::SessionOpened { session: id, peer });
        Self::with_number(shared, phase, id, peer, local)
    }

    fn with_number(
        shared: Arc<Shared>,
        phase: PhaseWatch,
        id: u64,
        peer: SocketAddr,
        local: SocketAddr,
    ) -> Self {
        let settings = shared.settings();
        Self {
            negotiated: begin(&settings),
            settings,
            shared,
            phase,
            id,
            peer: peer.ip().to_canonical(),
            local: local.ip().to_canonical(),
            connected: Instant::now(),
            protection: Protection::None,
            local_user: None,
            place: None,
            guest: None,
            agreed: Vec::new(),
            sent_garbage: false,
            had_login: false,
            login: Login::Nobody,
            failures: 0,
            rename_refusal: None,
            own_credential: None,
            stack: None,
            port_is_rdma: false,
            last_channels: LastChannels::default(),
            task_id: None,
        }
    }

    /// A session of a user that another program has let in already.
    #[must_use]
    pub(crate) fn of_local_user(self, user: LocalUser) -> Self {
        Self {
            local_user: Some(user),
            ..self
        }
    }

    /// The session has this place until it ends.
    #[must_use]
    pub(crate) fn at(self, place: Place) -> Self {
        Self {
            place: Some(place),
            ..self
        }
    }

    /// Serves the client until it goes, or has to.
    pub(crate) async fn run(self, stream: impl Into<Stream>) {
        let control = match self.shared.link.get() {
            Some(_) => Control::one_by_one(stream),
            None => Control::new(stream),
        };
        self.run_over(control).await;
    }

    async fn run_over(mut self, mut control: Control) {
        let displaced = self.place.as_ref().map(Place::displaced);
        let displaced = async {
            match displaced {
                Some(displaced) => displaced.await,
                None => std::future::pending().await,
            }
        };
        let end = tokio::select! {
            Err(end) = self.serve(&mut control) => end,
            () = displaced => End::Displaced,
        };
        self.finish(control, end).await;
    }

    async fn finish(mut self, mut control: Control, end: End) {
        let end = match end {
            End::HandedOver(arrival) => match self.hand_over(control, arrival).await {
                Ok(()) => return,
                Err((lost, error)) => {
                    control = lost;
                    error
                }
            },
            end => end,
        };
        self.settle(&end);
        match (end.reply(), &end) {
            (Some(reply), End::Broken(_)) => control.reply_in_clear(&reply),
            (Some(reply), _) => self.send(&mut control, &reply),
            (None, _) => {}
        }
        if let Some(user) = self.login.user() {
            user.node.release();
        }
        if matches!(end, End::Returned) {
            self.give_back(control).await;
            return;
        }
        self.shared.journal.publish(&Event::SessionClosed {
            session: self.id,
            reason: &end.to_string(),
        });
        if matches!(end, End::Displaced) {
            // It must be gone when the other one comes, whether or not the client reads.
            control.close_at_once().await;
        } else {
            control.close().await;
        }
    }

    /// What the session did is counted for the network that it came from.
    fn settle(&self, end: &End) {
        if self.login.user().is_some() {
            return;
        }
        let misconduct = match end {
            End::Shutdown | End::Displaced | End::TryLater(_) | End::NotServed => None,
            _ if self.sent_garbage => Some(Misconduct::Garbage),
            End::Idle => Some(Misconduct::Timeout),
            // What was refused was counted then.
            _ => (self.failures == 0 && !self.had_login).then_some(Misconduct::NoLogin),
        };
        if let Some(misconduct) = misconduct {
            self.penalize(misconduct);
        }
    }

    fn penalize(&self, misconduct: Misconduct) {
        if let Some(place) = &self.place {
            place.penalize(misconduct, std::time::Instant::now());
        }
    }

    async fn serve(&mut self, control: &mut Control) -> Result<std::convert::Infallible, End> {
        let greeting = self.greeting();
        self.send(control, &greeting);
        self.serve_requests(control).await
    }

    async fn serve_requests(
        &mut self,
        control: &mut Control,
    ) -> Result<std::convert::Infallible, End> {
        loop {
            let request = self.next_request(control).await?;
            // What an idle session does not need lives on the heap, and only as long as the command.
            Box::pin(self.execute(control, request)).await?;
            if control.unsent_bytes() > UNSENT_BYTES {
                control.flush().await?;
            }
        }
    }

    fn greeting(&self) -> Reply {
        match &self.settings.config.banner {
            Some(banner) => Reply::new(220, banner),
            None => {
                let (host, version) = (&self.shared.host, crate::version::VERSION);
                Reply::new(220, format!("{host} GridFTP Server {version} ready."))
            }
        }
    }

    /// The next command, for which replies are sent and time passes.
    async fn next_request(&mut self, control: &mut Control) -> Result<Request, End> {
        loop {
            if let Some(request) = control.take() {
                return Ok(request);
            }
            // Replies to what came together go together.
            if control.unsent_bytes() < UNSENT_BYTES && control.look_on() {
                continue;
            }
            control.flush().await?;
            if control.is_ended() {
                return Err(End::ClosedByClient);
            }
            let limits = &self.settings.config.limits;
            let deadline = match self.login {
                Login::Done(_) => Instant::now() + limits.idle_timeout,
                _ => self.connected + limits.login_timeout,
            };
            tokio::select! {
                received = control.receive() => received?,
                () = self.phase.reached(Phase::Draining) => return Err(End::Shutdown),
                () = tokio::time::sleep_until(deadline) => return Err(End::Idle),
            }
        }
    }

    /// The source that shares are counted for before login.
    fn source(&self) -> Source {
        Source::at(self.peer)
    }

    /// `REIN`: the session is as it was when the client had connected, under the settings of now. A transfer ended
    /// before the command was looked at (RFC 959 4.1.1).
    ///
    /// Not where the control channel is protected: RFC 4217 11 has the server go back to an unprotected channel, where
    /// an attacker on the path could insert commands that the client did not send. RFC 2228 says nothing of `REIN`, but that
    /// is also what RFC 959 means by the state "immediately after the control connection is opened". To go on under
    /// protection would let the two ends disagree about it, so such clients are told to connect again.
    fn reinitialize(&mut self) -> Result<Reply, End> {
        if !matches!(self.protection, Protection::None) {
            return Ok(Reply::new(
                502,
                "REIN would end the protection of the control channel: open another connection instead.",
            ));
        }
        if self.guest.is_some() {
            return Err(End::Returned);
        }
        let current = self.shared.settings();
        // Every field is named, so that one that is added is not forgotten here.
        let Self {
            shared: _,
            settings,
            phase: _,
            id: _,
            peer: _,
            local: _,
            connected,
            protection: _,
            local_user: _,
            had_login,
            // The place that a login took is kept; it is lost to the login timeout if no other login follows.
            place: _,
            guest: _,
            // Misconduct is not forgotten, so that it cannot be begun anew.
            sent_garbage: _,
            failures: _,
            login,
            negotiated,
            agreed,
            rename_refusal,
            own_credential,
            stack,
            port_is_rdma,
            last_channels,
            task_id,
        } = self;
        *settings = current;
        if let Some(user) = login.user() {
            user.node.release();
            // Only who had logged in gets time for another login.
            *connected = Instant::now();
            *had_login = true;
        }
        *login = Login::Nobody;
        *negotiated = begin(settings);
        agreed.clear();
        *rename_refusal = None;
        *own_credential = None;
        *stack = None;
        *port_is_rdma = false;
        *last_channels = LastChannels::default();
        *task_id = None;
        Ok(self.greeting())
    }

    /// Adds a reply to what will be sent.
    fn send(&self, control: &mut Control, reply: &Reply) {
        self.shared.journal.publish(&Event::Reply {
            session: self.id,
            reply,
        });
        control.reply(reply);
    }
}

/// What client and server agree on before either has said anything.
fn begin(settings: &Settings) -> Negotiated {
    let security = &settings.config.security;
    Negotiated::new(DataPolicy {
        authenticated: security.require_dcau,
        encrypted: security.encrypt_data,
    })
}
