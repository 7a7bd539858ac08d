//! The driver `gsi`.

use std::ops::Range;
use std::sync::Arc;

use gridhaul_security::context::Context;
use gridhaul_security::credential::Credential;
use gridhaul_security::tls::{Direction, RecordKeys, TlsEngine, TlsSettings, TlsVersions};
use gridhaul_security::trust::{Peer, TrustStore};
use gridhaul_stack::options::OptionDoc;
use gridhaul_stack::{
    Built, Channel, ChannelError, Driver, Operation, Side, StackError, Transform,
};

use crate::channel::{End, Engine, TlsChannel};
use crate::handshake::{self, Verdict};
use crate::identity::is_expected;
use crate::kernel::{self, Wish};
use crate::record::protocol;

const NAME: &str = "gsi";

/// The driver `gsi`: both ends prove who they are (`DCAU`), and the bytes go in TLS records or in clear
/// (`PROT`).
///
/// | option | meaning |
/// | --- | --- |
/// | `ktls=auto` | the kernel protects records in directions in which that is cheaper, as measured once in a process, over a driver whose bytes are those of a TCP socket. `on` has it do so or fails, `off` never. It is the administrator's |
#[derive(Debug, Clone)]
pub struct Gsi {
    security: Option<Arc<ChannelSecurity>>,
    kernel: Wish,
}

/// What the data channels of a session prove, and ask for.
#[derive(Debug, Clone)]
pub struct ChannelSecurity {
    /// What we present.
    pub credential: Arc<Credential>,
    /// Whom we accept.
    pub trust: Arc<TrustStore>,
    /// The identity that the peer must have (one-line form).
    pub expected: String,
    /// What happens to the bytes.
    pub protection: Protection,
    /// The versions of TLS that we agree to.
    pub versions: TlsVersions,
}

/// What happens to the bytes of an authenticated channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protection {
    /// `PROT C`: after the handshake they go in clear.
    Clear,
    /// `PROT S` and `PROT P`: they go in TLS records.
    Private,
}

impl Gsi {
    /// The driver of a program: its name and options are known, its channels cannot be made, since no
    /// session has said who it is.
    pub fn without_session() -> Self {
        Self {
            security: None,
            kernel: Wish::default(),
        }
    }

    /// The driver of one session.
    pub fn new(security: ChannelSecurity) -> Self {
        Self {
            security: Some(Arc::new(security)),
            kernel: Wish::default(),
        }
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
            security: self.security.clone(),
            kernel: Wish::parse(&options)?,
        })))
    }
}

impl Transform for Gsi {
    fn wrap(
        &self,
        channel: Box<dyn Channel>,
        side: Side,
        operation: &Operation<'_>,
    ) -> Result<Box<dyn Channel>, ChannelError> {
        let security = self.security.as_deref().ok_or_else(|| {
            let reason = "data channels are authenticated only in sessions that logged in with a \
                          certificate (AUTH GSSAPI)";
            protocol(NAME, reason)
        })?;
        match security.protection {
            Protection::Clear => security.authenticate(channel, side, operation),
            Protection::Private => security.protect(channel, side, self.kernel, operation),
        }
    }
}

impl ChannelSecurity {
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
            |context| self.judge(context.peer()),
            operation,
        )?;
        Ok(channel)
    }

    fn protect(
        &self,
        mut channel: Box<dyn Channel>,
        side: Side,
        kernel: Wish,
        operation: &Operation<'_>,
    ) -> Result<Box<dyn Channel>, ChannelError> {
        let engine = match side {
            Side::Connector => TlsEngine::connector(&self.tls()),
            Side::Acceptor => TlsEngine::acceptor(&self.tls()),
        };
        let mut engine = engine.map_err(|error| protocol(NAME, error.to_string()))?;
        let judge = |engine: &TlsEngine| self.judge(engine.peer());
        handshake::connect(&mut *channel, &mut engine, NAME, judge, operation)?;
        // The peers of this field close a connection without close_notify (observed from
        // globus-url-copy 10.12): the end of the connection is the end of the data.
        let mut channel = TlsChannel::new(channel, engine, NAME, End::Bare);
        channel.offload(kernel)?;
        Ok(Box::new(channel))
    }

    fn judge(&self, peer: Option<&Peer>) -> Verdict {
        let peer = peer.ok_or_else(|| protocol(NAME, "the peer did not say who it is"))?;
        if is_expected(peer, &self.expected, &self.credential) {
            return Ok(());
        }
        // The words of globus-gridftp-server 13.24.
        Err(ChannelError::Refused {
            driver: NAME,
            reason: format!(
                "The peer authenticated as {}. Expected the peer to authenticate as {}",
                peer.identity.one_line(),
                self.expected
            ),
        })
    }

    fn tls(&self) -> TlsSettings {
        TlsSettings {
            credential: Arc::clone(&self.credential),
            trust: Arc::clone(&self.trust),
            versions: self.versions,
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
            Err("the peer sent data before its time".to_owned())
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
