//! Networks of tests (root).

use std::process::Command;

use crate::program::clean;

/// A network of its own. It is removed when the value is dropped.
pub(crate) struct Network(String);

impl Network {
    /// With a loopback interface, after these lines of the shell were run there.
    pub(crate) fn new(name: &str, lines: &[&str]) -> Self {
        let network = Self(format!("gridhaul-{name}-{}", std::process::id()));
        ip(&["netns", "add", &network.0]);
        network.within("ip link set lo up");
        for line in lines {
            network.within(line);
        }
        network
    }

    fn within(&self, line: &str) {
        ip(&["netns", "exec", &self.0, "sh", "-c", line]);
    }

    /// The same command in this network.
    pub(crate) fn command(&self, command: &Command) -> Command {
        let mut within = Command::new("ip");
        within.args(["netns", "exec", &self.0]);
        within.arg(command.get_program()).args(command.get_args());
        clean(within)
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        ip(&["netns", "del", &self.0]);
    }
}

fn ip(arguments: &[&str]) {
    let done = Command::new("ip").args(arguments).output();
    let done = done.expect("iproute2 is installed");
    let errors = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{arguments:?}: {errors}");
}
