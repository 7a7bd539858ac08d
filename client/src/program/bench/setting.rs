//! What a trial is made with: options of `gridhaul copy`.

use std::fmt::Write as _;

use gridhaul_protocol::stack::{DriverSpec, StackSpec};

use super::super::arguments::RDMA_DRIVER;

/// The options that are varied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Setting {
    /// `None`: that of the server, and `auto` on this machine.
    pub(super) stack: Option<StackSpec>,
    pub(super) parallel: u8,
    /// `None`: the default of this machine.
    pub(super) block_bytes: Option<usize>,
}

/// The transports whose options are known here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Transport {
    /// `tcp`, `splice` or `auto`.
    Tcp,
    Rdma,
    /// Of other servers.
    Other,
}

impl Setting {
    pub(super) fn transport(&self) -> Transport {
        let first = self.stack.as_ref().and_then(|stack| stack.drivers.first());
        match first.map_or("auto", |driver| driver.name.as_str()) {
            "auto" | "splice" | "tcp" => Transport::Tcp,
            RDMA_DRIVER => Transport::Rdma,
            _ => Transport::Other,
        }
    }

    /// Whether the user has given one of these options of the transport.
    pub(super) fn has(&self, names: &[&str]) -> bool {
        let first = self.stack.as_ref().and_then(|stack| stack.drivers.first());
        first.is_some_and(|driver| {
            let mut options = driver.options.iter();
            options.any(|(name, _)| names.contains(&name.as_str()))
        })
    }

    /// The same with options of the transport, which has none of them yet.
    pub(super) fn with(&self, options: &[(&str, String)]) -> Self {
        let mut stack = self
            .stack
            .clone()
            .unwrap_or_else(|| StackSpec::only("auto"));
        if stack.drivers.is_empty() {
            stack.drivers.push(DriverSpec::plain("auto"));
        }
        let options = options.iter();
        let options = options.map(|(name, value)| ((*name).to_owned(), value.clone()));
        stack.drivers[0].options.extend(options);
        Self {
            stack: Some(stack),
            ..self.clone()
        }
    }

    pub(super) fn with_blocks(&self, bytes: usize) -> Self {
        Self {
            block_bytes: Some(bytes),
            ..self.clone()
        }
    }

    /// The stack and the size of blocks, for the table.
    pub(super) fn name(&self) -> String {
        let stack = self.stack.as_ref().map(StackSpec::to_string);
        let mut name = stack.unwrap_or_else(|| "default stack".to_owned());
        if let Some(bytes) = self.block_bytes {
            let _ = write!(name, ", blocks of {}", size(bytes as u64));
        }
        name
    }

    /// The words of a command line for a shell.
    pub(super) fn words(&self) -> String {
        let mut words = format!("--parallel {}", self.parallel);
        if let Some(stack) = &self.stack {
            let quoted = stack.to_string().replace('\'', r"'\''");
            let _ = write!(words, " --stack '{quoted}'");
        }
        if let Some(bytes) = self.block_bytes {
            let _ = write!(words, " --block-size {}", size(bytes as u64));
        }
        words
    }
}

/// As in options: `4M`, in powers of 1024.
pub(super) fn size(bytes: u64) -> String {
    match bytes {
        0 => "0".to_owned(),
        _ if bytes.is_multiple_of(1 << 20) => format!("{}M", bytes >> 20),
        _ if bytes.is_multiple_of(1 << 10) => format!("{}K", bytes >> 10),
        _ => bytes.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setting(stack: &str) -> Setting {
        Setting {
            stack: Some(StackSpec::parse(stack).expect("a stack")),
            parallel: 4,
            block_bytes: None,
        }
    }

    #[test]
    fn options_are_those_of_the_transport() {
        let default = Setting {
            stack: None,
            ..setting("tcp")
        };
        assert_eq!(default.transport(), Transport::Tcp);
        let buffer = ("buffer", size(16 << 20));
        let words = default.with(std::slice::from_ref(&buffer)).words();
        assert_eq!(words, "--parallel 4 --stack 'auto:buffer=16M'");
        let given = setting("rdma:rate=5g,gsi");
        assert_eq!(given.transport(), Transport::Rdma);
        assert!(given.has(&["rate"]) && !given.has(&["slab"]));
        let ring = [("slab", size(8 << 20)), ("slabs", "4".to_owned())];
        let words = given.with(&ring).with_blocks(256 << 10).words();
        let stack = "rdma:rate=5g;slab=8M;slabs=4,gsi";
        assert_eq!(
            words,
            format!("--parallel 4 --stack '{stack}' --block-size 256K")
        );
        assert_eq!(setting("udt").transport(), Transport::Other);
    }

    #[test]
    fn a_shell_reads_the_stack_as_it_was_given() {
        let words = setting("tcp:cc=it's").words();
        assert_eq!(words, r"--parallel 4 --stack 'tcp:cc=it'\''s'");
    }

    #[test]
    fn sizes_have_the_largest_unit_that_fits() {
        for (bytes, text) in [
            (1000, "1000"),
            (3 << 10, "3K"),
            (5 << 20, "5M"),
            (1 << 30, "1024M"),
        ] {
            assert_eq!(size(bytes), text);
        }
    }
}
