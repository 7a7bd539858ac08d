//! What protects the control channel.

use std::sync::Arc;

use gridhaul_protocol::command::Command;
use gridhaul_protocol::negotiated::{Negotiated, ProtectionSetting, Setting};
use gridhaul_protocol::reply::Reply;

use crate::login;
use crate::security::HandshakePermit;
use crate::session::initiator::Initiator;

/// The protection of one control channel.
#[derive(Debug, Default)]
pub(crate) struct ControlSecurity {
    pub(super) protection: Protection,
    /// The version of TLS and its cipher.
    pub(super) description: Option<String>,
    /// `PBSZ` and `PROT` from before login, as lines for the process that will serve the client.
    agreed: Vec<String>,
}

#[derive(Debug, Default)]
pub(super) enum Protection {
    #[default]
    None,
    /// `AUTH GSSAPI` was accepted. The exchange starts with the first token, and again after a token that failed.
    Exchange(Option<Box<PendingExchange>>),
    /// A GSI security context.
    Gsi(Arc<Initiator>),
    Tls,
}

/// A security exchange under way.
#[derive(Debug)]
pub(super) struct PendingExchange {
    pub(super) exchange: Box<dyn login::Exchange>,
    pub(super) permit: HandshakePermit,
}

impl ControlSecurity {
    pub(crate) fn protected_by_tls(description: String) -> Self {
        Self {
            protection: Protection::Tls,
            description: Some(description),
            agreed: Vec::new(),
        }
    }

    pub(crate) fn protected_by_gsi(initiator: Initiator, description: String) -> Self {
        Self {
            protection: Protection::Gsi(Arc::new(initiator)),
            description: Some(description),
            agreed: Vec::new(),
        }
    }

    /// The version of TLS and its cipher, if the channel is protected.
    pub(crate) fn description(&self) -> Option<&str> {
        self.description.as_deref()
    }

    /// Whether a client that goes now has aborted a handshake: it sent `AUTH GSSAPI`, and was not refused since.
    pub(crate) fn is_in_handshake(&self, was_refused: bool) -> bool {
        match &self.protection {
            Protection::Exchange(Some(_)) => true,
            Protection::Exchange(None) => !was_refused,
            Protection::None | Protection::Gsi(_) | Protection::Tls => false,
        }
    }

    /// Whether commands come in clear, and no `AUTH` was accepted.
    pub(crate) fn is_none(&self) -> bool {
        matches!(self.protection, Protection::None)
    }

    pub(crate) fn is_protected(&self) -> bool {
        matches!(self.protection, Protection::Gsi(_) | Protection::Tls)
    }

    pub(crate) fn is_tls(&self) -> bool {
        matches!(self.protection, Protection::Tls)
    }

    /// The identity that the client proved with GSI.
    pub(crate) fn initiator(&self) -> Option<&Arc<Initiator>> {
        match &self.protection {
            Protection::Gsi(initiator) => Some(initiator),
            Protection::None | Protection::Exchange(_) | Protection::Tls => None,
        }
    }

    /// The same in one-line form.
    pub(crate) fn identity(&self) -> Option<&str> {
        self.initiator().map(|initiator| &*initiator.identity)
    }

    /// Carries out `PBSZ` or `PROT` before login.
    pub(crate) fn agree(
        &mut self,
        negotiated: &mut Negotiated,
        setting: ProtectionSetting,
    ) -> Reply {
        /// Clients send each of them once. No more are handed to the process that serves the client.
        const MOST: usize = 16;

        if !self.is_protected() {
            return self.refuse();
        }
        let settled = negotiated.settle(Setting::Protection(setting));
        if self.agreed.len() < MOST {
            self.agreed.push(Command::from(setting).to_string());
        }
        settled.reply
    }

    /// The lines of `PBSZ` and `PROT` that were carried out before login.
    pub(crate) fn take_agreed(&mut self) -> Vec<String> {
        std::mem::take(&mut self.agreed)
    }

    pub(crate) fn forget_agreed(&mut self) {
        self.agreed.clear();
    }

    /// `CCC`: on a clear channel a command may come from an attacker on the path (RFC 2228 3).
    pub(crate) fn refuse_clear_channel(&self) -> Reply {
        if self.is_protected() {
            return Reply::new(533, "The control channel stays protected.");
        }
        self.refuse()
    }

    /// A command about protection that makes no sense now.
    pub(crate) fn refuse(&self) -> Reply {
        if self.is_protected() {
            Reply::new(503, "Commands are protected already.")
        } else {
            Reply::new(503, "There is no security context: send AUTH first.")
        }
    }
}
