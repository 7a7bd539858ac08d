//! The default paths of certificates, trust and maps: those of globus-gridftp-server.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// The files of the server's own credential. Both may be the same file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostFiles {
    /// The certificate, and those of its issuers.
    pub certificates: PathBuf,
    /// The private key.
    pub key: PathBuf,
    /// The file with the passphrase of the key.
    pub passphrase: Option<PathBuf>,
}

impl HostFiles {
    /// One file that has both, without a passphrase.
    pub(crate) fn one(path: &Path) -> Self {
        Self {
            certificates: path.to_owned(),
            key: path.to_owned(),
            passphrase: None,
        }
    }
}

/// Where the identity of an enrolled data node is, unless it is said.
pub(super) const NODE_IDENTITY: &str = "/etc/gridhaul/node-identity.pem";

/// The files that exist in the places of globus-gridftp-server, and in ours.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) host: Option<HostFiles>,
    pub(super) trust: Option<PathBuf>,
    pub(super) gridmap: Option<PathBuf>,
    pub(super) vomsdir: Option<PathBuf>,
    pub(super) gridmapdir: Option<PathBuf>,
    pub(super) gsi_authz: Option<PathBuf>,
    pub(super) node_identity: Option<PathBuf>,
    /// A credential of systemd (`LoadCredential=key-passphrase:...`).
    pub(super) passphrase: Option<PathBuf>,
}

/// Whether a host certificate and certificate authorities are in their places.
pub(crate) fn has_host_credential() -> bool {
    let found = Found::once();
    found.host.is_some() && found.trust.is_some()
}

/// The environment of a search.
struct Places<'a> {
    /// A variable of the environment.
    variable: &'a dyn Fn(&str) -> Option<OsString>,
    home: Option<PathBuf>,
    is_root: bool,
    exists: &'a dyn Fn(&Path) -> bool,
}

impl Found {
    /// Searches once: a reload may happen without root's rights, and would find other files than the start.
    pub(super) fn once() -> &'static Self {
        static FOUND: OnceLock<Found> = OnceLock::new();
        FOUND.get_or_init(|| {
            Self::look(&Places {
                variable: &|name| std::env::var_os(name),
                home: home(),
                is_root: rustix::process::geteuid().is_root(),
                exists: &Path::exists,
            })
        })
    }

    /// A variable counts even if its file does not exist, so that a mistake is reported. The order is that of
    /// globus-gsi-sysconfig 9.6.
    fn look(places: &Places<'_>) -> Self {
        let system = Path::new("/etc/grid-security");
        let globus = places.home.as_ref().map(|home| home.join(".globus"));
        let own_authz = places
            .home
            .as_ref()
            .map(|home| home.join(".gsi-authz.conf"));
        let gridmap = if places.is_root {
            None
        } else {
            places.home.as_ref().map(|home| home.join(".gridmap"))
        };
        Self {
            host: places.host(system, globus.as_deref()),
            trust: places.variable("X509_CERT_DIR").or_else(|| {
                places.first([
                    globus.map(|globus| globus.join("certificates")),
                    Some(system.join("certificates")),
                ])
            }),
            gridmap: places
                .variable("GRIDMAP")
                .or_else(|| places.first([gridmap, Some(system.join("grid-mapfile"))])),
            vomsdir: places
                .variable("X509_VOMS_DIR")
                .or_else(|| places.first([Some(system.join("vomsdir"))])),
            gridmapdir: places
                .variable("GRIDMAPDIR")
                .or_else(|| places.first([Some(system.join("gridmapdir"))])),
            gsi_authz: places
                .variable("GSI_AUTHZ_CONF")
                .or_else(|| places.first([Some(system.join("gsi-authz.conf")), own_authz])),
            node_identity: places.first([Some(PathBuf::from(NODE_IDENTITY))]),
            passphrase: places.first([places
                .variable("CREDENTIALS_DIRECTORY")
                .map(|directory| directory.join("key-passphrase"))]),
        }
    }
}

/// The home directory of the account, not of `HOME`, as in globus-gsi-sysconfig.
fn home() -> Option<PathBuf> {
    let account = nix::unistd::User::from_uid(nix::unistd::Uid::effective());
    Some(account.ok()??.dir)
}

impl Places<'_> {
    /// An empty variable counts as unset.
    fn variable(&self, name: &str) -> Option<PathBuf> {
        (self.variable)(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    }

    fn first<const N: usize>(&self, candidates: [Option<PathBuf>; N]) -> Option<PathBuf> {
        candidates
            .into_iter()
            .flatten()
            .find(|path| (self.exists)(path))
    }

    fn host(&self, system: &Path, globus: Option<&Path>) -> Option<HostFiles> {
        let named = self
            .variable("X509_USER_CERT")
            .zip(self.variable("X509_USER_KEY"));
        if let Some((certificates, key)) = named {
            return Some(HostFiles {
                certificates,
                key,
                passphrase: None,
            });
        }
        let installed = [Some(system), globus]
            .into_iter()
            .flatten()
            .map(|directory| HostFiles {
                certificates: directory.join("hostcert.pem"),
                key: directory.join("hostkey.pem"),
                passphrase: None,
            })
            .find(|host| (self.exists)(&host.certificates) && (self.exists)(&host.key));
        // A person who tries the server has a proxy, and no host certificate.
        installed.or_else(|| {
            self.variable("X509_USER_PROXY").map(|proxy| HostFiles {
                certificates: proxy.clone(),
                key: proxy,
                passphrase: None,
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is found with these variables and files.
    fn found(variables: &[(&str, &str)], files: &[&str], is_root: bool) -> Found {
        Found::look(&Places {
            variable: &|name| {
                let (_, value) = variables.iter().find(|(known, _)| *known == name)?;
                Some(OsString::from(value))
            },
            home: Some("/home/ann".into()),
            is_root,
            exists: &|path| files.iter().any(|file| Path::new(file) == path),
        })
    }

    fn files(certificates: &str, key: &str) -> Option<HostFiles> {
        Some(HostFiles {
            certificates: certificates.into(),
            key: key.into(),
            passphrase: None,
        })
    }

    #[test]
    fn variables_win_over_every_place() {
        let variables = [
            ("X509_USER_CERT", "/c.pem"),
            ("X509_USER_KEY", "/k.pem"),
            ("X509_CERT_DIR", "/ca"),
            ("GRIDMAP", "/map"),
            ("X509_VOMS_DIR", "/voms"),
        ];
        let installed = [
            "/etc/grid-security/hostcert.pem",
            "/etc/grid-security/hostkey.pem",
            "/etc/grid-security/certificates",
            "/etc/grid-security/grid-mapfile",
            "/etc/grid-security/vomsdir",
        ];
        let found = found(&variables, &installed, true);
        assert_eq!(found.host, files("/c.pem", "/k.pem"));
        assert_eq!(found.trust, Some("/ca".into()));
        assert_eq!(found.gridmap, Some("/map".into()));
        assert_eq!(found.vomsdir, Some("/voms".into()));
    }

    #[test]
    fn a_certificate_and_its_key_come_from_one_place() {
        let system = (
            "/etc/grid-security/hostcert.pem",
            "/etc/grid-security/hostkey.pem",
        );
        let home = (
            "/home/ann/.globus/hostcert.pem",
            "/home/ann/.globus/hostkey.pem",
        );
        let both = [system.0, system.1, home.0, home.1];
        assert_eq!(found(&[], &both, true).host, files(system.0, system.1));
        let half = [system.0, home.0, home.1];
        assert_eq!(found(&[], &half, true).host, files(home.0, home.1));
        let variables = [("X509_USER_CERT", "/c.pem")];
        assert_eq!(
            found(&variables, &both, true).host,
            files(system.0, system.1)
        );
        let proxy = [("X509_USER_PROXY", "/tmp/proxy")];
        assert_eq!(found(&proxy, &both, true).host, files(system.0, system.1));
        assert_eq!(
            found(&proxy, &[], true).host,
            files("/tmp/proxy", "/tmp/proxy")
        );
        assert_eq!(found(&[], &[], true), Found::default());
    }

    #[test]
    fn trust_at_home_comes_before_that_of_the_machine() {
        let (home, system) = (
            "/home/ann/.globus/certificates",
            "/etc/grid-security/certificates",
        );
        assert_eq!(found(&[], &[home, system], false).trust, Some(home.into()));
        assert_eq!(found(&[], &[system], false).trust, Some(system.into()));
        let empty = [("X509_CERT_DIR", "")];
        assert_eq!(found(&empty, &[system], false).trust, Some(system.into()));
    }

    #[test]
    fn the_map_at_home_is_not_for_root() {
        let (home, system) = ("/home/ann/.gridmap", "/etc/grid-security/grid-mapfile");
        let both = [home, system];
        assert_eq!(found(&[], &both, true).gridmap, Some(system.into()));
        assert_eq!(found(&[], &both, false).gridmap, Some(home.into()));
    }
}
