//! A credential for data channels in the place of that of the user (`DCSC`).

use std::sync::Arc;

use gridhaul_protocol::command::{Base64, Command, DataChannelContext};
use gridhaul_protocol::feature::Feature;
use gridhaul_security::credential::{Credential, credential_pem};
use gridhaul_security::key::KeyError;

use super::Session;
use crate::control::ControlError;
use crate::login::Login;

/// A credential for data channels in the place of that of the user. Servers get it with its key.
#[derive(Debug, Clone)]
pub struct DataCredential {
    credential: Arc<Credential>,
    command: Command,
    is_temporary: bool,
}

impl DataCredential {
    /// `is_temporary`: it is self-signed and was made for these data channels, so that a server may also get it in the clear.
    ///
    /// # Errors
    ///
    /// When the key cannot be exported.
    pub fn new(credential: Credential, is_temporary: bool) -> Result<Self, KeyError> {
        let mut chain = credential.chain().to_vec();
        if is_temporary {
            // Observed from globus-url-copy 10.12: the server trusts the certificates behind the first one.
            chain.push(credential.leaf().clone());
        }
        let pem = credential_pem(credential.key(), &chain)?;
        let encoded = Base64::new(Base64::encode(&pem));
        let encoded = encoded.ok_or_else(|| KeyError::Malformed("it is empty".to_owned()))?;
        Ok(Self {
            credential: Arc::new(credential),
            command: Command::Dcsc(DataChannelContext::Credential(encoded)),
            is_temporary,
        })
    }

    pub(crate) fn credential(&self) -> &Arc<Credential> {
        &self.credential
    }
}

impl Session {
    /// Has data channels use this credential.
    ///
    /// # Errors
    ///
    /// When the server does not support that, the key would go in the clear, or the session has ended.
    pub(crate) async fn use_for_data(
        &mut self,
        own: &Arc<DataCredential>,
    ) -> Result<(), ControlError> {
        match self.login {
            Login::Tls { .. } => return Err(ControlError::NoMutual),
            Login::Clear(_) if !own.is_temporary => return Err(ControlError::ClearKey),
            // The list of features of an anonymous session may lack it: the reply tells.
            Login::Certificate { .. } if !self.features.contains(&Feature::DataChannelContext) => {
                return Err(ControlError::NoDataCredential);
            }
            _ => {}
        }
        self.control.must(&own.command).await?;
        // As globus-url-copy 10.12. The list of what the server was told has no credential.
        self.authenticate_data().await?;
        self.data_credential = Some(Arc::clone(own));
        Ok(())
    }

    /// The credential of data channels in the place of that of the user.
    pub(crate) fn data_credential(&self) -> Option<&DataCredential> {
        self.data_credential.as_deref()
    }

    /// Whether data channels can be authenticated by both ends.
    pub(crate) fn has_mutual_data(&self) -> bool {
        self.login.identity().is_some() || self.data_credential.is_some()
    }
}
