//! The slot of an adapter: whether it carries the rate of its ports, and the order of writes in it.

use std::fs;

use super::super::ports::Port;
use super::super::sysfs;
use super::{Adapter, Line};

/// The part of the bytes in a slot that are data: packets of 256 bytes, the usual size, have headers of 20 to 28 bytes.
const DATA: f64 = 0.9;

/// A link of PCI Express.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Lanes {
    /// Gigatransfers per second.
    speed: f64,
    count: u32,
}

impl Lanes {
    /// As sysfs writes it: `16.0 GT/s PCIe`, and a number. A virtual function has `Unknown`, and 0 or 63.
    fn parse(speed: &str, count: &str) -> Option<Self> {
        let speed = speed.split_once(" GT/s")?.0.parse().ok()?;
        let count = count.parse().ok()?;
        let is_sane = (1.0..1000.0).contains(&speed) && (1..=32).contains(&count);
        is_sane.then_some(Self { speed, count })
    }

    /// Gigabits of data per second (PCI Express base specification 6.0: 8b/10b up to 5 GT/s, 128b/130b up to 32 GT/s, and 236 of 256
    /// bytes above).
    fn gigabits(self) -> f64 {
        let coded = match self.speed {
            ..=5.0 => 8.0 / 10.0,
            ..=32.0 => 128.0 / 130.0,
            _ => 236.0 / 256.0,
        };
        self.speed * f64::from(self.count) * coded * DATA
    }
}

impl Adapter<'_> {
    fn lanes(&self, which: &str) -> Option<Lanes> {
        let read = |what: &str| sysfs::text(&self.hardware().join(format!("{which}_link_{what}")));
        Lanes::parse(&read("speed")?, &read("width")?)
    }

    /// Compares the slot with the rate of the active ports in it.
    pub(super) fn slot(&self, all: &[Port]) -> Line {
        const TOPIC: &str = "slot";

        let Some(lanes) = self.lanes("current") else {
            let text = "the kernel does not tell its speed, as for a virtual function: lspci -vv on the host";
            return Line::unknown(TOPIC, text);
        };
        let carried = lanes.gigabits();
        let text = format!(
            "{} GT/s with {} lanes, which carry {carried:.0} Gb/s of data each way",
            lanes.speed, lanes.count
        );
        let needed: f64 = self.sharing(all).filter_map(Port::gigabits).sum();
        if carried < needed {
            return Line::bad(
                TOPIC,
                format!(
                    "{text}, less than the {needed:.0} Gb/s of its ports: move it to a slot with more lanes or a higher speed"
                ),
            );
        }
        match self.lanes("max") {
            Some(most) if most.gigabits() > carried => Line::good(
                TOPIC,
                format!(
                    "{text}; it could have {} GT/s with {} lanes in another slot",
                    most.speed, most.count
                ),
            ),
            _ => Line::good(TOPIC, text),
        }
    }

    /// The active ports in the same slot: functions of one adapter have the same address but for the last digit.
    fn sharing<'a>(&self, all: &'a [Port]) -> impl Iterator<Item = &'a Port> {
        let slot = |device: &str| {
            let class = self.machine.sys.join("class/infiniband");
            let path = fs::canonicalize(class.join(device).join("device")).ok()?;
            let address = path.file_name()?.to_string_lossy().into_owned();
            Some(match address.rsplit_once('.') {
                Some((slot, _)) => slot.to_owned(),
                None => address,
            })
        };
        let own = slot(&self.port.device);
        all.iter().filter(move |port| {
            let shares = own.is_some() && slot(&port.device) == own;
            let is_here = port.device == self.port.device || shares;
            port.is_active() && is_here
        })
    }

    /// Rings are registered for relaxed ordering, which the slot must allow.
    pub(super) fn ordering(&self) -> Line {
        const TOPIC: &str = "relaxed ordering";
        /// The size of the configuration space of PCI.
        const SPACE: u64 = 256;
        /// What users other than root may read.
        const HEAD: usize = 64;

        let space = sysfs::bytes(&self.hardware().join("config"), SPACE).unwrap_or_default();
        if space.len() <= HEAD {
            let text = "only root may read whether the slot allows it: run this as root, or lspci -vv (RlxdOrd)";
            return Line::unknown(TOPIC, text);
        }
        match allows_relaxed_ordering(&space) {
            None => Line::unknown(TOPIC, "it has no capability of PCI Express"),
            Some(true) => Line::good(TOPIC, "the slot allows it, and rings ask for it"),
            Some(false) => Line::bad(
                TOPIC,
                "the slot does not allow it, and with some processors (AMD EPYC) fast adapters then do not reach their rate: allow it in \
                 the setup of the firmware, or with setpci (CAP_EXP+8.w=10:10)",
            ),
        }
    }
}

/// Looks for the capability of PCI Express in a configuration space (PCI local bus specification 3.0, 6.7; PCI Express base
/// specification, 7.5.3.4: bit 4 of the device control register). `None` if there is none.
fn allows_relaxed_ordering(space: &[u8]) -> Option<bool> {
    const FIRST: usize = 0x34;
    const EXPRESS: u8 = 0x10;
    const CONTROL: usize = 8;
    const RELAXED: u8 = 1 << 4;
    /// Each takes four bytes at least; a list that is damaged may be a circle.
    const MOST: usize = 48;

    let mut place = usize::from(*space.get(FIRST)?);
    for _ in 0..MOST {
        // The two low bits are reserved.
        place &= !3;
        let (&kind, &next) = (space.get(place)?, space.get(place + 1)?);
        if place < FIRST {
            return None;
        }
        if kind == EXPRESS {
            return Some(space.get(place + CONTROL)? & RELAXED != 0);
        }
        place = usize::from(next);
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn lanes_carry_what_their_code_leaves() {
        let carried = |speed: &str, count: &str| Lanes::parse(speed, count).map(Lanes::gigabits);
        let rounded = |speed, count| carried(speed, count).map(|gigabits| gigabits.round());
        assert_eq!(rounded("8.0 GT/s PCIe", "16"), Some(113.0));
        assert_eq!(rounded("5 GT/s", "8"), Some(29.0));
        assert_eq!(rounded("32.0 GT/s PCIe", "16"), Some(454.0));
        assert_eq!(rounded("64.0 GT/s PCIe", "16"), Some(850.0));
        for (speed, count) in [
            ("Unknown", "0"),
            ("16.0 GT/s PCIe", "63"),
            ("NaN GT/s", "8"),
            ("1e99 GT/s", "8"),
            ("", ""),
        ] {
            assert_eq!(carried(speed, count), None, "{speed} {count}");
        }
    }

    /// A configuration space with two capabilities, the second one of PCI Express.
    fn space(control: u8) -> Vec<u8> {
        let mut space = vec![0; 256];
        space[0x34] = 0x40;
        space[0x40..0x42].copy_from_slice(&[0x01, 0x60]);
        space[0x60..0x62].copy_from_slice(&[0x10, 0x00]);
        space[0x68] = control;
        space
    }

    #[test]
    fn relaxed_ordering_is_a_bit_of_device_control() {
        assert_eq!(allows_relaxed_ordering(&space(0x10)), Some(true));
        assert_eq!(allows_relaxed_ordering(&space(0xef)), Some(false));
        let mut circle = space(0x10);
        circle[0x41] = 0x40;
        assert_eq!(allows_relaxed_ordering(&circle), None);
        assert_eq!(allows_relaxed_ordering(&space(0x10)[..64]), None);
        assert_eq!(allows_relaxed_ordering(&[]), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_space_or_none(space in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = allows_relaxed_ordering(&space);
        }
    }
}
