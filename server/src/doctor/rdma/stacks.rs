//! The driver stacks of trials.

use std::time::Duration;

use gridhaul_protocol::stack::{DriverSpec, StackSpec};
use gridhaul_stack::{Flow, Registry, SocketOptions, Stack};

use super::messages::Trial;
use crate::config::{Config, PortRange};
use crate::drivers::{registry, with_ports};
use crate::machine;

/// The driver that is measured.
const DRIVER: &str = "rdma";

/// `rdma` with the options of the server's own stack, such as its device.
pub(super) struct Stacks {
    registry: Registry,
    base: DriverSpec,
    ports: Option<PortRange>,
}

impl Stacks {
    /// `None` if the program was built without the driver. Bounds the memory of its rings as for the server.
    pub(super) fn of(config: &Config) -> Option<Self> {
        let stacks = Self::with(registry(), &config.data.stack, config.data.port_range);
        let driver = stacks.registry.driver(DRIVER)?;
        driver.limit_memory(machine::ring_bytes(&config.limits));
        Some(stacks)
    }

    fn with(registry: Registry, stack: &str, ports: Option<PortRange>) -> Self {
        let configured = StackSpec::parse(stack).ok();
        let transport = configured.and_then(|stack| stack.drivers.into_iter().next());
        let base = transport.filter(|driver| driver.name == DRIVER);
        Self {
            registry,
            base: base.unwrap_or_else(|| DriverSpec::plain(DRIVER)),
            ports,
        }
    }

    /// The stack of a trial, for the end that listens, or for the one that connects.
    ///
    /// # Errors
    ///
    /// When the options do not fit this machine.
    pub(super) fn build(&self, trial: &Trial, listens: bool) -> Result<Stack, String> {
        let mut driver = self.base.clone();
        driver
            .options
            .retain(|(name, _)| name != "message" && name != "qps");
        let mut set = |name: &str, value: u64| {
            driver.options.push((name.to_owned(), value.to_string()));
        };
        set("message", trial.message_bytes);
        if trial.queue_pairs > 0 {
            set("qps", trial.queue_pairs.into());
        }
        let stack = StackSpec {
            drivers: vec![driver],
        };
        let stack = match listens {
            true => with_ports(&self.registry, stack, self.ports),
            false => stack,
        };
        let built = self.registry.build(&stack);
        built.map_err(|error| error.to_string())
    }

    /// What one end asks of its sockets.
    pub(super) fn sockets(is_sending: bool) -> SocketOptions {
        SocketOptions {
            flow: match is_sending {
                true => Flow::Out,
                false => Flow::In,
            },
            channels: 1,
            ..SocketOptions::default()
        }
    }

    /// The stack as a user types it, with these options in the place of its own.
    pub(super) fn typed(&self, options: &[(&str, String)]) -> String {
        let is_replaced = |name: &String| options.iter().any(|(other, _)| other == name);
        let own = self.base.options.iter();
        let own = own.filter(|(name, _)| !is_replaced(name));
        let own = own.map(|(name, value)| (name.as_str(), value.clone()));
        let all = own.chain(options.iter().cloned());
        let all: Vec<_> = all.map(|(name, value)| format!("{name}={value}")).collect();
        match all.is_empty() {
            true => DRIVER.to_owned(),
            false => format!("{DRIVER}:{}", all.join(";")),
        }
    }
}

/// How long a channel may take to open and to finish beside its trial: RDMA tests the path first, which may lose packets.
pub(super) const ROOM: Duration = Duration::from_secs(30);

#[cfg(test)]
impl Stacks {
    /// Without a configuration.
    pub(super) fn of_defaults() -> Self {
        Self::with(registry(), "tcp", None)
    }
}

#[cfg(all(test, feature = "rdma"))]
mod tests {
    use super::super::messages::Direction;
    use super::*;

    #[test]
    fn options_of_the_server_stay() {
        let stacks = Stacks::with(registry(), "rdma:provider=soft;message=64K,gsi", None);
        let trial = Trial {
            direction: Direction::Put,
            message_bytes: 1 << 20,
            queue_pairs: 2,
            time: Duration::from_secs(1),
        };
        stacks.build(&trial, true).expect("a stack");
        assert_eq!(
            stacks.typed(&[("message", "1M".to_owned())]),
            "rdma:provider=soft;message=1M"
        );
        let other = Stacks::with(registry(), "tcp:cc=bbr", None);
        assert_eq!(other.typed(&[]), "rdma");
        let wrong = Stacks::with(registry(), "rdma:device=no/such", None);
        assert_eq!(wrong.typed(&[]), "rdma:device=no/such");
    }
}
