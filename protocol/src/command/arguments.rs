//! The values of arguments.

use std::fmt;

use base64::alphabet;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use base64::engine::{DecodePaddingMode, Engine};
use zeroize::Zeroizing;

use crate::address::Family;
use crate::path::PathArgument;
use crate::ranges::RangeSet;

/// The representation of a file's bytes on a stream (`TYPE`, RFC 959 3.1.1).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Representation {
    /// `A`: lines end with CRLF on the wire. The default of a session (RFC 959 5.1).
    #[default]
    Ascii,
    /// `I`: unchanged bytes.
    Image,
}

/// How a file is sent on data channels (`MODE`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum TransferMode {
    /// `S`: one channel; its end is the end of the file (RFC 959 3.4.1).
    #[default]
    Stream,
    /// `E`: blocks with offsets on any number of channels (GFD.20, extended block mode).
    Extended,
}

/// How a file is distributed to stripes (`OPTS RETR StripeLayout=`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StripeLayout {
    /// Each of n stripes gets a contiguous n-th of the file.
    Partitioned,
    /// Round-robin blocks.
    Blocked {
        /// The size of a block in bytes; not zero.
        block_bytes: u64,
    },
}

impl StripeLayout {
    /// The default size of a block, as in globus-gridftp-server 13.24.
    pub const DEFAULT_BLOCK_BYTES: u64 = 1 << 20;
}

impl Default for StripeLayout {
    fn default() -> Self {
        Self::Blocked {
            block_bytes: Self::DEFAULT_BLOCK_BYTES,
        }
    }
}

/// The protection of data channels (`PROT`, RFC 2228 3).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ProtectionLevel {
    /// `C`: none.
    #[default]
    Clear,
    /// `S`: integrity.
    Safe,
    /// `P`: integrity and confidentiality.
    Private,
}

/// The authentication of data channels' peers (GFD.20, DCAU).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DataChannelAuthentication {
    /// `N`: no authentication.
    None,
    /// `A`: the same user as on the control channel.
    User,
    /// `S`: the owner of this subject name.
    Subject(Text),
}

/// The credential for data channels (`DCSC`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DataChannelContext {
    /// `D`: the session's credential.
    Default,
    /// `P`: certificate, private key and chain in PEM, as base64.
    Credential(Base64),
}

/// The bytes that a restarted transfer skips (`REST`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Restart {
    /// All bytes before this one (RFC 3659 5).
    At(u64),
    /// These bytes (GFD.20, restart).
    Ranges(RangeSet),
}

impl Restart {
    /// The bytes that the receiver already has.
    pub fn present(&self) -> RangeSet {
        match self {
            Self::At(offset) => std::iter::once(0..*offset).collect(),
            Self::Ranges(ranges) => ranges.clone(),
        }
    }
}

/// The argument of `EPSV` (RFC 2428 3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EpsvRequest {
    /// The protocol of the control channel.
    Same,
    /// This protocol.
    Family(Family),
    /// `ALL`: only `EPSV` is allowed from now on.
    All,
}

/// The markers whose interval `TREV` sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MarkerEvent {
    /// `PERF`: the `112` performance markers.
    Performance,
    /// `RESTART`: the `111` restart markers.
    Restart,
}

/// UTF-8 text in a command line: not empty, without NUL and CRLF.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Text(String);

impl Text {
    /// A text, or `None` if it is empty or contains NUL or CRLF.
    pub fn new(text: impl Into<String>) -> Option<Self> {
        let text = text.into();
        let fits = !text.is_empty() && !text.contains('\0') && !text.contains("\r\n");
        fits.then_some(Self(text))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A password, possibly empty: bytes without NUL and CRLF. Never logged, and wiped from memory.
#[derive(Clone, PartialEq, Eq)]
pub struct Password(Zeroizing<Vec<u8>>);

impl Password {
    /// A password, or `None` if it contains NUL or CRLF.
    pub fn new(password: impl Into<Vec<u8>>) -> Option<Self> {
        let password = password.into();
        crate::line::fits(&password).then(|| Self(Zeroizing::new(password)))
    }

    /// The password itself.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// Base64 text. It may be a token or a credential, so logs show only its length, and it is wiped from memory.
#[derive(Clone, PartialEq, Eq)]
pub struct Base64(Zeroizing<String>);

/// Some clients omit the padding.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

impl Base64 {
    /// A text, or `None` if it is empty or has characters outside of base64.
    pub fn new(text: impl Into<String>) -> Option<Self> {
        let text = text.into();
        let fits = !text.is_empty()
            && text
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"+/=".contains(&byte));
        fits.then(|| Self(Zeroizing::new(text)))
    }

    /// Encodes `bytes`.
    pub fn encode(bytes: &[u8]) -> String {
        BASE64.encode(bytes)
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Decodes it; `None` if its length or padding is wrong.
    pub fn decode(&self) -> Option<Zeroizing<Vec<u8>>> {
        BASE64.decode(self.0.as_bytes()).ok().map(Zeroizing::new)
    }
}

impl fmt::Debug for Base64 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "({} characters)", self.0.len())
    }
}

/// The name of a checksum algorithm, in capitals. The algorithm need not exist.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct AlgorithmName(String);

impl AlgorithmName {
    /// The longest name, in bytes.
    pub const MAX_BYTES: usize = 32;

    /// A name in any case, or `None` if it is empty, too long, or has characters other than letters, digits, `-`, `_` and `/`.
    pub fn new(name: &str) -> Option<Self> {
        let fits = (1..=Self::MAX_BYTES).contains(&name.len())
            && name
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"-_/".contains(&byte));
        fits.then(|| Self(name.to_ascii_uppercase()))
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A checksum in lower-case hexadecimal.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Checksum(String);

impl Checksum {
    /// The longest checksum, in hexadecimal digits: SHA-512.
    pub const MAX_DIGITS: usize = 128;

    /// Hexadecimal digits in any case, or `None` if there are other characters, none, or too many.
    pub fn new(digits: &str) -> Option<Self> {
        let fits = (1..=Self::MAX_DIGITS).contains(&digits.len())
            && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        fits.then(|| Self(digits.to_ascii_lowercase()))
    }

    pub(super) fn parse(word: &[u8]) -> Option<Self> {
        Self::new(std::str::from_utf8(word).ok()?)
    }

    /// The digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Checksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The path argument of `LIST` and `NLST`.
///
/// Clients send flags of ls(1) before it. globus-gridftp-server 13.24 and [`Command::parse`](super::Command::parse) ignore
/// them, so a name that starts with a dash must be written `./-name`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ListPath(PathArgument);

impl ListPath {
    /// The argument for a path, with `./` before a dash. `None` if it becomes too long.
    pub fn new(path: PathArgument) -> Option<Self> {
        if path.as_bytes().starts_with(b"-") {
            return PathArgument::new([b"./", path.as_bytes()].concat()).map(Self);
        }
        Some(Self(path))
    }

    /// The path.
    pub fn path(&self) -> &PathArgument {
        &self.0
    }

    /// The same without a copy.
    pub fn into_path(self) -> PathArgument {
        self.0
    }
}
