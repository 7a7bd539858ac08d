//! The drivers of data channels that this program has, and the configured stack of them.

use gridhaul_gsi::Gsi;
use gridhaul_protocol::stack::{StackSpec, StackSyntaxError};
use gridhaul_stack::{Registry, StackError};
use gridhaul_tcp::Tcp;

use crate::config::{Config, PortRange};

/// Drivers that are configured and cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DriversError {
    /// The text is not a driver stack.
    #[error("stack '{stack}': {error}")]
    StackText {
        /// The configured text.
        stack: String,
        /// The syntax error.
        error: StackSyntaxError,
    },
    /// The driver stack cannot be built.
    #[error("stack '{stack}': {error}")]
    Stack {
        /// The configured text.
        stack: String,
        /// The reason.
        error: StackError,
    },
    /// A rule for the options that clients may set does not fit its driver.
    #[error("client-options '{rules}': {error}")]
    ClientOptions {
        /// The configured rules.
        rules: String,
        /// The reason.
        error: Box<StackError>,
    },
    /// Each option must be allowed by all rules for its driver, so two rules would refuse each other's options.
    #[error("client-options: {driver} has two rules; write them as one, such as {driver}:A;B<=1M")]
    TwoRules {
        /// The driver.
        driver: String,
    },
}

/// The configured stack of data channels. It was built once as a check.
pub(crate) fn configured_stack(
    config: &Config,
    registry: &Registry,
) -> Result<StackSpec, DriversError> {
    let text = &config.data.stack;
    let stack = StackSpec::parse(text).map_err(|error| DriversError::StackText {
        stack: text.clone(),
        error,
    })?;
    let stack = with_ports(registry, stack, config.data.port_range);
    registry
        .build(&stack)
        .map_err(|error| DriversError::Stack {
            stack: text.clone(),
            error,
        })?;
    Ok(stack)
}

/// Compares `client-options` with the options of the drivers.
pub(crate) fn check_client_options(
    config: &Config,
    registry: &Registry,
) -> Result<(), DriversError> {
    match client_options_errors(config, registry).into_iter().next() {
        Some(error) => Err(error),
        None => Ok(()),
    }
}

/// All errors in `client-options`.
pub(crate) fn client_options_errors(config: &Config, registry: &Registry) -> Vec<DriversError> {
    let all = &config.data.client_options;
    let errors = all.iter().enumerate().filter_map(|(index, rules)| {
        let driver = rules.driver();
        if all[..index].iter().any(|other| other.driver() == driver) {
            let driver = driver.to_owned();
            return Some(DriversError::TwoRules { driver });
        }
        let error = registry.check_rules(rules).err()?;
        Some(DriversError::ClientOptions {
            rules: rules.to_string(),
            error: Box::new(error),
        })
    });
    errors.collect()
}

/// `port-range` is for every stack whose transport has ports: it replaces the stack's own option.
pub(crate) fn with_ports(
    registry: &Registry,
    mut stack: StackSpec,
    ports: Option<PortRange>,
) -> StackSpec {
    const PORT: &str = "port";
    let transport = stack.drivers.first_mut();
    let transport = transport.filter(|driver| registry.has_option(&driver.name, PORT));
    if let (Some(ports), Some(transport)) = (ports, transport) {
        transport.options.retain(|(name, _)| name != PORT);
        transport.options.push((PORT.to_owned(), ports.to_string()));
    }
    stack
}

/// The memory of RDMA rings in use, and its limit, in bytes.
#[cfg(feature = "rdma")]
pub(crate) fn ring_memory() -> (u64, u64) {
    let load = gridhaul_rdma::memory_load();
    (load.used_bytes, load.limit_bytes)
}

/// Without RDMA there are no rings.
#[cfg(not(feature = "rdma"))]
pub(crate) fn ring_memory() -> (u64, u64) {
    (0, 0)
}

/// The drivers that are compiled in.
pub(crate) fn registry() -> Registry {
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
