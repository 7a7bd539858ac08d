//! The serving process: takes a client over, and gives it back after `REIN`.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use gridhaul_protocol::command::Command;
use gridhaul_protocol::negotiated::{Mechanism, ProtectionSetting, Setting};
use gridhaul_security::context::MessageProtection;
use tokio::net::TcpStream;

use crate::handover::{Guest, Handed, HandedProof, HandedProtection};
use crate::session::context::Context;
use crate::session::control::{Control, Parts, Stream, TlsStream};
use crate::session::end::End;
use crate::session::initiator::Initiator;
use crate::session::login::{
    Admitted, Refusal, admit_by_certificate, admit_by_name, grant_of_anonymous,
};
use crate::session::parts::Session;
use crate::session::security::ControlSecurity;
use crate::shared::Shared;
use crate::shutdown::PhaseWatch;

impl Session {
    /// A session of a client that the front process hands over.
    pub(crate) fn of_guest(
        shared: Arc<Shared>,
        phase: PhaseWatch,
        session: u64,
        (peer, local): (SocketAddr, SocketAddr),
        guest: Guest,
    ) -> Self {
        Self {
            guest: Some(guest),
            ..Self::with_number(shared, phase, session, peer, local)
        }
    }

    /// Takes the connection over, with its protection, and logs the client in.
    pub(in crate::session) async fn take_over(
        &mut self,
        stream: TcpStream,
        handed: Handed,
    ) -> Result<(), End> {
        // If this fails, there is no channel on which the client would accept a reply.
        let described = handed.protection.described();
        let description = described.map_or_else(String::new, |(mechanism, description)| {
            self.context.live.note_protection(mechanism, description);
            description.to_owned()
        });
        let (stream, context) = stream_of(stream, handed.protection)?;
        let is_tls = matches!(stream, Stream::Tls(_));
        self.control = Control::new(stream).with_input(handed.input);
        if let Some(context) = context {
            self.control.protect(context);
        }
        self.take_protection(handed.proof, is_tls, description)
            .await?;
        self.agree_again(&handed.agreed);
        let name = &handed.name;
        match admit(&self.context, &self.security, handed.proof, name).await {
            Ok(admitted) => self.log_in_handed(name, admitted).await,
            Err(reason) => self.turn_away(name, &reason.into()).await,
        }
    }

    /// Notes what protects the control channel, and asks the login process for the identity of the client.
    async fn take_protection(
        &mut self,
        proof: HandedProof,
        is_tls: bool,
        description: String,
    ) -> Result<(), End> {
        let HandedProof::Certificate { exchange } = proof else {
            if is_tls {
                self.security = ControlSecurity::protected_by_tls(description);
                self.negotiated.authenticated(Mechanism::Tls);
            }
            return Ok(());
        };
        let claimed = self
            .context
            .ask_logins(move |logins| logins.claim(exchange))
            .await;
        let claimed = claimed.unwrap_or_else(|| Err("The server failed".to_owned()));
        let claimed = claimed.map_err(|reason| End::Broken(format!("{reason}.")))?;
        let refused = self.context.shared.refused.subscribe();
        self.context.phase.end_if_refused(exchange, refused);
        let initiator = Initiator {
            identity: claimed.identity,
            proof: claimed.proof,
            delegated: claimed.delegated.map(Some),
        };
        self.security = ControlSecurity::protected_by_gsi(initiator, description);
        self.negotiated.authenticated(Mechanism::Gsi);
        Ok(())
    }

    /// Repeats `PBSZ` and `PROT` from before the login.
    fn agree_again(&mut self, agreed: &[String]) {
        for line in agreed {
            let command = Command::parse(line.as_bytes()).ok();
            if let Some(setting) = command.as_ref().and_then(ProtectionSetting::of) {
                self.negotiated.settle(Setting::Protection(setting));
            }
        }
    }

    async fn log_in_handed(&mut self, name: &str, admitted: Admitted) -> Result<(), End> {
        let logged_in = self.login.log_in(&self.context, &self.security, admitted);
        match logged_in.await {
            Ok(reply) => {
                self.send(&reply);
                Ok(())
            }
            Err(refusal) => self.turn_away(name, &refusal).await,
        }
    }

    /// Replies why there is no login, and ends the connection: the commands that the client would send next belong to the
    /// front process.
    async fn turn_away(&mut self, name: &str, refusal: &Refusal) -> Result<(), End> {
        let (mut call, security, login) = self.before_login();
        let reply = login.refuse(&mut call, security, name, refusal).await?;
        self.send(&reply);
        Err(End::NotServed)
    }

    /// Gives the client back to the front process.
    pub(in crate::session) async fn give_back(&mut self) {
        // The replies to the commands before `REIN`. A client that is gone is not given back.
        if self.control.flush().await.is_err() {
            return;
        }
        let Parts { stream, input, .. } = self.take_control().into_parts();
        if let (Stream::Tcp(stream), Some(guest)) = (stream, self.guest.take())
            && let Ok(connection) = stream.into_std()
        {
            guest.give_back(OwnedFd::from(connection), input);
        }
    }
}

/// What the client may use. The login process decides; the front process is not trusted with it.
async fn admit(
    context: &Context,
    security: &ControlSecurity,
    proof: HandedProof,
    name: &str,
) -> Result<Admitted, String> {
    let failed = || "The server failed.".to_owned();
    match (proof, security.initiator()) {
        (HandedProof::Certificate { .. }, Some(initiator)) => {
            admit_by_certificate(context, initiator, name).await
        }
        (HandedProof::Anonymous, None) => {
            let grant = grant_of_anonymous(context, name).await;
            let grant = grant.ok_or_else(failed)?;
            Ok(admit_by_name(context, name, true, grant))
        }
        (HandedProof::Password, None) => {
            let user = name.to_owned();
            let grant = context.ask_logins(move |logins| logins.redeem(&user)).await;
            let grant = grant.flatten().ok_or_else(failed)?;
            Ok(admit_by_name(context, name, false, grant))
        }
        _ => Err(failed()),
    }
}

/// The connection as the other process had it.
fn stream_of(
    stream: TcpStream,
    protection: HandedProtection,
) -> io::Result<(Stream, Option<MessageProtection>)> {
    Ok(match protection {
        HandedProtection::Clear => (Stream::Tcp(stream), None),
        HandedProtection::Tls(keys) => {
            let stream = TlsStream::continued(stream, *keys)?;
            (Stream::Tls(Box::new(stream)), None)
        }
        HandedProtection::Gsi(keys) => {
            let context = MessageProtection::new(*keys).map_err(io::Error::other)?;
            (Stream::Tcp(stream), Some(context))
        }
    })
}
