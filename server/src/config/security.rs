//! Certificates, trust and maps: the files in use, and settings that do not fit together.

use std::path::PathBuf;

use gridhaul_security::tls::TlsVersions;

use super::authorization::Rule;
use super::error::ConfigError;
use super::globus_tls;
use super::places::{Found, HostFiles};
use super::ranges::count;
use super::settings::Settings;
use super::values::KeyKind;

/// How identities are proved, and which protection is required.
#[derive(Debug, Clone, PartialEq)]
pub struct Security {
    /// The server's own credential. Without it there is neither GSI nor TLS.
    pub host: Option<HostFiles>,
    /// `AUTH GSSAPI`, if it is offered.
    pub gsi: Option<Gsi>,
    /// Whether `AUTH TLS` is offered.
    pub tls: bool,
    /// Data channels must be encrypted.
    pub encrypt_data: bool,
    /// Data channels of GSI sessions must be authenticated: no `DCAU N`.
    pub require_dcau: bool,
    /// The limit of handshakes in progress with one address.
    pub handshakes_per_address: usize,
    /// The limit of failed handshakes of one address in a minute.
    pub failed_handshakes: usize,
}

/// Logins with certificates.
#[derive(Debug, Clone, PartialEq)]
pub struct Gsi {
    /// The directory of certificate authorities.
    pub trust: PathBuf,
    /// The grid-mapfile.
    pub gridmap: Option<PathBuf>,
    /// The directory of trusted VOMS servers.
    pub vomsdir: Option<PathBuf>,
    /// Lists of users who are refused.
    pub ban_lists: Vec<PathBuf>,
    /// The file in which globus-gridftp-server finds its callouts.
    pub gsi_authz: PathBuf,
    /// Callouts that it names are ignored.
    pub ignore_gsi_authz: bool,
    /// The rules for identities, in order; never empty.
    pub rules: Vec<Rule>,
    /// Independent proxies are admitted.
    pub allow_independent_proxies: bool,
    /// The keys of delegated credentials.
    pub delegation_keys: KeyKind,
    /// The versions of TLS.
    pub tls_versions: TlsVersions,
}

/// The security settings, with defaults.
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
        handshakes_per_address: count(
            "max-handshakes-per-address",
            settings.max_handshakes_per_address,
            200,
        )?,
        failed_handshakes: count("max-failed-handshakes", settings.max_failed_handshakes, 100)?,
    })
}

/// The certificate and the key: the configured files, or those in the default places if GSI or TLS needs them.
fn host(
    settings: &mut Settings,
    wants_gsi: bool,
    found: &Found,
) -> Result<Option<HostFiles>, ConfigError> {
    let passphrase = settings.key_passphrase.take();
    let named = passphrase.is_some();
    let passphrase = passphrase.or_else(|| found.passphrase.clone());
    match (settings.cert.take(), settings.key.take()) {
        (Some(certificates), key) => Ok(Some(HostFiles {
            key: key.unwrap_or_else(|| certificates.clone()),
            certificates,
            passphrase,
        })),
        (None, Some(_)) => Err(ConfigError::Needs("key", "--cert")),
        (None, None) if wants_gsi || settings.tls == Some(true) => match &found.host {
            Some(host) => Ok(Some(HostFiles {
                passphrase,
                ..host.clone()
            })),
            None => Err(ConfigError::NoCertificate),
        },
        (None, None) if named => Err(ConfigError::Needs("key-passphrase", "--cert")),
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
    // A callout may name the accounts.
    let is_mapped = rules.iter().any(Rule::is_mapped) && settings.authz_callout.is_none();
    if is_mapped && gridmap.is_none() {
        return Err(ConfigError::NoGridmap);
    }
    if rules.iter().any(Rule::asks_for_attributes) && vomsdir.is_none() {
        return Err(ConfigError::NoVomsdir);
    }
    Ok(Gsi {
        trust,
        gridmap,
        vomsdir,
        ban_lists: settings.ban_list.take().unwrap_or_default(),
        gsi_authz: found
            .gsi_authz
            .clone()
            .unwrap_or_else(|| PathBuf::from("/etc/grid-security/gsi-authz.conf")),
        ignore_gsi_authz: settings.ignore_gsi_authz.unwrap_or(false),
        rules,
        allow_independent_proxies: settings.allow_independent_proxies.unwrap_or(false),
        delegation_keys: settings.delegation_keys.unwrap_or_default(),
        tls_versions: match settings.tls_versions {
            Some(range) => range.0,
            None => globus_tls::of_machine()?,
        },
    })
}

/// Settings for GSI without `gsi` are a mistake.
fn without_gsi(settings: &Settings) -> Result<(), ConfigError> {
    let said = [
        ("trust", settings.trust.is_some()),
        ("gridmap", settings.gridmap.is_some()),
        ("vomsdir", settings.vomsdir.is_some()),
        ("ban-list", settings.ban_list.is_some()),
        ("gridmapdir", settings.gridmapdir.is_some()),
        ("authz-callout", settings.authz_callout.is_some()),
        ("ignore-gsi-authz", settings.ignore_gsi_authz == Some(true)),
        ("authorize", settings.authorize.is_some()),
        (
            "allow-independent-proxies",
            settings.allow_independent_proxies == Some(true),
        ),
        ("tls-versions", settings.tls_versions.is_some()),
        ("delegation-keys", settings.delegation_keys.is_some()),
        ("require-dcau", settings.require_dcau == Some(true)),
    ];
    match said.into_iter().find(|(_, said)| *said) {
        Some((name, _)) => Err(ConfigError::Needs(name, "--gsi")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn files(certificates: &str, key: &str) -> Option<HostFiles> {
        Some(HostFiles {
            certificates: certificates.into(),
            key: key.into(),
            passphrase: None,
        })
    }

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
            gridmapdir: None,
            gsi_authz: None,
            passphrase: None,
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
}
