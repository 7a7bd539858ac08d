//! Examines adapters for an administrator, as far as sysfs and procfs tell: the link, the place in the machine, the settings, and the
//! counters.
//!
//! ```text
//!   network        the link, the MTU, the addresses
//!   flow           congestion control and flow control of Ethernet (dcb: over netlink)
//!   counting       losses, marks of congestion, errors of the link
//!   bus            the slot, and the order of writes
//!   interrupts     the NUMA node, and the processors that handle interrupts
//!   pages          huge pages for rings
//! ```
//!
//! A value that cannot be read is unknown, and not a problem: drivers show different files, some only to root.

mod bus;
mod counting;
mod dcb;
mod flow;
mod interrupts;
mod network;
mod pages;
#[cfg(test)]
mod tests;

use std::fmt::Display;
use std::io;
use std::path::PathBuf;

use gridhaul_stack::{Finding, Standing};

use super::ports::{Port, Protocol, ports};
use super::sysfs;

/// Examines every port, and the machine if it has any.
pub(crate) fn examine() -> Vec<Finding> {
    let machine = Machine {
        sys: sysfs::root(),
        proc: sysfs::proc(),
        paused: dcb::paused,
    };
    machine.examine()
}

/// Where the kernel describes the machine.
struct Machine {
    /// `/sys`
    sys: PathBuf,
    /// `/proc`
    proc: PathBuf,
    /// The priorities of Ethernet that a network interface pauses by itself (PFC); `None` if its driver does not tell.
    paused: fn(&str) -> io::Result<Option<Vec<u8>>>,
}

/// A port with the network interfaces that have its GIDs.
struct Adapter<'a> {
    machine: &'a Machine,
    port: &'a Port,
    interfaces: Vec<String>,
}

/// What was found about one topic.
#[derive(Debug)]
struct Line {
    topic: &'static str,
    standing: Standing,
    text: String,
}

impl Line {
    fn good(topic: &'static str, text: impl Display) -> Self {
        Self::new(topic, Standing::Good, text)
    }

    /// The text ends with what helps.
    fn bad(topic: &'static str, text: impl Display) -> Self {
        Self::new(topic, Standing::Bad, text)
    }

    /// The text ends with what would tell.
    fn unknown(topic: &'static str, text: impl Display) -> Self {
        Self::new(topic, Standing::Unknown, text)
    }

    fn new(topic: &'static str, standing: Standing, text: impl Display) -> Self {
        Self {
            topic,
            standing,
            text: text.to_string(),
        }
    }

    /// As a finding about a port, or about the machine.
    fn finding(self, subject: impl Display) -> Finding {
        Finding {
            about: "rdma",
            standing: self.standing,
            text: format!("{subject}: {}: {}", self.topic, self.text),
        }
    }
}

impl Machine {
    fn examine(&self) -> Vec<Finding> {
        // `inspect` says why there are none.
        let ports = ports(&self.sys.join("class/infiniband")).unwrap_or_default();
        let of_ports = ports.iter().flat_map(|port| {
            let lines = self.adapter(port).examine(&ports).into_iter();
            lines.map(move |line| line.finding(format_args!("{}/{}", port.device, port.number)))
        });
        let mut findings: Vec<_> = of_ports.collect();
        if !ports.is_empty() {
            findings.push(pages::huge_pages(&self.sys).finding("machine"));
        }
        findings
    }

    fn adapter<'a>(&'a self, port: &'a Port) -> Adapter<'a> {
        let mut adapter = Adapter {
            machine: self,
            port,
            interfaces: Vec::new(),
        };
        adapter.interfaces = adapter.find_interfaces();
        adapter
    }
}

impl Adapter<'_> {
    /// `all` are the ports of the machine, which may share a slot.
    fn examine(&self, all: &[Port]) -> Vec<Line> {
        let mut lines = vec![self.link()];
        lines.extend(self.mtu());
        lines.push(self.addresses());
        lines.extend(self.flow());
        lines.extend(self.counting());
        if self.hardware().exists() {
            lines.extend([
                self.slot(all),
                self.ordering(),
                self.node(),
                self.interrupts(),
            ]);
        } else {
            let text = "it is made by software, so it has no slot and no interrupts";
            lines.push(Line::good("hardware", text));
        }
        // Files of a removed device cannot be read, and another device may have its name.
        if self.path().exists() {
            lines
        } else {
            let text = "it has disappeared while it was examined: run this again";
            vec![Line::unknown("device", text)]
        }
    }

    /// The directory of the port.
    fn path(&self) -> PathBuf {
        let number = self.port.number.to_string();
        self.device().join("ports").join(number)
    }

    /// The directory of the RDMA device.
    fn device(&self) -> PathBuf {
        let class = self.machine.sys.join("class/infiniband");
        class.join(&self.port.device)
    }

    /// The directory of the hardware beneath it; missing for devices in software.
    fn hardware(&self) -> PathBuf {
        self.device().join("device")
    }

    /// The directory of a network interface.
    fn interface(&self, name: &str) -> PathBuf {
        self.machine.sys.join("class/net").join(name)
    }

    fn is_roce(&self) -> bool {
        self.port.protocol == Protocol::Roce
    }
}
