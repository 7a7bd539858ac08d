//! A session and its parts.

use std::net::SocketAddr;
use std::sync::Arc;

use gridhaul_protocol::negotiated::{DataPolicy, Negotiated};
use gridhaul_protocol::reply::Reply;
use tokio::time::Instant;

use super::call::LoginCall;
use super::conduct::Conduct;
use super::context::Context;
use super::control::Control;
use super::data::DataPort;
use super::end::End;
use super::login::Login;
use super::namespace::Namespace;
use super::security::ControlSecurity;
use super::transfer::Transfers;
use super::user::LocalUser;
use crate::admission::Place;
use crate::handover::Guest;
use crate::shared::Settings;
use crate::shared::Shared;
use crate::shutdown::PhaseWatch;
use crate::telemetry::Event;

/// One control channel, and what was agreed on it.
///
/// Each part owns its state and carries out its own commands. The session passes them on, and holds the state that
/// several parts need.
#[derive(Debug)]
pub(crate) struct Session {
    pub(super) context: Context,
    pub(super) control: Control,
    pub(super) conduct: Conduct,
    pub(super) security: ControlSecurity,
    pub(super) login: Login,
    pub(super) negotiated: Negotiated,
    pub(super) data_port: DataPort,
    pub(super) transfers: Transfers,
    pub(super) namespace: Namespace,
    /// The client came from the front process, which is notified when the session ends.
    pub(super) guest: Option<Guest>,
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

    pub(super) fn with_number(
        shared: Arc<Shared>,
        phase: PhaseWatch,
        id: u64,
        peer: SocketAddr,
        local: SocketAddr,
    ) -> Self {
        let context = Context::new(shared, phase, id, peer, local);
        Self {
            negotiated: not_negotiated(&context.settings),
            context,
            control: Control::lost(),
            conduct: Conduct::default(),
            security: ControlSecurity::default(),
            login: Login::default(),
            data_port: DataPort::default(),
            transfers: Transfers::default(),
            namespace: Namespace::default(),
            guest: None,
        }
    }

    /// A session of a user whom another program has authenticated.
    #[must_use]
    pub(crate) fn of_local_user(self, user: LocalUser) -> Self {
        Self {
            login: Login::of_local_user(user),
            ..self
        }
    }

    /// The session has this place until it ends.
    #[must_use]
    pub(crate) fn at(self, place: Place) -> Self {
        Self {
            conduct: Conduct::at(place),
            ..self
        }
    }

    /// Appends a reply to the output of the control channel.
    pub(super) fn send(&mut self, reply: &Reply) {
        self.context.send(&mut self.control, reply);
    }

    /// Takes the control channel out of a session that ends.
    pub(super) fn take_control(&mut self) -> Control {
        std::mem::replace(&mut self.control, Control::lost())
    }

    /// The arguments of a command that needs no login, and the parts that carry it out.
    pub(super) fn before_login(&mut self) -> (LoginCall<'_>, &mut ControlSecurity, &mut Login) {
        let call = LoginCall {
            context: &self.context,
            control: &mut self.control,
            conduct: &mut self.conduct,
        };
        (call, &mut self.security, &mut self.login)
    }

    /// `REIN`: the state of a session that begins, under the current settings. A transfer ended before the command was
    /// looked at (RFC 959 4.1.1).
    ///
    /// It is refused on a protected control channel. RFC 4217 11 has the server go back to an unprotected channel, where
    /// an attacker on the path could insert commands. RFC 2228 does not mention `REIN`, but RFC 959 means the same with the
    /// state "immediately after the control connection is opened". If the server kept the protection, the two ends could
    /// disagree about it. So such clients have to connect again.
    pub(super) fn reinitialize(&mut self) -> Result<Reply, End> {
        if !self.security.is_none() {
            return Ok(Reply::new(
                502,
                "REIN would end the protection of the control channel: open another connection instead.",
            ));
        }
        if self.guest.is_some() {
            return Err(End::Returned);
        }
        // Every field is named, so that a new one is not forgotten here.
        let Self {
            context,
            control: _,
            // A login keeps its place. The login timeout ends the session if no other login follows.
            conduct,
            security,
            login,
            negotiated,
            data_port,
            transfers,
            namespace,
            guest: _,
        } = self;
        context.settings = context.shared.settings();
        if let Some(user) = login.user() {
            user.node.release();
            // The login timeout starts again only after a login.
            context.connected = Instant::now();
            conduct.log_out();
            context.live.log_out();
        }
        security.forget_agreed();
        login.reset();
        *negotiated = not_negotiated(&context.settings);
        *data_port = DataPort::default();
        *transfers = Transfers::default();
        *namespace = Namespace::default();
        Ok(context.greeting())
    }
}

/// The state before client and server have negotiated anything.
fn not_negotiated(settings: &Settings) -> Negotiated {
    let security = &settings.config.security;
    Negotiated::new(DataPolicy {
        authenticated: security.require_dcau,
        encrypted: security.encrypt_data,
    })
}
