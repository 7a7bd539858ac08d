//! The files that a configuration names, read, and its driver stack, built once to check it. A reload replaces all of it or
//! nothing.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use gridhaul_protocol::stack::StackSpec;
use gridhaul_stack::Registry;

use crate::config::Config;
use crate::drivers::{self, DriversError};
use crate::login::{Authenticator, AuthenticatorError, LoginBackend, Logins};
use crate::security::{Opener, Security, SecurityError};

/// A configuration that cannot take effect.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// A certificate or a trust directory is wrong.
    #[error(transparent)]
    Security(#[from] SecurityError),
    /// A file that decides logins is wrong.
    #[error(transparent)]
    Authenticator(#[from] AuthenticatorError),
    /// The login process has not read the configuration again.
    #[error(
        "logins are still decided by the users, passwords, maps and rules from before, because what decides them cannot \
         be read again: {0}"
    )]
    Login(String),
    /// The stack of data channels or its options are wrong.
    #[error(transparent)]
    Drivers(#[from] DriversError),
}

/// The part of a server that a reload replaces. A session keeps the settings of its beginning.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) config: Arc<Config>,
    /// Decides who may log in.
    pub(crate) logins: Arc<dyn Logins>,
    /// The same object, if this process decides.
    authenticator: Option<Arc<Authenticator>>,
    /// `None` without a certificate: then there is neither GSI nor TLS.
    pub(crate) security: Option<Arc<Security>>,
    /// The stack of data channels, unless a client names another.
    pub(crate) stack: Arc<StackSpec>,
    registry: Registry,
    /// What the files that decide logins have, by the process that has read them again; empty before the first reload.
    pub(crate) files_in_force: Arc<[String]>,
    /// Files with which a server would not start, likewise.
    pub(crate) unusable: Arc<[String]>,
}

impl Settings {
    /// Reads the files that a configuration names. `previous` are the settings of the running server.
    pub(crate) fn load(
        config: Config,
        registry: &Registry,
        backend: &LoginBackend,
        previous: Option<&Self>,
    ) -> Result<Self, SettingsError> {
        let has_data_channels = !matches!(backend, LoginBackend::Front(_));
        let security = Security::load(
            &config.security,
            has_data_channels,
            previous.and_then(|previous| previous.security.as_deref()),
        )?;
        let stack = drivers::configured_stack(&config, registry)?;
        drivers::check_client_options(&config, registry)?;
        // The last step, because the login process keeps the configuration that it has read.
        let (mut files, mut unusable) = (Vec::new(), Vec::new());
        let (logins, authenticator): (Arc<dyn Logins>, _) = match backend {
            LoginBackend::InProcess => {
                let previous = previous.and_then(|previous| previous.authenticator.as_deref());
                let authenticator =
                    Arc::new(Authenticator::load(&config, &Opener::default(), previous)?);
                files = authenticator.files_in_force(&config);
                (Arc::new(Arc::clone(&authenticator)), Some(authenticator))
            }
            LoginBackend::Serving(client) => {
                if previous.is_some() {
                    (files, unusable) = client.reload().map_err(SettingsError::Login)?;
                }
                (Arc::new(Arc::clone(client)), None)
            }
            LoginBackend::Front(client) => (Arc::new(Arc::clone(client)), None),
        };
        Ok(Self {
            config: Arc::new(config),
            logins,
            authenticator,
            security,
            stack: Arc::new(stack),
            registry: registry.clone(),
            files_in_force: files.into(),
            unusable: unusable.into(),
        })
    }

    /// Starts threads. Must not be called before the process may have some.
    pub(crate) fn start(&self) -> io::Result<()> {
        if let Some(security) = &self.security {
            security.start();
        }
        match &self.authenticator {
            Some(authenticator) => authenticator.start(),
            None => Ok(()),
        }
    }

    /// A client's stack with the configured port range.
    pub(crate) fn with_ports(&self, stack: StackSpec) -> StackSpec {
        drivers::with_ports(&self.registry, stack, self.config.data.port_range)
    }

    /// The address of the option `advertise` in the server's own stack, which clients are to connect to.
    pub(crate) fn advertised_by_stack(&self) -> Option<IpAddr> {
        const ADVERTISE: &str = "advertise";
        let transport = self.stack.drivers.first();
        let transport =
            transport.filter(|driver| self.registry.has_option(&driver.name, ADVERTISE))?;
        let mut options = transport.options.iter();
        let (_, address) = options.find(|(name, _)| name == ADVERTISE)?;
        address.parse().ok()
    }
}
