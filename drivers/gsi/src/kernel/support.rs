//! Whether the kernel can protect records, and whether that pays.

use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::LazyLock;
use std::time::Duration;

use gridhaul_security::tls::{Direction, RecordCipher, RecordKeys, RecordVersion};

use super::socket;
use super::trial::{self, Costs};

/// What the kernel can do for protected channels, for checks before a server starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelSupport {
    /// Whether keys that it was given can be changed, which TLS 1.3 needs. `None` where it protects no records, or does not
    /// let this process have it do so.
    pub changes_keys: Option<bool>,
    /// What is used, or what is done instead, in words for an administrator.
    pub words: String,
}

/// Tries it with a connection within this machine, and measures it, once in a process.
pub fn kernel_support() -> KernelSupport {
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

/// What the kernel can do.
#[derive(Debug)]
pub(super) struct Ability {
    /// Keys that were set can be changed, which TLS 1.3 needs.
    pub(super) changes_keys: bool,
    costs: Costs,
}

/// How much less the kernel must cost than this process: what was measured is not what comes.
const CLEARLY_CHEAPER: f64 = 0.95;

impl Ability {
    pub(super) fn is_cheaper(&self, direction: Direction) -> bool {
        let cost = self.costs.of(direction);
        cost.kernel <= CLEARLY_CHEAPER * cost.here
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
                cost.kernel, cost.here
            )?;
        }
        f.write_str(" the option ktls of gsi decides otherwise")
    }
}

/// Found out once.
pub(super) fn ability() -> &'static Result<Ability, String> {
    static ABILITY: LazyLock<Result<Ability, String>> =
        LazyLock::new(|| find_out().map_err(|error| phrase(&error)));
    &ABILITY
}

fn find_out() -> io::Result<Ability> {
    for version in [RecordVersion::Tls12, RecordVersion::Tls13] {
        for cipher in [RecordCipher::Aes128Gcm, RecordCipher::Aes256Gcm] {
            try_once(&sample(version, cipher))?;
        }
    }
    Ok(Ability {
        changes_keys: can_change_keys()?,
        costs: trial::run()?,
    })
}

/// socket(7) of a kernel without the module: `ENOENT`. It is loaded by itself only for programs with CAP_NET_ADMIN.
fn phrase(error: &io::Error) -> String {
    match error.kind() {
        ErrorKind::NotFound => {
            format!("the kernel has no TLS: {error} (the module tls is not there, or not loaded)")
        }
        _ => format!("TLS in the kernel: {error}"),
    }
}

/// Keys for a connection within this process.
pub(super) fn sample(version: RecordVersion, cipher: RecordCipher) -> RecordKeys<'static> {
    const KEY: [u8; 32] = *b"no secret, and only heard by us.";
    let length = match cipher {
        RecordCipher::Aes128Gcm => 16,
        RecordCipher::Aes256Gcm | RecordCipher::ChaCha20Poly1305 => 32,
    };
    RecordKeys {
        version,
        cipher,
        key: &KEY[..length],
        iv: [7; 12],
        sequence: 0,
    }
}

/// A connection within this machine, with keys in the kernel for the way from the first end to the second.
pub(super) fn protected_pair(keys: &RecordKeys<'_>) -> io::Result<(TcpStream, TcpStream)> {
    let (here, there) = pair()?;
    socket::attach(here.as_fd())?;
    socket::set_keys(here.as_fd(), Direction::Sending, keys)?;
    socket::attach(there.as_fd())?;
    socket::set_keys(there.as_fd(), Direction::Receiving, keys)?;
    Ok((here, there))
}

/// A connection within this machine, which does not wait for ever.
pub(super) fn pair() -> io::Result<(TcpStream, TcpStream)> {
    const LONGEST_WAIT: Duration = Duration::from_secs(5);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let here = TcpStream::connect(listener.local_addr()?)?;
    // Another process may have connected first.
    let there = loop {
        let (there, peer) = listener.accept()?;
        if peer == here.local_addr()? {
            break there;
        }
    };
    here.set_nodelay(true)?;
    here.set_write_timeout(Some(LONGEST_WAIT))?;
    there.set_read_timeout(Some(LONGEST_WAIT))?;
    Ok((here, there))
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
