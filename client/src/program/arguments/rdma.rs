//! `gridhaul rput` and `gridhaul rget`: copies over RDMA by the commands of RFTP.

use clap::{Arg, Args};
use gridhaul_protocol::stack::StackSpec;

use super::CopyArguments;
use crate::location::Location;

/// The name of the driver.
pub(in crate::program) const RDMA_DRIVER: &str = "rdma";

#[derive(Debug, Clone, Args)]
pub(in crate::program) struct RdmaArguments {
    #[command(flatten)]
    pub(super) copy: CopyArguments,
    /// Copy over TCP where the server does not offer RDMA to this user, with a line on standard error
    #[arg(long)]
    or_tcp: bool,
}

/// The help of the option `stack`, which is that of copies otherwise.
pub(super) fn stack_help(arg: Arg) -> Arg {
    arg.help("A stack over rdma with options, like rdma:rate=5g, for both ends [default: rdma]")
}

/// Which way the files of a command go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::program) enum RdmaWay {
    /// `rput`.
    Put,
    /// `rget`.
    Get,
}

/// What a copy over RDMA adds to the options of copies.
#[derive(Debug, Clone)]
pub(in crate::program) struct OverRdma {
    way: RdmaWay,
    /// A stack over the driver `rdma`, at both ends.
    pub(in crate::program) stack: StackSpec,
    /// Servers that do not offer RDMA are used over TCP.
    pub(in crate::program) or_tcp: bool,
}

impl RdmaArguments {
    /// The same for `gridhaul copy`. Listings, and files that go over TCP, use the default stacks.
    ///
    /// # Errors
    ///
    /// When the stack is one over another driver.
    pub(in crate::program) fn as_copy(&self, way: RdmaWay) -> Result<CopyArguments, String> {
        let mut copy = self.copy.clone();
        let given = copy.data.channels.stack.take();
        let stack = given.unwrap_or_else(|| StackSpec::only(RDMA_DRIVER));
        if stack
            .drivers
            .first()
            .is_none_or(|driver| driver.name != RDMA_DRIVER)
        {
            return Err(format!(
                "{} copies over rdma, and --stack or a configuration file says {stack}: give --stack {RDMA_DRIVER}, or use gridhaul copy",
                way.name()
            ));
        }
        copy.rdma = Some(OverRdma {
            way,
            stack,
            or_tcp: self.or_tcp,
        });
        Ok(copy)
    }
}

impl OverRdma {
    /// Checks that files go this way.
    ///
    /// # Errors
    ///
    /// When they do not.
    pub(in crate::program) fn check(
        &self,
        sources: &[Location],
        destination: &Location,
    ) -> Result<(), String> {
        let is_remote = |location: &Location| matches!(location, Location::Remote(_));
        let is_put = !sources.iter().any(is_remote) && is_remote(destination);
        let is_get = sources.iter().all(is_remote) && !is_remote(destination);
        match self.way {
            RdmaWay::Put if !is_put => Err(
                "rput copies files of this machine to a server: the last word is a URL, and no other; between servers use gridhaul copy --stack rdma"
                    .to_owned(),
            ),
            RdmaWay::Get if !is_get => Err(
                "rget copies files of servers to this machine: all words but the last are URLs; between servers use gridhaul copy --stack rdma"
                    .to_owned(),
            ),
            _ => Ok(()),
        }
    }

    /// The stack that the server is told: none for the driver without options, which the commands choose themselves.
    pub(in crate::program) fn told(&self) -> Option<StackSpec> {
        let is_plain = matches!(self.stack.drivers.as_slice(), [only] if only.options.is_empty());
        (!is_plain).then(|| self.stack.clone())
    }
}

impl RdmaWay {
    fn name(self) -> &'static str {
        match self {
            Self::Put => "rput",
            Self::Get => "rget",
        }
    }
}
