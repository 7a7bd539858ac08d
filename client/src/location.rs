//! The places that are copied from and to: files of this machine, and URLs of servers.

mod encoding;
mod error;

use std::ffi::OsStr;
use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use gridhaul_protocol::path::PathArgument;

pub(crate) use self::encoding::split_password;
use self::encoding::{decoded, encoded, encoded_user, without_secret};
pub use self::error::LocationError;

/// A place that is copied from or to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Location {
    /// A file or directory of this machine: a plain path, or `file:` followed by an absolute path.
    Local(PathBuf),
    /// A file or directory of a server.
    Remote(Url),
}

/// The URL of a file or directory of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Url {
    /// The server, and as whom to log in.
    pub server: Server,
    /// The decoded path, byte for byte: all that follows the host, with its first slash.
    pub path: Vec<u8>,
}

/// A server, and as whom to log in there. Sessions with equal values can be shared.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Server {
    /// How to log in.
    pub scheme: Scheme,
    /// The user of the URL.
    pub user: Option<String>,
    /// The name or the address; an IPv6 address has no brackets.
    pub host: String,
    /// The port.
    pub port: u16,
    /// The end of copies that it is, if options for one end make sessions of both ends different.
    pub end: Option<End>,
}

/// An end of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum End {
    /// Where files come from.
    Source,
    /// Where copies go.
    Destination,
}

/// The way to log in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scheme {
    /// `ftp`: a name and a password, or anonymous, in the clear.
    Ftp,
    /// `ftps`: a name and a password, or anonymous, in TLS that begins with `AUTH TLS` (RFC 4217).
    Ftps,
    /// `gsiftp`: a certificate.
    GsiFtp,
    /// `sshftp`: the server is started through ssh.
    SshFtp,
}

impl Location {
    /// Reads a location as users write it: an argument is a URL if it starts with a scheme of letters and `:/`.
    ///
    /// # Errors
    ///
    /// When it starts like a URL and is none.
    pub fn parse(text: &str) -> Result<Self, LocationError> {
        let scheme = text.split_once(":/").map(|(scheme, _)| scheme);
        let Some(scheme) = scheme.filter(|_| is_url(text.as_bytes())) else {
            return Ok(Self::Local(PathBuf::from(text)));
        };
        let rest = &text[scheme.len() + 1..];
        match scheme.to_ascii_lowercase().as_str() {
            "file" => local(rest)
                .ok_or_else(|| LocationError::File(text.to_owned()))?
                .map(Self::Local)
                .ok_or_else(|| LocationError::Encoding(text.to_owned())),
            "ftp" => remote(text, Scheme::Ftp, rest).map(Self::Remote),
            "ftps" => remote(text, Scheme::Ftps, rest).map(Self::Remote),
            "gsiftp" => remote(text, Scheme::GsiFtp, rest).map(Self::Remote),
            "sshftp" => remote(text, Scheme::SshFtp, rest).map(Self::Remote),
            _ => Err(LocationError::Scheme(without_secret(text))),
        }
    }
}

impl Server {
    /// Whether both are one server, and one user.
    pub fn is_same(&self, other: &Self) -> bool {
        let end = other.end;
        Self {
            end,
            ..self.clone()
        } == *other
    }
}

impl Scheme {
    /// As it is written in URLs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ftp => "ftp",
            Self::Ftps => "ftps",
            Self::GsiFtp => "gsiftp",
            Self::SshFtp => "sshftp",
        }
    }

    /// The port if the URL has none.
    pub(crate) fn port(self) -> u16 {
        match self {
            // Port 990 is for TLS from the first byte, which RFC 4217 does not have.
            Self::Ftp | Self::Ftps => 21,
            Self::GsiFtp => 2811,
            Self::SshFtp => 22,
        }
    }
}

/// The inner `None`: a wrong encoding.
fn local(rest: &str) -> Option<Option<PathBuf>> {
    let path = match rest.strip_prefix("//") {
        None => rest,
        Some(with_host) => with_host.strip_prefix("localhost").unwrap_or(with_host),
    };
    path.starts_with('/').then(|| {
        let bytes = decoded(path)?;
        Some(PathBuf::from(std::ffi::OsString::from_vec(bytes)))
    })
}

fn remote(text: &str, scheme: Scheme, rest: &str) -> Result<Url, LocationError> {
    let wrong = || LocationError::Host(without_secret(text));
    let rest = rest.strip_prefix("//").ok_or_else(wrong)?;
    let (authority, path) = match rest.find('/') {
        Some(slash) => rest.split_at(slash),
        None => (rest, "/"),
    };
    let (user, host) = match authority.rsplit_once('@') {
        Some((user, _)) if user.contains(':') => return Err(LocationError::Password),
        Some((user, host)) => (Some(user), host),
        None => (None, authority),
    };
    let undecodable = || LocationError::Encoding(without_secret(text));
    let user = user
        .map(|user| {
            let user = decoded(user).and_then(|user| String::from_utf8(user).ok());
            user.filter(|user| !user.is_empty()).ok_or_else(undecodable)
        })
        .transpose()?;
    let (host, port) = host_and_port(host).ok_or_else(wrong)?;
    Ok(Url {
        server: Server {
            scheme,
            user,
            host,
            port: port.unwrap_or_else(|| scheme.port()),
            end: None,
        },
        path: decoded(path).ok_or_else(undecodable)?,
    })
}

fn host_and_port(text: &str) -> Option<(String, Option<u16>)> {
    let (host, port) = match text.strip_prefix('[') {
        Some(bracketed) => {
            let (address, rest) = bracketed.split_once(']')?;
            address.parse::<Ipv6Addr>().ok()?;
            (
                address,
                rest.strip_prefix(':')
                    .or_else(|| rest.is_empty().then_some("")),
            )
        }
        None => match text.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (text, Some("")),
        },
    };
    let is_name = |host: &str| {
        !host.is_empty()
            // RFC 952: otherwise a host could be an option of ssh.
            && !host.starts_with('-')
            && host.len() <= 253
            && host
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_'))
    };
    if host.parse::<IpAddr>().is_err() && !is_name(host) {
        return None;
    }
    let port = match port? {
        "" => None,
        digits if digits.bytes().all(|byte| byte.is_ascii_digit()) => {
            Some(digits.parse::<u16>().ok().filter(|port| *port > 0)?)
        }
        _ => return None,
    };
    Some((host.to_ascii_lowercase(), port))
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://", self.scheme.name())?;
        if let Some(user) = &self.user {
            write!(f, "{}@", encoded_user(user))?;
        }
        match self.host.contains(':') {
            true => write!(f, "[{}]", self.host)?,
            false => f.write_str(&self.host)?,
        }
        if self.port != self.scheme.port() {
            write!(f, ":{}", self.port)?;
        }
        Ok(())
    }
}

impl Url {
    /// Reads the URL of a file of a server.
    ///
    /// # Errors
    ///
    /// When it is none.
    pub fn parse(text: &str) -> Result<Self, LocationError> {
        match Location::parse(text)? {
            Location::Remote(url) => Ok(url),
            Location::Local(_) => Err(LocationError::NoServer(text.to_owned())),
        }
    }

    /// Whether both are one file of one server.
    pub fn is_same_file(&self, other: &Self) -> bool {
        self.server.is_same(&other.server) && self.path == other.path
    }

    /// The path for commands. `/~/` begins a path beneath the user's home directory, as for globus-url-copy.
    ///
    /// # Errors
    ///
    /// When commands cannot have the path.
    pub fn argument(&self) -> Result<PathArgument, LocationError> {
        let path = match self.path.starts_with(b"/~/") {
            true => &self.path[1..],
            false => &self.path,
        };
        PathArgument::new(path).ok_or_else(|| LocationError::Unsendable(self.to_string()))
    }

    /// The URL of a name in this directory. The name is a single component.
    #[must_use]
    pub fn join(&self, name: &[u8]) -> Self {
        let mut path = self.path.clone();
        if !path.ends_with(b"/") {
            path.push(b'/');
        }
        path.extend_from_slice(name);
        let server = self.server.clone();
        Self { server, path }
    }
}

/// Encodes what [`Location::parse`] decodes.
impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.server, encoded(&self.path))
    }
}

/// Whether a location is a URL, or would be one if it were right.
pub(crate) fn is_url(written: &[u8]) -> bool {
    let scheme = written.windows(2).position(|two| two == b":/");
    scheme.is_some_and(|end| end > 0 && written[..end].iter().all(u8::is_ascii_alphanumeric))
}

/// A location as a user has written it, byte for byte, in the form of text: [`Location::parse`] makes a place with these bytes of it.
pub(crate) fn as_text(written: &[u8]) -> String {
    if let Ok(text) = std::str::from_utf8(written) {
        return text.to_owned();
    }
    if !is_url(written) {
        return file_url(Path::new(OsStr::from_bytes(written)));
    }
    let mut text = String::new();
    for chunk in written.utf8_chunks() {
        text.push_str(chunk.valid());
        for byte in chunk.invalid() {
            text.push_str(&format!("%{byte:02X}"));
        }
    }
    text
}

/// The URL of a file of this machine.
pub(crate) fn file_url(path: &Path) -> String {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    format!("file://{}", encoded(path.as_os_str().as_bytes()))
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local(path) => match path.to_str() {
                Some(text) => f.write_str(text),
                // Readable for programs, and not the name of another file.
                None => f.write_str(&file_url(path)),
            },
            Self::Remote(url) => write!(f, "{url}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn url(text: &str) -> Url {
        match Location::parse(text).expect(text) {
            Location::Remote(url) => url,
            Location::Local(path) => panic!("{text}: {}", path.display()),
        }
    }

    #[test]
    fn urls_have_servers_and_paths() {
        let full = url("gsiftp://alice@DTN.example.org:2812/data/a%20b");
        assert_eq!(full.server.user.as_deref(), Some("alice"));
        assert_eq!(
            (full.server.host.as_str(), full.server.port),
            ("dtn.example.org", 2812)
        );
        assert_eq!(full.path, b"/data/a b");
        assert_eq!(
            full.to_string(),
            "gsiftp://alice@dtn.example.org:2812/data/a%20b"
        );
        assert_eq!(url("gsiftp://h").path, b"/");
        let quoted = "ftp://a%22%40b@h/%22%0A";
        assert_eq!(url(quoted).to_string(), quoted);
        assert_eq!(url("ftp://h//etc").path, b"//etc");
        assert_eq!(url("ftp://[2001:db8::1]/").server.host, "2001:db8::1");
        assert_eq!(
            (url("ftp://h/").server.port, url("gsiftp://h/").server.port),
            (21, 2811)
        );
    }

    #[test]
    fn files_are_paths_or_urls() {
        let local = |text| match Location::parse(text).expect(text) {
            Location::Local(path) => path,
            Location::Remote(url) => panic!("{url}"),
        };
        for text in [
            "/a b",
            "file:/a%20b",
            "file:///a%20b",
            "file://localhost/a%20b",
        ] {
            assert_eq!(local(text), PathBuf::from("/a b"));
        }
        for text in ["a", "./a:/b", "a b:/c", "-"] {
            assert_eq!(local(text), PathBuf::from(text));
        }
    }

    #[test]
    fn wrong_locations_say_what_is_wrong() {
        for (text, expected) in [
            ("http://h/", "the scheme must be"),
            ("file://other/a", "file:/PATH"),
            ("ftp:/h/a", "SCHEME://"),
            ("ftp://2001:db8::1/a", "brackets"),
            ("ftp://h:0/", "SCHEME://"),
            ("ftp://u:secret@h/", "--password-file"),
            ("ftp://u:sec/secret@h/", "SCHEME://"),
            ("ftp:/u:secret@h/", "SCHEME://"),
            ("http://u:secret@h/", "the scheme must be"),
            ("ftp://h/%00", "%25"),
            ("ftp://h/%4", "%25"),
            ("ftp://h/%+1", "%25"),
            ("file:/%zz", "%25"),
        ] {
            let error = Location::parse(text).expect_err(text).to_string();
            assert!(error.contains(expected), "{text}: {error}");
            assert!(!error.contains("secret"), "{error}");
        }
    }

    proptest! {
        #[test]
        fn written_locations_keep_their_bytes(path in proptest::collection::vec(1_u8.., 0..40)) {
            let path = [b"/".as_slice(), &path].concat();
            let read = |written: &[u8]| Location::parse(&as_text(written)).expect("valid");
            let local = Location::Local(std::ffi::OsString::from_vec(path.clone()).into());
            prop_assert_eq!(read(&path), local);
            let path: Vec<u8> = path.into_iter().filter(|byte| *byte != b'%').collect();
            let sent = Url { path: path.clone(), ..url("gsiftp://h/") };
            prop_assert_eq!(read(&[b"gsiftp://h".as_slice(), &path].concat()), Location::Remote(sent));
        }

        #[test]
        fn local_paths_come_back_byte_for_byte(path in proptest::collection::vec(1_u8.., 0..40)) {
            let path = [b"/".as_slice(), &path].concat();
            let path = Location::Local(std::ffi::OsString::from_vec(path).into());
            prop_assert_eq!(Location::parse(&path.to_string()).expect("written by us"), path);
        }

        #[test]
        fn paths_come_back_byte_for_byte(path in proptest::collection::vec(1_u8.., 0..40)) {
            let sent = Url { path: [b"/".as_slice(), &path].concat(), ..url("gsiftp://h/") };
            prop_assert_eq!(url(&sent.to_string()), sent);
        }
    }
}
