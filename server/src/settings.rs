//! What a configuration comes to: the files that it names, read, and the driver stack, built once to see that it can be.
//!
//! A server replaces all of it when it reloads, or nothing.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use gridhaul_gsi::Gsi;
use gridhaul_protocol::stack::StackSpec;
use gridhaul_stack::Registry;
use gridhaul_tcp::Tcp;

use crate::config::{Config, PortRange};
use crate::login::{Decides, Desk, Logins};
use crate::security::{Opener, Security};
use crate::start_error::StartError;

/// What a reload replaces. A session keeps what was there when it began.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) config: Arc<Config>,
    /// Who may log in.
    pub(crate) logins: Arc<dyn Logins>,
    /// The same, if that is decided in this process.
    desk: Option<Arc<Desk>>,
    /// Without it there is neither GSI nor TLS.
    pub(crate) security: Option<Arc<Security>>,
    /// The stack of data channels unless a client asks for another.
    pub(crate) stack: Arc<StackSpec>,
}

impl Settings {
    /// Reads the files that a configuration names. `previous` is what a running server has.
    pub(crate) fn load(
        config: Config,
        registry: &Registry,
        decides: &Decides,
        previous: Option<&Self>,
    ) -> Result<Self, StartError> {
        let has_data_channels = !matches!(decides, Decides::Front(_));
        let security = Security::load(
            &config.security,
            has_data_channels,
            previous.and_then(|previous| previous.security.as_deref()),
        )?;
        let stack = stack(&config, registry)?;
        check_client_options(&config, registry)?;
        // The last step, since the login process keeps what it has read.
        let (logins, desk): (Arc<dyn Logins>, _) = match decides {
            Decides::Here => {
                let previous = previous.and_then(|previous| previous.desk.as_deref());
                let desk = Arc::new(Desk::load(&config, &Opener::default(), previous)?);
                (Arc::new(Arc::clone(&desk)), Some(desk))
            }
            Decides::Apart(client) => {
                if previous.is_some() {
                    client.reload().map_err(StartError::Login)?;
                }
                (Arc::new(Arc::clone(client)), None)
            }
            Decides::Front(client) => (Arc::new(Arc::clone(client)), None),
        };
        Ok(Self {
            config: Arc::new(config),
            logins,
            desk,
            security,
            stack: Arc::new(stack),
        })
    }

    /// Takes up work that needs threads. Must not be called before the process may have some.
    pub(crate) fn start(&self) -> io::Result<()> {
        if let Some(security) = &self.security {
            security.start();
        }
        match &self.desk {
            Some(desk) => desk.start(),
            None => Ok(()),
        }
    }

    /// A stack that a client asks for, with the ports that the administrator allows.
    pub(crate) fn with_ports(&self, stack: StackSpec) -> StackSpec {
        with_ports(stack, self.config.data.port_range)
    }

    /// The address that the option `advertise` of the server's own stack tells clients.
    pub(crate) fn advertised_by_stack(&self) -> Option<IpAddr> {
        const ADVERTISE: &str = "advertise";
        let transport = self.stack.drivers.first();
        let transport = transport.filter(|driver| OVER_TCP.contains(&driver.name.as_str()))?;
        let mut options = transport.options.iter();
        let (_, address) = options.find(|(name, _)| name == ADVERTISE)?;
        address.parse().ok()
    }
}

/// The stack of data channels, which has been built once to see that it can be.
pub(crate) fn stack(config: &Config, registry: &Registry) -> Result<StackSpec, StartError> {
    let text = &config.data.stack;
    let stack = StackSpec::parse(text).map_err(|error| StartError::StackText {
        stack: text.clone(),
        error,
    })?;
    let stack = with_ports(stack, config.data.port_range);
    registry.build(&stack).map_err(|error| StartError::Stack {
        stack: text.clone(),
        error,
    })?;
    Ok(stack)
}

/// What clients may set of the options of drivers, which is compared with what these drivers have.
pub(crate) fn check_client_options(config: &Config, registry: &Registry) -> Result<(), StartError> {
    let all = &config.data.client_options;
    all.iter().enumerate().try_for_each(|(index, rules)| {
        let driver = rules.driver();
        if all[..index].iter().any(|other| other.driver() == driver) {
            let driver = driver.to_owned();
            return Err(StartError::TwoRules { driver });
        }
        registry
            .check_rules(rules)
            .map_err(|error| StartError::ClientOptions {
                rules: rules.to_string(),
                error: Box::new(error),
            })
    })
}

/// The drivers that take the options of `tcp`.
const OVER_TCP: [&str; 4] = ["tcp", "splice", "auto", "rdma"];

/// `port-range` is for every stack over TCP, whatever its own options say.
fn with_ports(mut stack: StackSpec, ports: Option<PortRange>) -> StackSpec {
    const PORT: &str = "port";
    let transport = stack
        .drivers
        .first_mut()
        .filter(|driver| OVER_TCP.contains(&driver.name.as_str()));
    if let (Some(ports), Some(transport)) = (ports, transport) {
        transport.options.retain(|(name, _)| name != PORT);
        transport.options.push((PORT.to_owned(), ports.to_string()));
    }
    stack
}

/// The drivers that this program has.
pub(crate) fn drivers() -> Registry {
    let mut registry = Registry::new();
    registry.register(Tcp);
    #[cfg(feature = "splice")]
    {
        registry.register(gridhaul_splice::Splice);
        registry.register(gridhaul_splice::Auto);
    }
    #[cfg(feature = "rdma")]
    registry.register(gridhaul_rdma::Rdma);
    registry.register(Gsi::without_session());
    registry
}
