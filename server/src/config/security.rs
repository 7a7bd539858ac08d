//! Certificates, trust and maps: the files in use, and settings that do not fit together.

use std::path::PathBuf;

use gridhaul_security::tls::TlsVersions;

use super::authorization::Rule;
use super::error::ConfigError;
use super::globus_tls;
use super::places::{Found, HostFiles};
use super::ranges::{count, not_empty};
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
    /// The rules for identities, in order; empty only in a data node, which logs no users in.
    pub rules: Vec<Rule>,
    /// Independent proxies are admitted.
    pub allow_independent_proxies: bool,
    /// The keys of delegated credentials.
    pub delegation_keys: KeyKind,
    /// The versions of TLS.
    pub tls_versions: TlsVersions,
}

/// The security settings, with defaults.
pub(super) fn resolve(errors: &mut Vec<ConfigError>, settings: &mut Settings) -> Security {
    resolve_with(errors, settings, Found::once())
}

fn resolve_with(errors: &mut Vec<ConfigError>, settings: &mut Settings, found: &Found) -> Security {
    let wants_gsi = settings.gsi.unwrap_or(false);
    let wanted_by = match settings.tls {
        _ if wants_gsi => Some("gsi"),
        Some(true) => Some("tls"),
        _ => None,
    };
    let host = host(errors, settings, wanted_by, found);
    let gsi = if wants_gsi {
        gsi(errors, settings, found)
    } else {
        without_gsi(errors, settings);
        None
    };
    let others_log_in = settings.anonymous.unwrap_or(false) || settings.passwords.is_some();
    let tls = match settings.tls {
        Some(tls) => tls,
        None => host.is_some() && others_log_in,
    };
    let encrypt_data = settings.encrypt_data.unwrap_or(false);
    if encrypt_data && !tls && !wants_gsi {
        errors.push(ConfigError::Needs("encrypt-data", "--gsi or --tls"));
    }
    let handshakes = settings.max_handshakes_per_address;
    let failed = settings.max_failed_handshakes;
    Security {
        host,
        gsi,
        tls,
        encrypt_data,
        require_dcau: settings.require_dcau.unwrap_or(false),
        handshakes_per_address: count(errors, "max-handshakes-per-address", handshakes, 200),
        failed_handshakes: count(errors, "max-failed-handshakes", failed, 100),
    }
}

/// The security of a data node: its certificate, and the authorities that it trusts. It logs no users in.
/// An enrolled one needs neither, but for data channels.
pub(super) fn resolve_node(
    errors: &mut Vec<ConfigError>,
    settings: &mut Settings,
    is_enrolled: bool,
) -> Security {
    let found = Found::once();
    let host = match (is_enrolled, &settings.cert, &found.host) {
        (true, None, None) if settings.key.is_none() => None,
        _ => host(errors, settings, Some("node"), found),
    };
    let trust = settings.trust.take().or_else(|| found.trust.clone());
    if trust.is_none() && !is_enrolled {
        errors.push(ConfigError::NoTrust("node"));
    }
    let tls_versions = tls_versions(errors, settings);
    let gsi = trust.zip(tls_versions).map(|(trust, tls_versions)| Gsi {
        trust,
        gridmap: None,
        vomsdir: None,
        ban_lists: Vec::new(),
        gsi_authz: PathBuf::new(),
        ignore_gsi_authz: true,
        rules: Vec::new(),
        allow_independent_proxies: false,
        delegation_keys: KeyKind::default(),
        tls_versions,
    });
    Security {
        host,
        gsi,
        tls: false,
        encrypt_data: false,
        require_dcau: false,
        handshakes_per_address: 1,
        failed_handshakes: 1,
    }
}

fn tls_versions(errors: &mut Vec<ConfigError>, settings: &Settings) -> Option<TlsVersions> {
    let versions = match settings.tls_versions {
        Some(range) => Ok(range.0),
        None => globus_tls::of_machine(),
    };
    versions.map_err(|error| errors.push(error)).ok()
}

/// The certificate and the key: the configured files, or those in the default places if a part of the server needs them.
fn host(
    errors: &mut Vec<ConfigError>,
    settings: &mut Settings,
    wanted_by: Option<&'static str>,
    found: &Found,
) -> Option<HostFiles> {
    let passphrase = settings.key_passphrase.take();
    let is_named = passphrase.is_some();
    let passphrase = passphrase.or_else(|| found.passphrase.clone());
    match (settings.cert.take(), settings.key.take()) {
        (Some(certificates), key) => Some(HostFiles {
            key: key.unwrap_or_else(|| certificates.clone()),
            certificates,
            passphrase,
        }),
        (None, Some(_)) => {
            errors.push(ConfigError::Needs("key", "--cert"));
            None
        }
        (None, None) => {
            let Some(wanted_by) = wanted_by else {
                if is_named {
                    errors.push(ConfigError::Needs("key-passphrase", "--cert"));
                }
                return None;
            };
            if found.host.is_none() {
                errors.push(ConfigError::NoCertificate(wanted_by));
            }
            found
                .host
                .clone()
                .map(|host| HostFiles { passphrase, ..host })
        }
    }
}

/// `None` with an error.
fn gsi(errors: &mut Vec<ConfigError>, settings: &mut Settings, found: &Found) -> Option<Gsi> {
    if settings.root.is_none() {
        errors.push(ConfigError::NoRoot);
    }
    let trust = settings.trust.take().or_else(|| found.trust.clone());
    if trust.is_none() {
        errors.push(ConfigError::NoTrust("gsi"));
    }
    let gridmap = settings.gridmap.take().or_else(|| found.gridmap.clone());
    let vomsdir = settings.vomsdir.take().or_else(|| found.vomsdir.clone());
    let rules = not_empty(errors, "authorize", settings.authorize.take());
    if settings.authz_callout_timeout.is_some() && settings.authz_callout.is_none() {
        let error = ConfigError::Needs("authz-callout-timeout", "--authz-callout");
        errors.push(error);
    }
    let rules = rules.unwrap_or_else(|| vec![Rule::gridmap()]);
    // A callout may name the accounts.
    let is_mapped = rules.iter().any(Rule::is_mapped) && settings.authz_callout.is_none();
    if is_mapped && gridmap.is_none() {
        errors.push(ConfigError::NoGridmap);
    }
    if rules.iter().any(Rule::asks_for_attributes) && vomsdir.is_none() {
        errors.push(ConfigError::NoVomsdir);
    }
    let tls_versions = tls_versions(errors, settings);
    Some(Gsi {
        trust: trust?,
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
        tls_versions: tls_versions?,
    })
}

/// Settings for GSI without `gsi` are a mistake.
fn without_gsi(errors: &mut Vec<ConfigError>, settings: &Settings) {
    let said = [
        ("trust", settings.trust.is_some()),
        ("gridmap", settings.gridmap.is_some()),
        ("vomsdir", settings.vomsdir.is_some()),
        ("ban-list", settings.ban_list.is_some()),
        ("gridmapdir", settings.gridmapdir.is_some()),
        ("authz-callout", settings.authz_callout.is_some()),
        (
            "authz-callout-timeout",
            settings.authz_callout_timeout.is_some(),
        ),
        ("ignore-gsi-authz", settings.ignore_gsi_authz == Some(true)),
        ("authorize", settings.authorize.is_some()),
        (
            "allow-independent-proxies",
            settings.allow_independent_proxies == Some(true),
        ),
        ("tls-versions", settings.tls_versions.is_some()),
        ("delegation-keys", settings.delegation_keys.is_some()),
        ("require-dcau", settings.require_dcau == Some(true)),
        ("allow-root", settings.allow_root == Some(true)),
        (
            "allow-disabled-login",
            settings.allow_disabled_login == Some(true),
        ),
        ("least-uid", settings.least_uid.is_some()),
        ("pam-service", settings.pam_service.is_some()),
        ("umask", settings.umask.is_some()),
        ("max-brokers", settings.max_brokers.is_some()),
        (
            "broker-idle-timeout",
            settings.broker_idle_timeout.is_some(),
        ),
    ];
    let said = said.into_iter().filter(|(_, said)| *said);
    errors.extend(said.map(|(name, _)| ConfigError::Needs(name, "--gsi")));
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
            node_identity: None,
            passphrase: None,
        }
    }

    fn rules(text: &str) -> Option<Vec<Rule>> {
        let settings: Settings = toml::from_str(text).expect(text);
        settings.authorize
    }

    fn refused(mut settings: Settings, found: &Found) -> String {
        let mut errors = Vec::new();
        resolve_with(&mut errors, &mut settings, found);
        let errors: Vec<_> = errors.iter().map(ToString::to_string).collect();
        assert!(!errors.is_empty(), "refused");
        errors.join("\n")
    }

    fn accepted(mut settings: Settings, found: &Found) -> Security {
        let mut errors = Vec::new();
        let security = resolve_with(&mut errors, &mut settings, found);
        assert!(errors.is_empty(), "{errors:?}");
        security
    }

    #[test]
    fn what_is_named_wins_over_what_is_found() {
        let security = accepted(with_gsi(), &everything());
        let gsi = security.gsi.expect("asked for");
        assert_eq!(security.host, files("/host/cert", "/host/key"));
        assert_eq!(gsi.gridmap, Some("/map".into()));
        assert_eq!(gsi.rules, [Rule::gridmap()]);
        let settings = Settings {
            cert: Some("/own".into()),
            gridmap: Some("/own/map".into()),
            ..with_gsi()
        };
        let security = accepted(settings, &everything());
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
        accepted(by_name.clone(), &found);
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
        let offers = |settings: Settings| accepted(settings, &everything()).tls;
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
