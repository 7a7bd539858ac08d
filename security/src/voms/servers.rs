//! The servers of virtual organizations: the content of a vomsdir.

use std::collections::BTreeMap;

use crate::certificate::Certificate;
use crate::name::Name;
use crate::one_line;

/// The maximum length of a chain, and number of chains in a file.
const MAX_NAMES: usize = 32;
const MAX_CHAINS: usize = 64;

/// The maximum number of certificates in a file.
const MAX_CERTIFICATES: usize = 64;

/// The servers and certificates that may sign for each virtual organization.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VomsServers {
    organizations: BTreeMap<String, Organization>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Organization {
    /// By host name, in lower case.
    servers: BTreeMap<String, Server>,
    certificates: Vec<Certificate>,
}

/// The `.lsc` file of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Server {
    /// Subjects, each followed by its issuer. A chain is compared from its beginning.
    chains: Vec<Vec<String>>,
}

/// Why a file of a vomsdir cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ServerError {
    /// A chain is too short.
    #[error("a chain has no issuer: write the subject of the server, and below it that of its CA")]
    NoIssuer,
    /// A line is not a name.
    #[error("line {0} is not a subject: write it as /DC=org/CN=name")]
    Name(usize),
    /// It has too many names or chains.
    #[error("there are more than {MAX_CHAINS} chains in it, or more than {MAX_NAMES} names in one")]
    TooLong,
    /// It contains no valid certificate.
    #[error("there is no certificate in it: {0}")]
    NoCertificate(String),
    /// It contains too many certificates.
    #[error("there are more than {MAX_CERTIFICATES} certificates in it")]
    TooManyCertificates,
}

impl VomsServers {
    /// Adds the file `VO/HOST.lsc`: the subject of the server on this host, and that of its issuer. Further chains follow a line
    /// `------ NEXT CHAIN ------`.
    pub fn add_server(&mut self, vo: &str, host: &str, content: &[u8]) -> Result<(), ServerError> {
        let server = Server::parse(content)?;
        let servers = &mut self.organization(vo).servers;
        servers.insert(host.to_ascii_lowercase(), server);
        Ok(())
    }

    /// Adds certificates that may sign for a virtual organization on any host.
    pub fn add_certificates(&mut self, vo: &str, pem: &[u8]) -> Result<(), ServerError> {
        let certificates = Certificate::all_from_pem(pem)
            .map_err(|error| ServerError::NoCertificate(error.to_string()))?;
        if certificates.is_empty() {
            let reason = "it is not PEM".to_owned();
            return Err(ServerError::NoCertificate(reason));
        }
        if certificates.len() > MAX_CERTIFICATES {
            return Err(ServerError::TooManyCertificates);
        }
        self.organization(vo).certificates.extend(certificates);
        Ok(())
    }

    /// The virtual organizations with at least one server.
    pub fn organizations(&self) -> impl Iterator<Item = &str> {
        self.organizations.keys().map(String::as_str)
    }

    pub(super) fn server(&self, vo: &str, host: &str) -> Option<&Server> {
        let organization = self.organizations.get(vo)?;
        organization.servers.get(&host.to_ascii_lowercase())
    }

    /// The certificates of this subject that may sign for a virtual organization.
    pub(super) fn certificates<'a>(
        &'a self,
        vo: &str,
        subject: &'a Name,
    ) -> impl Iterator<Item = &'a Certificate> {
        let organization = self.organizations.get(vo);
        organization
            .into_iter()
            .flat_map(|organization| &organization.certificates)
            .filter(move |certificate| certificate.subject() == subject)
    }

    fn organization(&mut self, vo: &str) -> &mut Organization {
        self.organizations.entry(vo.to_owned()).or_default()
    }
}

impl Server {
    fn parse(content: &[u8]) -> Result<Self, ServerError> {
        let mut chains = vec![Vec::new()];
        for (index, line) in content.split(|&byte| byte == b'\n').enumerate() {
            let line = line.trim_ascii();
            let line = line
                .strip_prefix(b"\"")
                .map_or(line, |line| line.strip_suffix(b"\"").unwrap_or(line));
            match line {
                [] | [b'#', ..] => {}
                [b'-', ..] => chains.push(Vec::new()),
                [b'/', ..] => chains
                    .last_mut()
                    .expect("there is a chain from the beginning")
                    .push(one_line::spell(&one_line::read(line))),
                _ => return Err(ServerError::Name(index + 1)),
            }
            if chains.len() > MAX_CHAINS || chains.iter().any(|chain| chain.len() > MAX_NAMES) {
                return Err(ServerError::TooLong);
            }
        }
        // Separators at the start or end leave empty chains.
        chains.retain(|chain| !chain.is_empty());
        if chains.is_empty() || chains.iter().any(|chain| chain.len() < 2) {
            return Err(ServerError::NoIssuer);
        }
        Ok(Self { chains })
    }

    /// Whether one of the chains is the beginning of this verified chain, leaf first.
    ///
    /// The VOMS libraries differ for chains with intermediate authorities: the C++ library expects two lines for each
    /// certificate, subject and issuer, the Java library one line for each name. Consecutive equal names are merged, so that
    /// both forms match.
    pub(super) fn matches(&self, chain: &[Certificate]) -> bool {
        let subjects = chain.iter().map(Certificate::subject);
        let last_issuer = chain.last().map(Certificate::issuer);
        let mut path: Vec<_> = subjects
            .chain(last_issuer)
            .map(|name| one_line::spell(name.one_line()))
            .collect();
        path.dedup();
        self.chains.iter().any(|names| {
            let mut names = names.clone();
            names.dedup();
            names.len() >= 2 && path.starts_with(&names)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_one_chain_or_several() {
        let content = "/CN=voms\n/CN=ca\n------ NEXT CHAIN ------\n# old\n\"/USERID=1/CN=voms\"\n\n\
                       /E=ca@x.org\r\n";
        let server = Server::parse(content.as_bytes()).expect("valid");
        let chains = [
            ["/CN=voms", "/CN=ca"],
            ["/UID=1/CN=voms", "/emailAddress=ca@x.org"],
        ];
        assert_eq!(server.chains, chains);
    }

    #[test]
    fn wrong_files_are_named() {
        for (content, error) in [
            ("", ServerError::NoIssuer),
            ("/CN=voms", ServerError::NoIssuer),
            ("/CN=a\n/CN=b\n---\n/CN=a", ServerError::NoIssuer),
            ("\nCN=a\n", ServerError::Name(2)),
            (&"/CN=a\n".repeat(MAX_NAMES + 1), ServerError::TooLong),
            (&"---\n".repeat(MAX_CHAINS + 1), ServerError::TooLong),
        ] {
            let result = Server::parse(content.as_bytes());
            assert_eq!(result, Err(error), "{content}");
        }
    }

    #[test]
    fn servers_are_found_by_organization_and_host() {
        let mut servers = VomsServers::default();
        let added = servers.add_server("atlas", "VOMS.cern.ch", b"/CN=voms\n/CN=ca\n");
        added.expect("valid");
        assert!(servers.server("atlas", "voms.CERN.ch").is_some());
        assert!(servers.server("atlas", "voms.example.org").is_none());
        assert!(servers.server("ATLAS", "voms.cern.ch").is_none());
        assert_eq!(servers.organizations().collect::<Vec<_>>(), ["atlas"]);
    }
}
