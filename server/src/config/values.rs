//! The types of settings. Each is parsed the same way from a flag and from the file.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use gridhaul_stack::{OptionRules, OptionRulesError, options};
use gridhaul_storage::ChecksumAlgorithm;
use gridhaul_transfer::{AddressBlock, SyncPolicy};

use super::texts::{deserialize_as_number_or_text, deserialize_as_text};

/// A text that is not a value of the setting's type.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{text}' is not {expected}")]
pub struct ValueError {
    text: String,
    expected: &'static str,
}

impl ValueError {
    pub(super) fn new(text: &str, expected: &'static str) -> Self {
        Self {
            text: text.to_owned(),
            expected,
        }
    }
}

/// A number of bytes: `65536`, `64K`, `512MB`, `2GiB`. All units are powers of 1024.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bytes(pub u64);

impl FromStr for Bytes {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        options::bytes(text).map(Self).map_err(|_| ValueError {
            text: text.to_owned(),
            expected: "a number of bytes, like 65536, 64K, 512MB or 2GiB",
        })
    }
}

/// The permission bits of a new file, in octal: `0644`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileMode(pub u32);

impl FromStr for FileMode {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        u32::from_str_radix(text, 8)
            .ok()
            .filter(|mode| *mode <= 0o777)
            .map(Self)
            .ok_or_else(|| ValueError {
                text: text.to_owned(),
                expected: "a file mode in octal, like 0644",
            })
    }
}

impl fmt::Display for FileMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04o}", self.0)
    }
}

/// The ports that passive data connections use, both ends included: `50000-51000`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PortRange {
    /// The first port.
    pub first: u16,
    /// The last port.
    pub last: u16,
}

impl FromStr for PortRange {
    type Err = ValueError;

    /// A comma or a space between the ports is accepted too, as in `GLOBUS_TCP_PORT_RANGE`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.split_once(['-', ',', ' '])
            .and_then(|(first, last)| {
                let first = first.trim().parse().ok()?;
                let last = last.trim().parse().ok()?;
                (first > 0 && first <= last).then_some(Self { first, last })
            })
            .ok_or_else(|| ValueError {
                text: text.to_owned(),
                expected: "a range of ports, like 50000-51000",
            })
    }
}

impl fmt::Display for PortRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.first, self.last)
    }
}

/// Hosts that may open data channels besides the control channel's peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DataHosts {
    /// `any`: every host.
    Any,
    /// An address or a block of addresses.
    Block(AddressBlock),
}

impl FromStr for DataHosts {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "any" {
            return Ok(Self::Any);
        }
        text.parse().map(Self::Block).map_err(|_| ValueError {
            text: text.to_owned(),
            expected: "'any', an address or a block of addresses, like 192.0.2.7 or 2001:db8::/32",
        })
    }
}

/// Where the callout for authorization is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Callout {
    /// A program, which is started for each question.
    Program(PathBuf),
    /// The UNIX socket of a service.
    Socket(PathBuf),
}

impl FromStr for Callout {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (path, callout): (_, fn(PathBuf) -> Self) = match text.strip_prefix("unix:") {
            Some(path) => (path, Self::Socket),
            None => (text, Self::Program),
        };
        let path = PathBuf::from(path);
        if !path.is_absolute() {
            let expected =
                "the absolute path of a program, or unix: with the absolute path of a socket";
            return Err(ValueError::new(text, expected));
        }
        Ok(callout(path))
    }
}

impl Callout {
    /// The path of the program or socket.
    pub fn path(&self) -> &Path {
        match self {
            Self::Program(path) | Self::Socket(path) => path,
        }
    }
}

/// Hosts whose failed logins add no penalties.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExemptBlock(pub AddressBlock);

impl FromStr for ExemptBlock {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse().map(Self).map_err(|_| ValueError {
            text: text.to_owned(),
            expected: "an address or a block of addresses, like 192.0.2.7 or 2001:db8::/32",
        })
    }
}

/// Rules for the options of a driver that clients may set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientOptions(pub OptionRules);

impl FromStr for ClientOptions {
    type Err = OptionRulesError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse().map(Self)
    }
}

/// The checksums that are computed while files arrive.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum ArrivalChecksums {
    /// Those that clients request.
    #[default]
    Asked,
    /// A fixed list.
    Named(Vec<ChecksumAlgorithm>),
}

impl FromStr for ArrivalChecksums {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "asked" => return Ok(Self::Asked),
            "none" => return Ok(Self::Named(Vec::new())),
            _ => {}
        }
        let mut algorithms = Vec::new();
        for name in text.split(',') {
            let algorithm = name.parse().map_err(|_| ValueError {
                text: text.to_owned(),
                expected: "a list of checksums, like ADLER32,CRC32C, or asked, or none",
            })?;
            if !algorithms.contains(&algorithm) {
                algorithms.push(algorithm);
            }
        }
        Ok(Self::Named(algorithms))
    }
}

/// The roots beneath which uploads have temporary names until they are complete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AtomicRoot {
    /// `*`: every root.
    Any,
    /// A root, as a rule, a password or `root` names it.
    Root(PathBuf),
}

impl AtomicRoot {
    /// Whether this is about the root of a session.
    pub fn is_about(&self, root: &Path) -> bool {
        match self {
            Self::Any => true,
            Self::Root(named) => named == root,
        }
    }
}

impl FromStr for AtomicRoot {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "*" {
            return Ok(Self::Any);
        }
        let path = Path::new(text);
        if path.is_absolute() || path.starts_with("$HOME") {
            return Ok(Self::Root(path.to_owned()));
        }
        let expected = "'*', or a root: an absolute path, or one that begins with $HOME";
        Err(ValueError::new(text, expected))
    }
}

/// The durability of a stored file before the final reply.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SyncFiles(pub SyncPolicy);

impl FromStr for SyncFiles {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "none" => Ok(Self(SyncPolicy::None)),
            "close" => Ok(Self(SyncPolicy::Close)),
            "data" => Ok(Self(SyncPolicy::Data)),
            _ => Err(ValueError {
                text: text.to_owned(),
                expected: "what stored files wait for: none, close or data",
            }),
        }
    }
}

/// The format of the log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// In the journal of systemd, if standard error leads there and there is no file; else readable lines.
    #[default]
    Auto,
    /// Readable lines.
    Text,
    /// One JSON object on each line.
    Json,
    /// Entries of the journal of systemd.
    Journald,
}

impl FromStr for LogFormat {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "auto" => Ok(Self::Auto),
            "text" => Ok(Self::Text),
            "json" => Ok(Self::Json),
            "journald" => Ok(Self::Journald),
            _ => Err(ValueError {
                text: text.to_owned(),
                expected: "a log format: auto, text, json or journald",
            }),
        }
    }
}

/// The type of generated keys.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum KeyKind {
    /// RSA with 2048 bits.
    #[default]
    Rsa,
    /// P-256.
    Ec,
}

impl FromStr for KeyKind {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "rsa" => Ok(Self::Rsa),
            "ec" => Ok(Self::Ec),
            _ => Err(ValueError {
                text: text.to_owned(),
                expected: "a kind of key: rsa or ec",
            }),
        }
    }
}

deserialize_as_number_or_text!(Bytes);
deserialize_as_text!(
    ArrivalChecksums,
    Callout,
    ClientOptions,
    FileMode,
    PortRange,
    AtomicRoot,
    DataHosts,
    ExemptBlock,
    SyncFiles,
    LogFormat,
    KeyKind
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_know_their_units() {
        assert_eq!("65536".parse(), Ok(Bytes(65_536)));
        assert_eq!("64K".parse(), Ok(Bytes(65_536)));
        assert_eq!("2g".parse(), Ok(Bytes(2 << 30)));
        assert_eq!("4GiB".parse(), Ok(Bytes(4 << 30)));
        for text in ["", "K", "-1", "+64K", "1.5M", "18446744073709551615K"] {
            assert!(text.parse::<Bytes>().is_err(), "{text}");
        }
    }

    #[test]
    fn port_ranges_have_two_ends_in_order() {
        let range = PortRange {
            first: 50_000,
            last: 51_000,
        };
        for text in ["50000-51000", "50000,51000", "50000 51000", "50000, 51000"] {
            assert_eq!(text.parse(), Ok(range), "{text}");
        }
        for text in ["", "50000", "51000-50000", "0-10", "1-65536", "a-b"] {
            assert!(text.parse::<PortRange>().is_err(), "{text}");
        }
    }

    #[test]
    fn file_modes_are_octal_and_have_no_special_bits() {
        assert_eq!("0640".parse(), Ok(FileMode(0o640)));
        for text in ["", "0999", "4755", "rw"] {
            assert!(text.parse::<FileMode>().is_err(), "{text}");
        }
    }

    #[test]
    fn stored_files_wait_for_one_of_three_things() {
        assert_eq!("data".parse(), Ok(SyncFiles(SyncPolicy::Data)));
        for text in ["", "yes", "fsync"] {
            assert!(text.parse::<SyncFiles>().is_err(), "{text}");
        }
    }

    #[test]
    fn checksums_are_named_with_commas() {
        use ChecksumAlgorithm::{Adler32, Crc32c};
        let list = |algorithms: &[_]| Ok(ArrivalChecksums::Named(algorithms.to_vec()));
        assert_eq!("none".parse(), list(&[]));
        assert_eq!("asked".parse(), Ok(ArrivalChecksums::Asked));
        assert_eq!("adler32,CRC32C,ADLER32".parse(), list(&[Adler32, Crc32c]));
        for text in ["", "ADLER32,", "none,MD5", "asked,MD5", "MD4"] {
            assert!(text.parse::<ArrivalChecksums>().is_err(), "{text}");
        }
    }

    #[test]
    fn errors_say_what_would_be_right() {
        let error = "localhost".parse::<DataHosts>().expect_err("a name");
        assert!(
            error
                .to_string()
                .starts_with("'localhost' is not 'any', an address"),
            "{error}"
        );
    }
}
