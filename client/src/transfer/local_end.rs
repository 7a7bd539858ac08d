//! The end of a transfer on this machine.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use gridhaul_gsi::{ChannelSecurity, FtpsClient, Gsi, Protection};
use gridhaul_protocol::stack::{DriverSpec, StackSpec};
use gridhaul_security::tls::TlsVersions;
use gridhaul_stack::{Driver, SocketOptions};
use gridhaul_storage::ChecksumAlgorithm;
use gridhaul_transfer::{
    Answer, ConnectRequest, Consent, Event, EventSink, ListenRequest, NodeSession, Outcome, Plan,
    RunningTransfer, Stripes,
};
use tokio::sync::oneshot;

use super::TransferFailure;
use crate::login::Login;
use crate::session::{DataProtection, Session};

/// The stack of data channels, and the drivers that protect them.
pub(super) struct Channels {
    stack: StackSpec,
    drivers: Vec<Arc<dyn Driver>>,
}

impl Channels {
    /// # Errors
    ///
    /// When data channels are to be protected, and the login gives nothing to protect them with.
    pub(super) fn new(
        mut stack: StackSpec,
        protection: DataProtection,
        session: &Session,
    ) -> Result<Self, TransferFailure> {
        stack.drivers.retain(|driver| driver.name != Gsi::NAME);
        let driver = security_driver(protection, session)?;
        let named = driver.iter().map(|driver| DriverSpec::plain(driver.name()));
        stack.drivers.extend(named);
        Ok(Self {
            stack,
            drivers: driver.into_iter().collect(),
        })
    }

    /// Listens at an address of this machine; returns where.
    pub(super) fn listen(
        &self,
        files: &dyn NodeSession,
        local: IpAddr,
    ) -> Result<Vec<SocketAddr>, TransferFailure> {
        let request = ListenRequest {
            stack: self.stack.clone(),
            local,
            stripes: Stripes::One,
            sockets: SocketOptions::default(),
            session_drivers: self.drivers.clone(),
        };
        files.listen(&request).map_err(TransferFailure::Listen)
    }

    /// Names the addresses that the next transfer connects to.
    pub(super) fn connect(
        &self,
        files: &dyn NodeSession,
        peers: Vec<SocketAddr>,
    ) -> Result<(), TransferFailure> {
        let request = ConnectRequest {
            stack: self.stack.clone(),
            peers,
            sockets: SocketOptions::default(),
            session_drivers: self.drivers.clone(),
        };
        Ok(files.connect(&request)?)
    }
}

/// The driver that protects data channels, on top of the stack.
fn security_driver(
    protection: DataProtection,
    session: &Session,
) -> Result<Option<Arc<dyn Driver>>, TransferFailure> {
    let login = session.login();
    let trust = login.identity().map(|identity| Arc::clone(&identity.trust));
    let (credential, anchors) = match (protection, session.data_credential(), login) {
        (DataProtection::None, _, _) => return Ok(None),
        // Both ends have it, and a self-signed one will do.
        (_, Some(own), _) => (own.credential(), own.credential().chain().to_vec()),
        // DCAU A: the server presents the credential that was delegated to it.
        (_, None, Login::Certificate { identity, .. }) => (&identity.credential, Vec::new()),
        (_, None, Login::Tls { server, .. }) => {
            return Ok(Some(Arc::new(FtpsClient::new(server.clone()))));
        }
        _ => return Err(TransferFailure::NoCertificate),
    };
    let security = ChannelSecurity {
        credential: Arc::clone(credential),
        trust: trust.unwrap_or_default(),
        anchors,
        expected: credential.identity().one_line().to_owned(),
        protection: match protection {
            DataProtection::Private => Protection::Private,
            DataProtection::None | DataProtection::Authenticated => Protection::Clear,
        },
        versions: TlsVersions::default(),
    };
    Ok(Some(Arc::new(Gsi::new(security))))
}

/// The checksums of a file that has arrived.
pub(super) type Sums = Vec<(ChecksumAlgorithm, String)>;

/// A transfer that runs on this machine.
pub(super) struct LocalTransfer {
    pub(super) running: Arc<dyn RunningTransfer>,
    /// The result; the sender is never dropped before.
    pub(super) finished: oneshot::Receiver<Outcome>,
    /// The question about a received file.
    pub(super) arrival: Arrival,
    consent: Option<Arc<Consent>>,
}

/// A received file that will wait for the answer.
pub(super) struct Arrival(Option<oneshot::Receiver<Sums>>);

impl Arrival {
    /// Waits until the file waits. For ever if there is none, or afterwards.
    pub(super) async fn next(&mut self) -> Sums {
        if let Some(asked) = &mut self.0 {
            let sums = asked.await;
            self.0 = None;
            // Without sums the transfer has ended before.
            if let Ok(sums) = sums {
                return sums;
            }
        }
        std::future::pending().await
    }
}

impl LocalTransfer {
    /// As [`Self::start`], on this thread as far as it need not wait for the peer. The server has confirmed a received file: it is
    /// complete if it has so many `bytes`.
    pub(super) fn start_here(files: &dyn NodeSession, mut plan: Plan, bytes: Option<u64>) -> Self {
        if let Some(bytes) = bytes {
            let consent = Consent::new(Box::new(|_| {}));
            consent.answer(Answer::CompleteWith(bytes));
            plan.handling.demands.consent = Some(Arc::new(consent));
        }
        if !files.may_be_quick(&plan) {
            return Self::start(files, plan, false);
        }
        let (finished, events) = outcome();
        let running = files.transfer_here(plan, events);
        // The peer of a client sends without a reply.
        running.resume_here();
        Self {
            running,
            finished,
            arrival: Arrival(None),
            consent: None,
        }
    }

    /// Starts a transfer. If it `asks`, a received file waits for an answer before it gets its name.
    pub(super) fn start(files: &dyn NodeSession, mut plan: Plan, asks: bool) -> Self {
        let (mut consent, mut asked) = (None, None);
        if asks {
            let (ask, question) = oneshot::channel();
            let ask = once(ask);
            consent = Some(Arc::new(Consent::new(Box::new(ask))));
            asked = Some(question);
            plan.handling.demands.consent.clone_from(&consent);
        }
        let (finished, events) = outcome();
        let running = files.transfer(plan, events);
        Self {
            running,
            finished,
            arrival: Arrival(asked),
            consent,
        }
    }

    /// The bytes that have moved.
    pub(super) fn moved(&self) -> u64 {
        let stripes = self.running.progress().stripes;
        let all = stripes.into_iter();
        all.fold(0, u64::saturating_add)
    }

    /// Whether it has, or had, data channels.
    pub(super) fn has_channels(&self) -> bool {
        self.running.survey().channels > 0
    }

    /// Answers a file that waits.
    pub(super) fn answer(&self, answer: Answer) {
        if let Some(consent) = &self.consent {
            consent.answer(answer);
        }
    }
}

/// The end of a transfer, and the events that tell it.
fn outcome() -> (oneshot::Receiver<Outcome>, EventSink) {
    let (tell, finished) = oneshot::channel();
    let tell = once(tell);
    let events = move |event| {
        if let Event::Finished(outcome) = event {
            tell(*outcome);
        }
    };
    (finished, Box::new(events))
}

/// A function that sends one value, for callers that could call it again.
fn once<T: Send>(sender: oneshot::Sender<T>) -> impl Fn(T) + Send + Sync {
    let sender = std::sync::Mutex::new(Some(sender));
    move |value| {
        let sender = sender.lock().ok().and_then(|mut sender| sender.take());
        if let Some(sender) = sender {
            // The other end has gone when the copy was given up.
            let _ = sender.send(value);
        }
    }
}
