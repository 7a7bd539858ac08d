//! A session that begins in the front process and goes on in the serving one, and back again with `REIN`.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use gridhaul_protocol::command::Command;
use gridhaul_protocol::negotiated::Mechanism;
use gridhaul_security::context::MessageProtection;
use tokio::net::TcpStream;

use super::Session;
use super::authenticate::{Initiator, Protection};
use super::control::{Control, Parts, Stream, TlsStream};
use super::end::{Arrival, End};
use super::login::Admitted;
use crate::handover::{Guest, Handed, HandedProof, HandedProtection, Kept};
use crate::shared::Shared;
use crate::shutdown::PhaseWatch;

/// In the front process.
impl Session {
    /// Hands the client over. If that fails, the control channel comes back with the reason.
    pub(super) async fn hand_over(
        &mut self,
        mut control: Control,
        arrival: Arrival,
    ) -> Result<(), (Control, End)> {
        if let Err(error) = control.flush_all().await {
            return Err((control, error.into()));
        }
        let Parts {
            stream,
            context,
            mut input,
        } = control.into_parts();
        let lost = |error: io::Error| (Control::lost(), error.into());
        let (stream, protection) = match (stream, context) {
            (Stream::Tcp(stream), None) => (stream, HandedProtection::Clear),
            (Stream::Tcp(stream), Some(context)) => {
                let keys = context.hand_over().map_err(io::Error::other);
                (stream, HandedProtection::Gsi(Box::new(keys.map_err(lost)?)))
            }
            (Stream::Tls(stream), None) => {
                let parts = stream.into_parts().map_err(lost)?;
                input.extend(parts.received.iter());
                (parts.stream, HandedProtection::Tls(Box::new(parts.keys)))
            }
            _ => return Err(lost(io::ErrorKind::Unsupported.into())),
        };
        let connection = stream.into_std().map_err(lost)?;
        let Some(link) = self.shared.link.get().cloned() else {
            return Err(lost(io::ErrorKind::Unsupported.into()));
        };
        let handed = Handed {
            session: self.id,
            proof: self.proof(&arrival),
            name: arrival.name,
            protection,
            agreed: std::mem::take(&mut self.agreed),
            input,
        };
        let kept = Kept {
            place: self.place.take(),
            _proof: match &self.protection {
                Protection::Gsi(initiator) => Some(Arc::clone(&initiator.proof)),
                _ => None,
            },
            failures: self.failures,
            sent_garbage: self.sent_garbage,
        };
        link.hand_over(handed, connection.into(), kept);
        Ok(())
    }

    fn proof(&self, arrival: &Arrival) -> HandedProof {
        match &self.protection {
            Protection::Gsi(initiator) => match initiator.proof.exchange() {
                Some(exchange) => HandedProof::Certificate { exchange },
                // The serving process refuses it: no exchange has ended there.
                None => HandedProof::Anonymous,
            },
            _ if arrival.is_anonymous => HandedProof::Anonymous,
            _ => HandedProof::Password,
        }
    }

    /// A session of a client that was served and begins anew, in its place.
    pub(crate) fn again(
        shared: Arc<Shared>,
        phase: PhaseWatch,
        session: u64,
        (peer, local): (SocketAddr, SocketAddr),
        kept: Kept,
    ) -> Self {
        Self {
            place: kept.place,
            had_login: true,
            // Misconduct is not forgotten.
            failures: kept.failures,
            sent_garbage: kept.sent_garbage,
            ..Self::with_number(shared, phase, session, peer, local)
        }
    }

    /// Serves a client that begins anew; its greeting is the reply to `REIN`.
    pub(crate) async fn run_again(self, stream: TcpStream, input: Vec<u8>) {
        let control = Control::one_by_one(stream).with_input(input);
        self.run_over(control).await;
    }
}

/// In the serving process.
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

    /// Logs the client in, and serves it until it goes, or has to.
    pub(crate) async fn run_handed(mut self, stream: TcpStream, handed: Handed) {
        let Handed {
            name,
            proof,
            protection,
            agreed,
            input,
            ..
        } = handed;
        let (stream, context) = match stream_of(stream, protection) {
            Ok(parts) => parts,
            // Nothing can be said that the client would believe.
            Err(error) => return self.finish(Control::lost(), End::Network(error)).await,
        };
        let is_tls = matches!(stream, Stream::Tls(_));
        let mut control = Control::new(stream).with_input(input);
        if let Some(context) = context {
            control.protect(context);
        }
        let end = match self.take_over(proof, is_tls).await {
            Ok(()) => {
                self.agree_again(&agreed);
                match self.admit(proof, &name).await {
                    Ok(admitted) => self.begin_serving(&mut control, &name, admitted).await,
                    Err(reason) => self.turn_away(&mut control, &name, &reason).await,
                }
            }
            Err(end) => Err(end),
        };
        let end = match end {
            Ok(()) => match self.serve_requests(&mut control).await {
                Ok(never) => match never {},
                Err(end) => end,
            },
            Err(end) => end,
        };
        self.finish(control, end).await;
    }

    /// Notes what protects the control channel, and asks who has proved to be the client.
    async fn take_over(&mut self, proof: HandedProof, is_tls: bool) -> Result<(), End> {
        let HandedProof::Certificate { exchange } = proof else {
            if is_tls {
                self.protection = Protection::Tls;
                self.negotiated.authenticated(Mechanism::Tls);
            }
            return Ok(());
        };
        let logins = Arc::clone(&self.settings.logins);
        let work = move || logins.claim(exchange);
        let claimed = self.shared.threads.log_in(&self.source(), work).await;
        let claimed = claimed.unwrap_or_else(|| Err("The server failed".to_owned()));
        let claimed = claimed.map_err(|reason| End::Broken(format!("{reason}.")))?;
        self.protection = Protection::Gsi(Arc::new(Initiator {
            identity: claimed.identity,
            proof: claimed.proof,
            delegated: claimed.delegated.map(Some),
        }));
        self.negotiated.authenticated(Mechanism::Gsi);
        Ok(())
    }

    /// Carries out what was agreed before the login.
    fn agree_again(&mut self, agreed: &[String]) {
        for line in agreed {
            if let Ok(command @ (Command::Pbsz(_) | Command::Prot(_))) =
                Command::parse(line.as_bytes())
            {
                self.negotiated.settle(&command);
            }
        }
    }

    /// What the client may use, by the word of the login process.
    async fn admit(&self, proof: HandedProof, name: &str) -> Result<Admitted, String> {
        let nothing = || "The server failed.".to_owned();
        match (proof, &self.protection) {
            (HandedProof::Certificate { .. }, Protection::Gsi(initiator)) => {
                self.admit_initiator(Arc::clone(initiator), name).await
            }
            (HandedProof::Anonymous, Protection::None | Protection::Tls) => {
                let grant = self.grant_of_anonymous(name).await;
                let grant = grant.ok_or_else(nothing)?;
                Ok(self.admit_name(name, true, grant))
            }
            (HandedProof::Password, Protection::None | Protection::Tls) => {
                let (logins, user) = (Arc::clone(&self.settings.logins), name.to_owned());
                let work = move || logins.redeem(&user);
                let grant = self.shared.threads.log_in(&self.source(), work).await;
                let grant = grant.flatten().ok_or_else(nothing)?;
                Ok(self.admit_name(name, false, grant))
            }
            _ => Err(nothing()),
        }
    }

    async fn begin_serving(
        &mut self,
        control: &mut Control,
        name: &str,
        admitted: Admitted,
    ) -> Result<(), End> {
        match self.begin(admitted).await {
            Ok(reply) => {
                self.send(control, &reply);
                Ok(())
            }
            Err(reason) => self.turn_away(control, name, &reason).await,
        }
    }

    /// Says why there is no login. The connection ends: what the client would send next is for the front process.
    async fn turn_away(
        &mut self,
        control: &mut Control,
        name: &str,
        reason: &str,
    ) -> Result<(), End> {
        let reply = self.refuse(control, name, reason).await?;
        self.send(control, &reply);
        Err(End::NotServed)
    }

    /// Gives the client back to the front process.
    pub(super) async fn give_back(&mut self, mut control: Control) {
        // Replies to what came before `REIN`. A client that is gone is as good.
        if control.flush().await.is_err() {
            return;
        }
        let Parts { stream, input, .. } = control.into_parts();
        if let (Stream::Tcp(stream), Some(guest)) = (stream, self.guest.take())
            && let Ok(connection) = stream.into_std()
        {
            guest.give_back(OwnedFd::from(connection), input);
        }
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
