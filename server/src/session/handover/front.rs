//! The front process: hands a client over, and gets it back.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use crate::handover::{Handed, HandedProof, HandedProtection, Kept};
use crate::session::conduct::Conduct;
use crate::session::control::{Parts, Stream};
use crate::session::end::{Arrival, End};
use crate::session::parts::Session;
use crate::shared::Shared;
use crate::shutdown::PhaseWatch;
use crate::telemetry::Event;

impl Session {
    /// Hands the client over.
    ///
    /// # Errors
    ///
    /// The end of the session. The control channel is lost, unless the replies could not be sent, or too many clients wait for
    /// the serving process.
    pub(in crate::session) async fn hand_over(&mut self, arrival: Arrival) -> Result<(), End> {
        let link = self.context.shared.link.get().cloned();
        let link = link.ok_or_else(unsupported)?;
        if !link.has_room() {
            return Err(self.refuse_for_now());
        }
        self.control.flush_all().await?;
        let Parts {
            stream,
            context,
            mut input,
        } = self.take_control().into_parts();
        let (stream, protection) = match (stream, context) {
            (Stream::Tcp(stream), None) => (stream, HandedProtection::Clear),
            (Stream::Tcp(stream), Some(context)) => {
                let keys = context.hand_over().map_err(io::Error::other)?;
                (stream, HandedProtection::Gsi(Box::new(keys)))
            }
            (Stream::Tls(stream), None) => {
                let parts = stream.into_parts()?;
                input.extend(parts.received.iter());
                (parts.stream, HandedProtection::Tls(Box::new(parts.keys)))
            }
            _ => return Err(unsupported()),
        };
        let connection = stream.into_std()?;
        let handed = Handed {
            session: self.context.id,
            proof: self.proof(&arrival),
            name: arrival.name,
            protection,
            agreed: self.security.take_agreed(),
            input,
        };
        let initiator = self.security.initiator();
        let proof = initiator.map(|initiator| Arc::clone(&initiator.proof));
        link.hand_over(handed, connection.into(), self.conduct.keep(proof));
        Ok(())
    }

    /// The serving process does not read what is sent to it, or not fast enough.
    fn refuse_for_now(&self) -> End {
        const REASON: &str = "Service busy: too many clients wait to be served";

        self.context.publish(&Event::ConnectionRefused {
            peer: SocketAddr::new(self.context.peer, self.context.port),
            reason: REASON,
        });
        End::TryLater(format!("{REASON}. Please try again later"))
    }

    fn proof(&self, arrival: &Arrival) -> HandedProof {
        match self.security.initiator() {
            Some(initiator) => match initiator.proof.exchange() {
                Some(exchange) => HandedProof::Certificate { exchange },
                // The serving process refuses it, because no exchange has ended there.
                None => HandedProof::Anonymous,
            },
            None if arrival.is_anonymous => HandedProof::Anonymous,
            None => HandedProof::Password,
        }
    }

    /// A session of a client that returned with `REIN`.
    pub(crate) fn again(
        shared: Arc<Shared>,
        phase: PhaseWatch,
        session: u64,
        (peer, local): (SocketAddr, SocketAddr),
        kept: Kept,
    ) -> Self {
        Self {
            conduct: Conduct::of_returned(kept),
            ..Self::with_number(shared, phase, session, peer, local)
        }
    }
}

fn unsupported() -> End {
    io::Error::from(io::ErrorKind::Unsupported).into()
}
