//! The negotiated security of data channels: `DCAU`, `PROT`, `PBSZ`, and the effects of `DCSC`.
//!
//! The session holds the credentials.

use super::refusal::Refusal;
use super::setting::ProtectionSetting;
use crate::command::{DataChannelAuthentication, ProtectionLevel, Text};
use crate::reply::Reply;

/// The protection of the control channel.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Mechanism {
    /// No protection.
    #[default]
    None,
    /// GSI (`AUTH GSSAPI`).
    Gsi,
    /// TLS (`AUTH TLS`, RFC 4217).
    Tls,
}

/// The administrator's requirements for data channels.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DataPolicy {
    /// In a session with GSI, peers must authenticate.
    pub authenticated: bool,
    /// Data must be encrypted.
    pub encrypted: bool,
}

/// The security of data channels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DataSecurity {
    /// Cleartext, with any admitted peer.
    None,
    /// Both ends authenticate with GSI.
    Gsi {
        /// The required identity of the peer.
        peer: PeerDemand,
        /// Data is encrypted.
        private: bool,
    },
    /// TLS as in RFC 4217: this end is the TLS server, whether it connects or accepts.
    Tls,
}

/// The required identity of a data channel's peer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PeerDemand {
    /// Our own identity.
    Same,
    /// The owner of this subject name.
    Subject(Text),
}

/// The negotiated state.
#[derive(Debug, Clone)]
pub(super) struct Security {
    policy: DataPolicy,
    mechanism: Mechanism,
    /// `DCSC P` was sent.
    own_credential: bool,
    authentication: DataChannelAuthentication,
    protection: ProtectionLevel,
    /// `PBSZ`.
    block_bytes: Option<u32>,
}

impl Default for Security {
    fn default() -> Self {
        Self::new(DataPolicy::default())
    }
}

impl Security {
    pub(super) fn new(policy: DataPolicy) -> Self {
        Self {
            policy,
            mechanism: Mechanism::None,
            own_credential: false,
            authentication: DataChannelAuthentication::None,
            protection: ProtectionLevel::Clear,
            block_bytes: None,
        }
    }

    pub(super) fn authenticated(&mut self, mechanism: Mechanism) {
        self.mechanism = mechanism;
        self.block_bytes = None;
        self.protection = ProtectionLevel::Clear;
        // Clients that find DCAU in FEAT assume DCAU A (observed from globus-url-copy 10.12).
        self.authentication = match mechanism {
            Mechanism::Gsi => DataChannelAuthentication::User,
            Mechanism::None | Mechanism::Tls => DataChannelAuthentication::None,
        };
    }

    pub(super) fn set_own_credential(&mut self, own: bool) {
        self.own_credential = own;
    }

    /// `DCAU`: the reply, and whether the security of data channels has changed.
    pub(super) fn authenticate_channels(
        &mut self,
        authentication: &DataChannelAuthentication,
    ) -> (Reply, bool) {
        let before = self.authentication.clone();
        let reply = self.authenticate(authentication);
        (reply, self.authentication != before)
    }

    /// `PBSZ` and `PROT`: the reply, and whether the security of data channels has changed.
    pub(super) fn set_protection(&mut self, setting: ProtectionSetting) -> (Reply, bool) {
        let before = self.protection;
        let reply = match setting {
            ProtectionSetting::BlockBytes(bytes) => self.set_block(bytes),
            ProtectionSetting::Level(level) => self.protect(level),
        };
        (reply, self.protection != before)
    }

    fn authenticate(&mut self, authentication: &DataChannelAuthentication) -> Reply {
        let letter = match authentication {
            DataChannelAuthentication::None => 'N',
            DataChannelAuthentication::User => 'A',
            DataChannelAuthentication::Subject(_) => 'S',
        };
        if letter == 'N' && self.mechanism == Mechanism::Gsi && self.policy.authenticated {
            return Reply::new(
                534,
                "DCAU N is refused: the administrator demands that data channels are authenticated.",
            );
        }
        if letter != 'N' && !self.may_authenticate() {
            return Reply::new(
                504,
                "Data channels are not authenticated in a session without GSI, unless DCSC P gave them \
                 a credential; send DCAU N.",
            );
        }
        self.authentication = authentication.clone();
        Reply::new(200, format!("DCAU {letter}."))
    }

    /// The size has no effect, because TLS has its own limits.
    fn set_block(&mut self, bytes: u32) -> Reply {
        if self.mechanism == Mechanism::None && !self.own_credential {
            // RFC 2228 3: PBSZ requires a preceding security exchange.
            return Reply::new(
                503,
                "PBSZ needs a protected control channel; send AUTH first.",
            );
        }
        // RFC 4217 8: the size is always 0 with TLS.
        let bytes = match self.mechanism {
            Mechanism::Tls => 0,
            Mechanism::Gsi | Mechanism::None => bytes,
        };
        self.block_bytes = Some(bytes);
        Reply::new(200, format!("PBSZ={bytes}"))
    }

    fn protect(&mut self, level: ProtectionLevel) -> Reply {
        // RFC 4217 8. Not required with GSI, where some clients omit it and it has no effect.
        if self.mechanism == Mechanism::Tls && self.block_bytes.is_none() {
            return Reply::new(503, "Send PBSZ 0 first.");
        }
        let letter = match level {
            ProtectionLevel::Clear => 'C',
            ProtectionLevel::Safe => 'S',
            ProtectionLevel::Private => 'P',
        };
        let supported = match (self.mechanism, level) {
            (_, ProtectionLevel::Clear) | (Mechanism::Tls, ProtectionLevel::Private) => true,
            _ => self.may_authenticate(),
        };
        if !supported {
            return Reply::new(
                536,
                format!("{letter} protection level not supported in this session."),
            );
        }
        self.protection = level;
        Reply::new(200, format!("Protection level set to {letter}."))
    }

    /// Whether the session may have a credential for data channels.
    fn may_authenticate(&self) -> bool {
        self.mechanism == Mechanism::Gsi || self.own_credential
    }

    pub(super) fn of_channels(&self) -> Result<DataSecurity, Refusal> {
        let private = self.protection != ProtectionLevel::Clear;
        if self.policy.encrypted && !private {
            return Err(Refusal::EncryptionRequired);
        }
        let peer = match &self.authentication {
            DataChannelAuthentication::None => {
                return match (private, self.mechanism) {
                    (false, _) => Ok(DataSecurity::None),
                    (true, Mechanism::Tls) => Ok(DataSecurity::Tls),
                    (true, _) => Err(Refusal::ProtectionWithoutAuthentication),
                };
            }
            DataChannelAuthentication::User => PeerDemand::Same,
            DataChannelAuthentication::Subject(name) => PeerDemand::Subject(name.clone()),
        };
        Ok(DataSecurity::Gsi { peer, private })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::Command;

    fn send(security: &mut Security, line: &str) -> (u16, bool) {
        let (reply, changed) = match Command::parse(line.as_bytes()).expect("a command") {
            Command::Dcau(authentication) => security.authenticate_channels(&authentication),
            Command::Pbsz(bytes) => security.set_protection(ProtectionSetting::BlockBytes(bytes)),
            Command::Prot(level) => security.set_protection(ProtectionSetting::Level(level)),
            command => panic!("{command} is not about security"),
        };
        (reply.code(), changed)
    }

    fn with(mechanism: Mechanism) -> Security {
        let mut security = Security::default();
        security.authenticated(mechanism);
        security
    }

    #[test]
    fn a_session_with_gsi_begins_authenticated_and_in_cleartext() {
        let security = with(Mechanism::Gsi);
        let expected = DataSecurity::Gsi {
            peer: PeerDemand::Same,
            private: false,
        };
        assert_eq!(security.of_channels(), Ok(expected));
    }

    #[test]
    fn the_dialogues_of_the_globus_client_are_answered() {
        let mut security = with(Mechanism::Gsi);
        assert_eq!(send(&mut security, "DCAU A"), (200, false));
        assert_eq!(send(&mut security, "PBSZ 1048576"), (200, false));
        assert_eq!(send(&mut security, "PROT P"), (200, true));
        assert_eq!(send(&mut security, "PROT P"), (200, false));
        assert_eq!(
            send(&mut security, "DCAU S /O=Grid/CN=Second User"),
            (200, true)
        );
        let expected = DataSecurity::Gsi {
            peer: PeerDemand::Subject(Text::new("/O=Grid/CN=Second User").expect("a text")),
            private: true,
        };
        assert_eq!(security.of_channels(), Ok(expected));
    }

    #[test]
    fn unauthenticated_channels_cannot_be_protected() {
        let mut security = with(Mechanism::Gsi);
        assert_eq!(send(&mut security, "PROT S"), (200, true));
        assert_eq!(send(&mut security, "DCAU N"), (200, true));
        let refusal = security.of_channels().expect_err("no authentication");
        assert_eq!(refusal.reply().code(), 536);
        assert_eq!(send(&mut security, "PROT C"), (200, true));
        assert_eq!(security.of_channels(), Ok(DataSecurity::None));
    }

    #[test]
    fn without_a_mechanism_data_is_protected_only_by_a_credential_of_its_own() {
        let mut security = Security::default();
        assert_eq!(send(&mut security, "DCAU N"), (200, false));
        assert_eq!(send(&mut security, "PROT C"), (200, false));
        for (line, code) in [
            ("DCAU A", 504),
            ("DCAU S /CN=x", 504),
            ("PROT S", 536),
            ("PROT P", 536),
            ("PBSZ 0", 503),
        ] {
            assert_eq!(send(&mut security, line), (code, false), "{line}");
        }
        security.set_own_credential(true);
        for line in ["DCAU A", "PBSZ 1048576", "PROT P"] {
            assert_eq!(send(&mut security, line).0, 200, "{line}");
        }
        assert!(matches!(
            security.of_channels(),
            Ok(DataSecurity::Gsi { private: true, .. })
        ));
    }

    #[test]
    fn tls_has_private_data_after_pbsz() {
        let mut security = with(Mechanism::Tls);
        assert_eq!(send(&mut security, "PROT P"), (503, false));
        assert_eq!(send(&mut security, "PBSZ 4096"), (200, false));
        assert_eq!(send(&mut security, "PROT S"), (536, false));
        assert_eq!(send(&mut security, "DCAU A"), (504, false));
        assert_eq!(security.of_channels(), Ok(DataSecurity::None));
        assert_eq!(send(&mut security, "PROT P"), (200, true));
        assert_eq!(security.of_channels(), Ok(DataSecurity::Tls));
    }

    #[test]
    fn the_administrator_may_require_authentication_and_encryption() {
        let mut security = Security::new(DataPolicy {
            authenticated: true,
            encrypted: true,
        });
        assert_eq!(
            security.of_channels().expect_err("in clear").reply().code(),
            534
        );
        security.authenticated(Mechanism::Gsi);
        assert_eq!(send(&mut security, "DCAU N"), (534, false));
        assert!(security.of_channels().is_err());
        assert_eq!(send(&mut security, "PROT P").0, 200);
        assert!(security.of_channels().is_ok());
    }
}
