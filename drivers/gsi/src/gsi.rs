//! The driver `gsi`.

use std::ops::Range;
use std::sync::Arc;

use gridhaul_security::context::Context;
use gridhaul_security::tls::{Direction, RecordKeys, TlsEngine, TlsSettings};
use gridhaul_security::trust::{Peer, TrustStore};
use gridhaul_stack::options::OptionDoc;
use gridhaul_stack::{
    Built, Channel, ChannelError, Driver, Finding, Operation, RestoreError, SessionValue,
    SessionValueError, Side, StackError, Standing, Transform,
};

use crate::channel::{End, TlsChannel};
use crate::engine::Engine;
use crate::handshake::{self, Verdict};
use crate::identity::is_expected;
use crate::kernel::{self, KtlsMode};
use crate::record::protocol;
use crate::security::{ChannelSecurity, Protection};
use crate::value;

const NAME: &str = Gsi::NAME;

/// The driver `gsi`: both ends authenticate (`DCAU`), and the data is sent in TLS records or in cleartext (`PROT`).
///
/// | option | meaning |
/// | --- | --- |
/// | `ktls=auto` | the kernel protects records in directions in which that takes less CPU time, as measured once per process, if the driver below is over TCP. `on` requires it, `off` never uses it. For the administrator |
#[derive(Debug, Clone)]
pub struct Gsi {
    session: Option<Arc<Session>>,
    kernel: KtlsMode,
}

/// What the channels of a session are made with.
#[derive(Debug)]
struct Session {
    security: ChannelSecurity,
    /// All trust anchors: those of the machine and those of the session.
    trust: Arc<TrustStore>,
}

impl Gsi {
    /// The name in stack strings and of a [`SessionValue`].
    pub const NAME: &'static str = "gsi";

    /// The driver that a program registers: it has a name and options, but cannot make channels, because it has no credential.
    pub fn without_session() -> Self {
        Self {
            session: None,
            kernel: KtlsMode::default(),
        }
    }

    /// The driver of one session.
    pub fn new(security: ChannelSecurity) -> Self {
        let trust = if security.anchors.is_empty() {
            Arc::clone(&security.trust)
        } else {
            Arc::new(security.trust.with_anchors(&security.anchors))
        };
        Self {
            session: Some(Arc::new(Session { security, trust })),
            kernel: KtlsMode::default(),
        }
    }

    /// The driver of a session of another machine, from the bytes of its [`SessionValue`]. `trust` is that of this machine.
    ///
    /// # Errors
    ///
    /// When the bytes have another format, are malformed, or have a credential that cannot be used.
    pub fn restore(bytes: &[u8], trust: Arc<TrustStore>) -> Result<Self, RestoreError> {
        value::restore(bytes, trust).map(Self::new)
    }
}

impl Driver for Gsi {
    fn name(&self) -> &'static str {
        NAME
    }

    fn options(&self) -> &'static [OptionDoc] {
        &[kernel::OPTION]
    }

    fn build(&self, options: &[(String, String)]) -> Result<Built, StackError> {
        let options = self.read_options(options)?;
        Ok(Built::Transform(Arc::new(Self {
            session: self.session.clone(),
            kernel: KtlsMode::parse(&options)?,
        })))
    }

    fn session_value(&self) -> Result<SessionValue, SessionValueError> {
        let session = self.session.as_deref();
        let session = session.ok_or_else(|| SessionValueError::without_session(NAME))?;
        value::describe(&session.security)
    }

    fn check_kernel(&self) -> Vec<Finding> {
        // Without support in the kernel, this process protects the records: no problem to fix.
        vec![Finding {
            about: "kernel-tls",
            standing: Standing::Good,
            text: kernel::kernel_support().words,
        }]
    }
}

impl Transform for Gsi {
    fn wrap(
        &self,
        channel: Box<dyn Channel>,
        side: Side,
        operation: &Operation<'_>,
    ) -> Result<Box<dyn Channel>, ChannelError> {
        let session = self.session.as_deref().ok_or_else(|| {
            let reason = "data channels are authenticated only in sessions that logged in with a \
                          certificate (AUTH GSSAPI)";
            protocol(NAME, reason)
        })?;
        match session.security.protection {
            Protection::Clear => session.authenticate(channel, side, operation),
            Protection::Private => session.protect(channel, side, self.kernel, operation),
        }
    }
}

impl Session {
    fn authenticate(
        &self,
        mut channel: Box<dyn Channel>,
        side: Side,
        operation: &Operation<'_>,
    ) -> Result<Box<dyn Channel>, ChannelError> {
        let context = match side {
            Side::Connector => Context::initiator(&self.tls(), false),
            Side::Acceptor => Context::data_acceptor(&self.tls()),
        };
        let mut context = context.map_err(|error| protocol(NAME, error.to_string()))?;
        handshake::authenticate(
            &mut *channel,
            &mut context,
            side == Side::Connector,
            NAME,
            |context| self.check_peer(context.peer()),
            operation,
        )?;
        Ok(channel)
    }

    fn protect(
        &self,
        mut channel: Box<dyn Channel>,
        side: Side,
        kernel: KtlsMode,
        operation: &Operation<'_>,
    ) -> Result<Box<dyn Channel>, ChannelError> {
        let engine = match side {
            Side::Connector => TlsEngine::connector(&self.tls()),
            Side::Acceptor => TlsEngine::acceptor(&self.tls()),
        };
        let mut engine = engine.map_err(|error| protocol(NAME, error.to_string()))?;
        let check_peer = |engine: &TlsEngine| self.check_peer(engine.peer());
        handshake::connect(&mut *channel, &mut engine, NAME, check_peer, operation)?;
        // GridFTP programs close a connection without close_notify (observed from globus-url-copy 10.12): the end of the
        // connection is the end of the data.
        let mut channel = TlsChannel::new(channel, engine, NAME, End::Bare);
        channel.offload(kernel)?;
        Ok(Box::new(channel))
    }

    fn check_peer(&self, peer: Option<&Peer>) -> Verdict {
        let security = &self.security;
        let peer = peer.ok_or_else(|| protocol(NAME, "the peer did not say who it is"))?;
        if is_expected(peer, &security.expected, &security.credential) {
            return Ok(());
        }
        // The text of globus-gridftp-server 13.24.
        Err(ChannelError::Refused {
            driver: NAME,
            reason: format!(
                "The peer authenticated as {}. Expected the peer to authenticate as {}",
                peer.identity.one_line(),
                security.expected
            ),
        })
    }

    fn tls(&self) -> TlsSettings {
        TlsSettings {
            credential: Arc::clone(&self.security.credential),
            trust: Arc::clone(&self.trust),
            versions: self.security.versions,
        }
    }
}

impl Engine for TlsEngine {
    fn advance(&mut self, record: &[u8], output: &mut Vec<u8>) -> Result<(), String> {
        let mut plaintext = Vec::new();
        Self::advance(self, record, output, &mut plaintext).map_err(|error| error.to_string())?;
        if plaintext.is_empty() {
            Ok(())
        } else {
            Err("the peer sent data during the handshake".to_owned())
        }
    }

    fn is_handshaking(&self) -> bool {
        Self::is_handshaking(self)
    }

    fn open(&mut self, record: &mut [u8], output: &mut Vec<u8>) -> Result<Range<usize>, String> {
        self.open_in_place(record, output)
            .map_err(|error| error.to_string())
    }

    fn seal(&mut self, plaintext: &[u8], records: &mut [u8]) -> Result<usize, String> {
        self.wrap_into(plaintext, records)
            .map_err(|error| error.to_string())
    }

    fn is_closed_by_peer(&self) -> bool {
        Self::is_closed_by_peer(self)
    }

    fn close(&mut self, output: &mut Vec<u8>) {
        Self::close(self, output);
    }

    fn keys(&self, direction: Direction) -> Option<RecordKeys<'_>> {
        Self::keys(self, direction)
    }

    fn release_keys(&mut self, direction: Direction) {
        Self::release_keys(self, direction);
    }

    fn note_sealed(&mut self, records: u64, output: &mut Vec<u8>) -> Result<(), String> {
        Self::note_sealed(self, records, output).map_err(|error| error.to_string())
    }
}
