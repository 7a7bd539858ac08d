//! Probes whether the kernel can protect records, and whether that is cheaper.

use std::io::{self, ErrorKind};
use std::os::fd::AsFd;
use std::sync::LazyLock;

use gridhaul_security::tls::{Direction, RecordCipher, RecordKeys, RecordVersion};

use super::loopback::{protected_pair, sample};
use super::measure::{self, Costs};
use super::socket;

/// The kernel's support for protected channels, for checks before a server starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KernelSupport {
    /// Whether keys can be changed later, which TLS 1.3 needs. `None` if kernel TLS is not available to this process.
    pub(crate) changes_keys: Option<bool>,
    /// The result or the fallback, in words for an administrator.
    pub(crate) words: String,
}

/// Tries and measures kernel TLS with a connection on the loopback interface, once per process.
pub(crate) fn kernel_support() -> KernelSupport {
    match ability() {
        Ok(ability) => KernelSupport {
            changes_keys: Some(ability.changes_keys),
            words: ability.to_string(),
        },
        Err(reason) => KernelSupport {
            changes_keys: None,
            words: format!("{reason}; records are protected by this process"),
        },
    }
}

/// The kernel's abilities and costs.
#[derive(Debug)]
pub(super) struct Ability {
    /// Keys can be changed later, which TLS 1.3 needs.
    pub(super) changes_keys: bool,
    costs: Costs,
}

/// How much less the kernel must cost than this process, because real traffic differs from the measurement.
const CLEARLY_CHEAPER: f64 = 0.95;

impl Ability {
    /// Whether the kernel supports all that a connection of this version may need.
    pub(super) fn supports(&self, version: RecordVersion) -> bool {
        version == RecordVersion::Tls12 || self.changes_keys
    }

    pub(super) fn is_cheaper(&self, direction: Direction) -> bool {
        let cost = self.costs.of(direction);
        cost.kernel <= CLEARLY_CHEAPER * cost.process
    }
}

impl std::fmt::Display for Ability {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let versions = if self.changes_keys {
            "TLS 1.2 and 1.3"
        } else {
            "TLS 1.2 (TLS 1.3 wants Linux 6.14, or ktls=on)"
        };
        write!(f, "{versions}; CPU seconds per GB by the kernel and here:")?;
        for (word, direction) in [
            ("sending", Direction::Sending),
            ("receiving", Direction::Receiving),
        ] {
            let cost = self.costs.of(direction);
            let winner = if self.is_cheaper(direction) {
                "the kernel does it"
            } else {
                "done here"
            };
            write!(
                f,
                " {word} {:.3} and {:.3}, {winner};",
                cost.kernel, cost.process
            )?;
        }
        f.write_str(" the option ktls of gsi decides otherwise")
    }
}

/// The result of the probe, which runs once.
pub(super) fn ability() -> &'static Result<Ability, String> {
    static ABILITY: LazyLock<Result<Ability, String>> =
        LazyLock::new(|| probe().map_err(|error| phrase(&error)));
    &ABILITY
}

fn probe() -> io::Result<Ability> {
    for version in [RecordVersion::Tls12, RecordVersion::Tls13] {
        for cipher in [RecordCipher::Aes128Gcm, RecordCipher::Aes256Gcm] {
            try_once(&sample(version, cipher))?;
        }
    }
    Ok(Ability {
        changes_keys: can_change_keys()?,
        costs: measure::run()?,
    })
}

/// Without the module `tls`, setsockopt fails with `ENOENT`. The kernel loads it automatically only for programs with
/// CAP_NET_ADMIN.
fn phrase(error: &io::Error) -> String {
    match error.kind() {
        ErrorKind::NotFound => {
            format!("the kernel has no TLS: {error} (the module tls is not there, or not loaded)")
        }
        _ => format!("TLS in the kernel: {error}"),
    }
}

fn try_once(keys: &RecordKeys<'_>) -> io::Result<()> {
    const CONTENT: &[u8; 8] = b"gridhaul";
    let (mut here, mut there) = protected_pair(keys)?;
    io::Write::write_all(&mut here, CONTENT)?;
    let mut received = [0; CONTENT.len()];
    io::Read::read_exact(&mut there, &mut received)?;
    if received == *CONTENT {
        Ok(())
    } else {
        Err(io::Error::other("what came out is not what went in"))
    }
}

fn can_change_keys() -> io::Result<bool> {
    let first = sample(RecordVersion::Tls13, RecordCipher::Aes128Gcm);
    let (here, _there) = protected_pair(&first)?;
    let other = RecordKeys {
        key: b"another one of16",
        ..first
    };
    Ok(socket::set_keys(here.as_fd(), Direction::Sending, &other).is_ok())
}
