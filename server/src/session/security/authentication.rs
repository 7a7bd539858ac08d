//! `AUTH` and `ADAT`.

use gridhaul_protocol::command::{Base64, Text};
use gridhaul_protocol::negotiated::{Mechanism, ProtectionSetting};
use gridhaul_protocol::reply::Reply;

use super::attempt::{refuse_client, unknown_mechanism};
use super::state::{ControlSecurity, Protection};
use crate::session::call::LoginCall;
use crate::session::end::End;

/// A command about the protection of channels.
#[derive(Debug)]
pub(crate) enum SecurityCommand {
    /// `AUTH`.
    Auth(Text),
    /// `ADAT`.
    Adat(Base64),
    /// `ENC`, `MIC` or `CONF` where no security context can open it.
    Wrapped,
    /// `CCC`.
    ClearChannel,
    /// `PBSZ` or `PROT`.
    DataProtection(ProtectionSetting),
}

impl ControlSecurity {
    /// `AUTH`. All replies are sent here, because the channel changes after one of them. Returns the mechanism that
    /// protects the channel from now on, if the command was enough for that.
    pub(crate) async fn authenticate(
        &mut self,
        call: &mut LoginCall<'_>,
        mechanism: &Text,
        is_logged_in: bool,
    ) -> Result<Option<Mechanism>, End> {
        let wanted = mechanism.as_str().to_ascii_uppercase();
        let reply = if self.is_protected() || is_logged_in {
            Reply::new(503, "AUTH comes once, and before USER and PASS.")
        } else {
            match (wanted.as_str(), call.context.settings.security.clone()) {
                ("GSSAPI", Some(security)) if security.offers_gsi() => {
                    self.protection = Protection::Exchange(None);
                    Reply::new(334, "Using authentication type; ADAT must follow.")
                }
                // RFC 4217 4: TLS-C is another name.
                ("TLS" | "TLS-C", Some(security)) => {
                    return self.start_tls(call, &security).await;
                }
                _ => unknown_mechanism(),
            }
        };
        call.send(&reply);
        Ok(None)
    }

    /// `ADAT`. All replies are sent here, because those after the last one are protected. Returns the mechanism that
    /// protects the channel from now on, when this was the last token.
    pub(crate) async fn take_token(
        &mut self,
        call: &mut LoginCall<'_>,
        token: &Base64,
        is_logged_in: bool,
    ) -> Result<Option<Mechanism>, End> {
        let security = call.context.settings.security.clone();
        let reply = match (is_logged_in, &self.protection, security) {
            (false, Protection::Exchange(_), Some(security)) => {
                match self.advance(call, &security, token).await {
                    Ok(Some(reply)) => reply,
                    Ok(None) => return Ok(Some(Mechanism::Gsi)),
                    Err(reason) => refuse_client(call, &reason),
                }
            }
            _ => Reply::new(
                503,
                "ADAT comes after AUTH GSSAPI, and before USER and PASS.",
            ),
        };
        call.send(&reply);
        call.check_failures()?;
        Ok(None)
    }
}
