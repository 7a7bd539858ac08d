//! Certificates, trust and maps: where they are when nobody says so, and what does not fit together.
//!
//! The places are those of globus-gridftp-server, so that a site need not name them again.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use gridhaul_security::tls::TlsVersions;

use super::authorization::Rule;
use super::tls_versions;
use super::values::KeyKind;
use super::{ConfigError, Settings};

/// How identities are proved, and what is asked of those who prove one.
#[derive(Debug, Clone, PartialEq)]
pub struct Security {
    /// What the server proves its own identity with; without it there is neither GSI nor TLS.
    pub host: Option<HostFiles>,
    /// `AUTH GSSAPI`, if it is offered.
    pub gsi: Option<Gsi>,
    /// Whether `AUTH TLS` is offered.
    pub tls: bool,
    /// Data channels must be encrypted.
    pub encrypt_data: bool,
    /// Data channels of GSI sessions must be authenticated: no `DCAU N`.
    pub require_dcau: bool,
    /// Handshakes that may be under way with one address.
    pub handshakes_per_address: usize,
    /// Handshakes with one address that may fail in a minute.
    pub failed_handshakes: usize,
}

/// The files of the server's own credential; both may be the same one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostFiles {
    /// The certificate, and those of its issuers.
    pub certificates: PathBuf,
    /// The private key.
    pub key: PathBuf,
}

/// Who may log in with a certificate.
#[derive(Debug, Clone, PartialEq)]
pub struct Gsi {
    /// The directory of certificate authorities.
    pub trust: PathBuf,
    /// The grid-mapfile.
    pub gridmap: Option<PathBuf>,
    /// The directory of VOMS servers that are believed.
    pub vomsdir: Option<PathBuf>,
    /// What identities may use, the first rule that applies; never empty.
    pub rules: Vec<Rule>,
    /// The keys of delegated credentials.
    pub delegation_keys: KeyKind,
    /// The versions of TLS.
    pub tls_versions: TlsVersions,
}

/// What follows from the settings that are about security.
pub(super) fn resolve(settings: &mut Settings) -> Result<Security, ConfigError> {
    resolve_with(settings, Found::once())
}

fn resolve_with(settings: &mut Settings, found: &Found) -> Result<Security, ConfigError> {
    let wants_gsi = settings.gsi.unwrap_or(false);
    let host = host(settings, wants_gsi, found)?;
    let gsi = if wants_gsi {
        Some(gsi(settings, found)?)
    } else {
        without_gsi(settings)?;
        None
    };
    let others_log_in = settings.anonymous.unwrap_or(false) || settings.passwords.is_some();
    let tls = match settings.tls {
        Some(tls) => tls,
        None => host.is_some() && others_log_in,
    };
    let encrypt_data = settings.encrypt_data.unwrap_or(false);
    if encrypt_data && !tls && gsi.is_none() {
        return Err(ConfigError::Needs("encrypt-data", "--gsi or --tls"));
    }
    Ok(Security {
        host,
        gsi,
        tls,
        encrypt_data,
        require_dcau: settings.require_dcau.unwrap_or(false),
        handshakes_per_address: super::resolve::count(
            "max-handshakes-per-address",
            settings.max_handshakes_per_address,
            200,
        )?,
        failed_handshakes: super::resolve::count(
            "max-failed-handshakes",
            settings.max_failed_handshakes,
            100,
        )?,
    })
}

/// The certificate and the key: as they are named, else where they are found if anything needs them.
fn host(
    settings: &mut Settings,
    wants_gsi: bool,
    found: &Found,
) -> Result<Option<HostFiles>, ConfigError> {
    match (settings.cert.take(), settings.key.take()) {
        (Some(certificates), key) => Ok(Some(HostFiles {
            key: key.unwrap_or_else(|| certificates.clone()),
            certificates,
        })),
        (None, Some(_)) => Err(ConfigError::Needs("key", "--cert")),
        (None, None) if wants_gsi || settings.tls == Some(true) => match &found.host {
            Some(host) => Ok(Some(host.clone())),
            None => Err(ConfigError::NoCertificate),
        },
        (None, None) => Ok(None),
    }
}

fn gsi(settings: &mut Settings, found: &Found) -> Result<Gsi, ConfigError> {
    if settings.root.is_none() {
        return Err(ConfigError::NoRoot);
    }
    let trust = settings
        .trust
        .take()
        .or_else(|| found.trust.clone())
        .ok_or(ConfigError::NoTrust)?;
    let gridmap = settings.gridmap.take().or_else(|| found.gridmap.clone());
    let vomsdir = settings.vomsdir.take().or_else(|| found.vomsdir.clone());
    let rules = match settings.authorize.take() {
        Some(rules) if rules.is_empty() => return Err(ConfigError::Empty("authorize")),
        Some(rules) => rules,
        None => vec![Rule::gridmap()],
    };
    if rules.iter().any(Rule::is_mapped) && gridmap.is_none() {
        return Err(ConfigError::NoGridmap);
    }
    if rules.iter().any(Rule::asks_for_attributes) && vomsdir.is_none() {
        return Err(ConfigError::NoVomsdir);
    }
    Ok(Gsi {
        trust,
        gridmap,
        vomsdir,
        rules,
        delegation_keys: settings.delegation_keys.unwrap_or_default(),
        tls_versions: match settings.tls_versions {
            Some(range) => range.0,
            None => tls_versions::of_machine()?,
        },
    })
}

/// What is said about GSI, but not that there is to be any, was a mistake.
fn without_gsi(settings: &Settings) -> Result<(), ConfigError> {
    let said = [
        ("trust", settings.trust.is_some()),
        ("gridmap", settings.gridmap.is_some()),
        ("vomsdir", settings.vomsdir.is_some()),
        ("authorize", settings.authorize.is_some()),
        ("tls-versions", settings.tls_versions.is_some()),
        ("delegation-keys", settings.delegation_keys.is_some()),
        ("require-dcau", settings.require_dcau == Some(true)),
    ];
    match said.into_iter().find(|(_, said)| *said) {
        Some((name, _)) => Err(ConfigError::Needs(name, "--gsi")),
        None => Ok(()),
    }
}

/// What is in the places where globus-gridftp-server looks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Found {
    host: Option<HostFiles>,
    trust: Option<PathBuf>,
    gridmap: Option<PathBuf>,
    vomsdir: Option<PathBuf>,
}

/// Where to look.
struct Places<'a> {
    /// A variable of the environment.
    variable: &'a dyn Fn(&str) -> Option<OsString>,
    home: Option<PathBuf>,
    is_root: bool,
    exists: &'a dyn Fn(&Path) -> bool,
}

impl Found {
    /// Looks once: when the configuration is read again, root's rights may be gone, and other places
    /// would be found than at the start.
    fn once() -> &'static Self {
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

    /// What a variable names is taken as it is, so that a mistake in it is reported and not passed
    /// over. The order is that of globus-gsi-sysconfig 9.6.
    fn look(places: &Places<'_>) -> Self {
        let system = Path::new("/etc/grid-security");
        let globus = places.home.as_ref().map(|home| home.join(".globus"));
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
        }
    }
}

/// The account's, and not what `HOME` says: so does globus-gsi-sysconfig.
fn home() -> Option<PathBuf> {
    let account = nix::unistd::User::from_uid(nix::unistd::Uid::effective());
    Some(account.ok()??.dir)
}

impl Places<'_> {
    /// An empty variable says nothing.
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
            return Some(HostFiles { certificates, key });
        }
        let installed = [Some(system), globus]
            .into_iter()
            .flatten()
            .map(|directory| HostFiles {
                certificates: directory.join("hostcert.pem"),
                key: directory.join("hostkey.pem"),
            })
            .find(|host| (self.exists)(&host.certificates) && (self.exists)(&host.key));
        // A person who tries the server out has a proxy, and no host certificate.
        installed.or_else(|| {
            self.variable("X509_USER_PROXY").map(|proxy| HostFiles {
                certificates: proxy.clone(),
                key: proxy,
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_gsi() -> Settings {
        Settings {
            root: Some("/".into()),
            gsi: Some(true),
            ..Settings::default()
        }
    }

    /// What is installed on a machine that has everything.
    fn everything() -> Found {
        Found {
            host: files("/host/cert", "/host/key"),
            trust: Some("/ca".into()),
            gridmap: Some("/map".into()),
            vomsdir: Some("/voms".into()),
        }
    }

    fn rules(text: &str) -> Option<Vec<Rule>> {
        let settings: Settings = toml::from_str(text).expect(text);
        settings.authorize
    }

    fn refused(mut settings: Settings, found: &Found) -> String {
        let error = resolve_with(&mut settings, found).expect_err("refused");
        error.to_string()
    }

    #[test]
    fn what_is_named_wins_over_what_is_found() {
        let security = resolve_with(&mut with_gsi(), &everything()).expect("valid");
        let gsi = security.gsi.expect("asked for");
        assert_eq!(security.host, files("/host/cert", "/host/key"));
        assert_eq!(gsi.gridmap, Some("/map".into()));
        assert_eq!(gsi.rules, [Rule::gridmap()]);
        let mut settings = Settings {
            cert: Some("/own".into()),
            gridmap: Some("/own/map".into()),
            ..with_gsi()
        };
        let security = resolve_with(&mut settings, &everything()).expect("valid");
        assert_eq!(security.host, files("/own", "/own"));
        let gsi = security.gsi.expect("asked for");
        assert_eq!(gsi.gridmap, Some("/own/map".into()));
        assert_eq!(gsi.trust, Path::new("/ca"));
    }

    #[test]
    fn what_gsi_cannot_do_without_is_named() {
        let without_root = Settings {
            root: None,
            ..with_gsi()
        };
        assert!(refused(without_root, &everything()).contains("--root /"));
        let mut found = everything();
        found.vomsdir = None;
        let by_vo = Settings {
            authorize: rules("[[authorize]]\nvo = 'atlas'\naccount = 'atlas'"),
            ..with_gsi()
        };
        assert!(refused(by_vo.clone(), &found).contains("--vomsdir"));
        found.gridmap = None;
        assert!(refused(with_gsi(), &found).contains("--gridmap"));
        let by_name = Settings {
            authorize: rules("[[authorize]]\nidentity = '*'\naccount = 'grid'"),
            ..with_gsi()
        };
        resolve_with(&mut by_name.clone(), &found).expect("needs no map");
        found.trust = None;
        assert!(refused(by_name.clone(), &found).contains("--trust"));
        found.host = None;
        assert!(refused(by_name, &found).contains("--cert"));
    }

    #[test]
    fn settings_that_mean_nothing_alone_are_refused() {
        let none = Settings::default;
        for (settings, words) in [
            (
                Settings {
                    key: Some("/key".into()),
                    ..none()
                },
                "key needs --cert",
            ),
            (
                Settings {
                    gridmap: Some("/map".into()),
                    ..none()
                },
                "gridmap needs --gsi",
            ),
            (
                Settings {
                    authorize: rules("[[authorize]]\nidentity = '*'\nmap = true"),
                    ..none()
                },
                "authorize needs --gsi",
            ),
            (
                Settings {
                    encrypt_data: Some(true),
                    ..none()
                },
                "encrypt-data needs --gsi or --tls",
            ),
            (
                Settings {
                    authorize: Some(Vec::new()),
                    ..with_gsi()
                },
                "authorize is empty",
            ),
        ] {
            let error = refused(settings, &everything());
            assert!(error.contains(words), "{error}");
        }
    }

    #[test]
    fn tls_is_offered_with_a_certificate_to_those_who_log_in_by_name() {
        let offers = |settings: Settings| {
            resolve_with(&mut settings.clone(), &everything())
                .expect("valid")
                .tls
        };
        let anonymous = Settings {
            anonymous: Some(true),
            ..Settings::default()
        };
        let cert = Some(PathBuf::from("/own"));
        assert!(!offers(anonymous.clone()));
        assert!(!offers(with_gsi()));
        assert!(offers(Settings {
            cert,
            ..anonymous.clone()
        }));
        assert!(offers(Settings {
            tls: Some(true),
            ..anonymous.clone()
        }));
        assert!(offers(with_gsi().or(anonymous.clone())));
        let refused = Settings {
            tls: Some(false),
            ..anonymous
        };
        assert!(!offers(with_gsi().or(refused)));
    }

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
