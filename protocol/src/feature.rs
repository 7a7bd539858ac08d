//! Features of a server: the reply to `FEAT` (RFC 2389 3).

use std::fmt;

use crate::command::{AlgorithmName, Text};
use crate::number::decimal;
use crate::reply::Reply;

/// One line of the reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Feature {
    /// `CKSM MD5:10;...`: the checksum algorithms. globus-gridftp-server 13.24 shows it only after
    /// login.
    Checksums(Vec<ChecksumPreference>),
    /// `MLST Type*;Size*;...`: the facts of listings (RFC 3659 7.8).
    Facts(Vec<FactSupport>),
    /// `REST STREAM`: restart in stream mode (RFC 3659 5.1).
    RestStream,
    /// `PASV AllowDelayed;`: the address of a passive data channel may come with the transfer.
    DelayedPassive,
    /// `AUTH TLS`: a security mechanism (RFC 4217 6); each has a line of its own.
    Authentication(Text),
    /// `DCSC P,D`: credentials for data channels; the letters are those of the command.
    DataChannelContext,
    /// `LANG EN`: languages of replies.
    Languages(Text),
    /// `DSI name-version`: the storage interface.
    Storage(Text),
    /// A feature that has no parameters.
    Simple(SimpleFeature),
    /// Any other feature, with its parameters.
    Other(Text),
}

/// Features without parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SimpleFeature {
    /// `AUTHZ_ASSERT`.
    AuthzAssert,
    /// `DCAU`: data channels are authenticated by default (GFD.20).
    Dcau,
    /// `EPRT` (RFC 2428).
    Eprt,
    /// `EPSV` (RFC 2428).
    Epsv,
    /// `ERET` (GFD.20).
    Eret,
    /// `ESTO` (GFD.20).
    Esto,
    /// `HTTP`.
    Http,
    /// `MDTM` (RFC 3659 3).
    Mdtm,
    /// `MFMT` (draft-somers-ftp-mfxx).
    Mfmt,
    /// `MLSC`.
    Mlsc,
    /// `MLSR`.
    Mlsr,
    /// `PARALLEL`: `SPAS`, `SPOR`, options of `RETR`, and MODE E (GFD.20).
    Parallel,
    /// `PBSZ` (RFC 4217 6).
    Pbsz,
    /// `PROT` (RFC 4217 6).
    Prot,
    /// `RADR`, which includes `RPSV`, `RSTR` and `RRTR`.
    Radr,
    /// `SBUF` (GFD.20).
    Sbuf,
    /// `SIZE` (RFC 3659 4).
    Size,
    /// `SPAS` (GFD.20).
    Spas,
    /// `SPOR` (GFD.20).
    Spor,
    /// `STORATTR`.
    StorAttr,
    /// `UTF8` (RFC 2640).
    Utf8,
    /// `WHOAMI`.
    Whoami,
}

/// A checksum algorithm and the server's preference. Clients use the algorithm with the greatest number that both support.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChecksumPreference {
    /// The algorithm.
    pub algorithm: AlgorithmName,
    /// The preference.
    pub preference: u32,
}

/// A fact of listings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FactSupport {
    /// Its name: not empty, without spaces, semicolons and stars.
    pub name: Text,
    /// Whether listings show it at present.
    pub selected: bool,
}

/// The reply to `FEAT`.
pub fn reply(features: &[Feature]) -> Reply {
    let lines = features.iter().map(Feature::to_string);
    Reply::spaced(211, "Extensions supported", lines, "End.")
}

/// Reads the reply to `FEAT`. Invalid lines are left out. A server without features replies with one line, or with an error.
pub fn parse(reply: &Reply) -> Vec<Feature> {
    if reply.code() != 211 {
        return Vec::new();
    }
    let lines = reply.inner().iter();
    lines.filter_map(|line| Feature::parse(line)).collect()
}

impl Feature {
    /// Reads a line without its leading space.
    fn parse(line: &[u8]) -> Option<Self> {
        let line = std::str::from_utf8(line).ok()?.trim();
        let (name, parameters) = line.split_once(' ').unwrap_or((line, ""));
        let has = |word: &str| {
            let parameters = parameters.to_ascii_uppercase();
            parameters.split([' ', ';', ',']).any(|one| one == word)
        };
        let known = match name.to_ascii_uppercase().as_str() {
            "CKSM" => list(parameters, ChecksumPreference::parse).map(Self::Checksums),
            "MLST" => list(parameters, FactSupport::parse).map(Self::Facts),
            "REST" if has("STREAM") => Some(Self::RestStream),
            "PASV" if has("ALLOWDELAYED") => Some(Self::DelayedPassive),
            "DCSC" if has("P") && has("D") => Some(Self::DataChannelContext),
            "AUTH" => Text::new(parameters).map(Self::Authentication),
            "LANG" => Text::new(parameters).map(Self::Languages),
            "DSI" => Text::new(parameters).map(Self::Storage),
            name if parameters.is_empty() => SimpleFeature::parse(name).map(Self::Simple),
            _ => None,
        };
        known.or_else(|| Text::new(line).map(Self::Other))
    }
}

impl fmt::Display for Feature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Checksums(preferences) => {
                f.write_str("CKSM ")?;
                preferences.iter().try_for_each(|one| {
                    let algorithm = one.algorithm.as_str();
                    write!(f, "{algorithm}:{};", one.preference)
                })
            }
            Self::Facts(facts) => {
                f.write_str("MLST ")?;
                facts.iter().try_for_each(|fact| {
                    let mark = if fact.selected { "*" } else { "" };
                    write!(f, "{}{mark};", fact.name)
                })
            }
            Self::RestStream => f.write_str("REST STREAM"),
            Self::DelayedPassive => f.write_str("PASV AllowDelayed;"),
            Self::Authentication(mechanism) => write!(f, "AUTH {mechanism}"),
            Self::DataChannelContext => f.write_str("DCSC P,D"),
            Self::Languages(languages) => write!(f, "LANG {languages}"),
            Self::Storage(storage) => write!(f, "DSI {storage}"),
            Self::Simple(feature) => f.write_str(feature.name()),
            Self::Other(line) => write!(f, "{line}"),
        }
    }
}

impl SimpleFeature {
    const ALL: [Self; 22] = [
        Self::AuthzAssert,
        Self::Dcau,
        Self::Eprt,
        Self::Epsv,
        Self::Eret,
        Self::Esto,
        Self::Http,
        Self::Mdtm,
        Self::Mfmt,
        Self::Mlsc,
        Self::Mlsr,
        Self::Parallel,
        Self::Pbsz,
        Self::Prot,
        Self::Radr,
        Self::Sbuf,
        Self::Size,
        Self::Spas,
        Self::Spor,
        Self::StorAttr,
        Self::Utf8,
        Self::Whoami,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::AuthzAssert => "AUTHZ_ASSERT",
            Self::Dcau => "DCAU",
            Self::Eprt => "EPRT",
            Self::Epsv => "EPSV",
            Self::Eret => "ERET",
            Self::Esto => "ESTO",
            Self::Http => "HTTP",
            Self::Mdtm => "MDTM",
            Self::Mfmt => "MFMT",
            Self::Mlsc => "MLSC",
            Self::Mlsr => "MLSR",
            Self::Parallel => "PARALLEL",
            Self::Pbsz => "PBSZ",
            Self::Prot => "PROT",
            Self::Radr => "RADR",
            Self::Sbuf => "SBUF",
            Self::Size => "SIZE",
            Self::Spas => "SPAS",
            Self::Spor => "SPOR",
            Self::StorAttr => "STORATTR",
            Self::Utf8 => "UTF8",
            Self::Whoami => "WHOAMI",
        }
    }

    fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|feature| feature.name() == name)
    }
}

impl ChecksumPreference {
    fn parse(text: &str) -> Option<Self> {
        let (algorithm, preference) = text.split_once(':')?;
        Some(Self {
            algorithm: AlgorithmName::new(algorithm)?,
            preference: decimal(preference.as_bytes())?,
        })
    }
}

impl FactSupport {
    fn parse(text: &str) -> Option<Self> {
        let (name, selected) = match text.strip_suffix('*') {
            Some(name) => (name, true),
            None => (text, false),
        };
        let name = Text::new(name)?;
        Some(Self { name, selected })
    }
}

/// Reads a list with a semicolon after each item. The last semicolon may be missing.
fn list<T>(text: &str, item: impl Fn(&str) -> Option<T>) -> Option<Vec<T>> {
    let items = text.split(';').filter(|piece| !piece.is_empty());
    items.map(item).collect()
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::reply::ReplyDecoder;

    const RECORDED: &str = "211-Extensions supported\r\n \
        CKSM MD5:10;ADLER32:10;SHA1:10;SHA256:11;SHA512:12;\r\n \
        DSI file-13.24\r\n STORATTR\r\n HTTP\r\n DCSC P,D\r\n MFMT\r\n WHOAMI\r\n AUTHZ_ASSERT\r\n \
        MLSR\r\n MLSC\r\n UTF8\r\n LANG EN\r\n DCAU\r\n PARALLEL\r\n SIZE\r\n \
        MLST Type*;Size*;Modify*;Perm*;Charset;UNIX.mode*;UNIX.owner*;UNIX.uid*;UNIX.group*;\
        UNIX.gid*;Unique*;UNIX.slink*;X.count;\r\n \
        ERET\r\n ESTO\r\n SPAS\r\n SPOR\r\n REST STREAM\r\n MDTM\r\n PASV AllowDelayed;\r\n211 End.\r\n";

    #[test]
    fn the_recorded_reply_is_read_and_written() {
        let answer = ReplyDecoder::new().decode(&mut RECORDED.as_bytes());
        let features = parse(&answer.unwrap().unwrap());
        assert_eq!(features.len(), 23);
        let unknown = |feature: &Feature| matches!(feature, Feature::Other(_));
        assert!(!features.iter().any(unknown), "{features:?}");
        assert_eq!(reply(&features).encode(), RECORDED.as_bytes());
    }

    #[test]
    fn other_forms_of_other_servers_are_read() {
        let feature = |line: &str| Feature::parse(line.as_bytes()).unwrap();
        assert_eq!(feature("size"), Feature::Simple(SimpleFeature::Size));
        assert_eq!(feature("REST Stream"), Feature::RestStream);
        assert_eq!(
            feature("AUTH TLS"),
            Feature::Authentication(Text::new("TLS").unwrap())
        );
        assert_eq!(feature("REST"), Feature::Other(Text::new("REST").unwrap()));
        assert_eq!(Feature::parse(b""), None);
        assert_eq!(Feature::parse(b"\xff"), None);
        assert_eq!(parse(&Reply::new(500, "Invalid command.")), []);
        assert_eq!(parse(&Reply::new(211, "No features.")), []);
    }

    fn any_feature() -> impl Strategy<Value = Feature> {
        let algorithm = "[A-Z0-9]{1,8}".prop_map(|name| AlgorithmName::new(&name).unwrap());
        let preference =
            (algorithm, any::<u32>()).prop_map(|(algorithm, preference)| ChecksumPreference {
                algorithm,
                preference,
            });
        let name = || "[A-Za-z.]{1,12}".prop_map(|name| Text::new(name).unwrap());
        let fact =
            (name(), any::<bool>()).prop_map(|(name, selected)| FactSupport { name, selected });
        prop_oneof![
            vec(preference, 0..5).prop_map(Feature::Checksums),
            vec(fact, 0..15).prop_map(Feature::Facts),
            Just(Feature::RestStream),
            Just(Feature::DelayedPassive),
            Just(Feature::DataChannelContext),
            name().prop_map(Feature::Languages),
            name().prop_map(Feature::Storage),
            name().prop_map(Feature::Authentication),
            proptest::sample::select(&SimpleFeature::ALL[..]).prop_map(Feature::Simple),
            "X-[A-Z]{1,6}( [a-z;]{1,6})?".prop_map(|line| Feature::Other(Text::new(line).unwrap())),
        ]
    }

    proptest! {
        #[test]
        fn features_survive(features in vec(any_feature(), 0..20)) {
            prop_assert_eq!(parse(&reply(&features)), features);
        }

        #[test]
        fn no_line_makes_the_parser_panic(line: Vec<u8>) {
            let _ = Feature::parse(&line);
        }
    }
}
