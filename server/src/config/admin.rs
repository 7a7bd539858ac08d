//! The administration interface: where it listens, and who may use it.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use super::error::ConfigError;
use super::listen::ListenAddress;
use super::one_line;
use super::settings::Settings;

/// The administration interface. Only a restart changes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Administration {
    /// The address of the page and the interface over HTTP.
    pub listen: Option<SocketAddr>,
    /// The Unix socket.
    pub socket: AdminSocket,
    /// The file with the secret of administrators.
    pub token: Option<PathBuf>,
    /// The certificate of the page, for HTTPS.
    pub certificate: Option<PathBuf>,
    /// The private key of the certificate.
    pub key: Option<PathBuf>,
    /// The authorities of administrators' certificates.
    pub clients: Option<PathBuf>,
    /// The subjects that may use the interface; empty for all that the authorities have issued.
    pub subjects: Vec<String>,
    /// Names of this machine besides localhost and the host's name.
    pub names: Vec<String>,
}

/// The Unix socket of the administration interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AdminSocket {
    /// The place that follows from the account that starts the server.
    Default,
    /// There is none.
    None,
    /// A path.
    At(PathBuf),
}

impl Administration {
    /// No interface at all.
    pub(super) fn none() -> Self {
        Self {
            listen: None,
            socket: AdminSocket::None,
            token: None,
            certificate: None,
            key: None,
            clients: None,
            subjects: Vec::new(),
            names: Vec::new(),
        }
    }

    /// The file with the key of the certificate.
    pub fn key_file(&self) -> Option<&Path> {
        self.key.as_deref().or(self.certificate.as_deref())
    }
}

/// The settings of the administration interface.
///
/// The interface must not be open to the network: without TLS the token could be read on the path, and without a token or
/// certificates of clients there is no way to tell who asks.
pub(super) fn resolve(errors: &mut Vec<ConfigError>, settings: &mut Settings) -> Administration {
    let socket = socket(settings);
    let admin = Administration {
        listen: settings.admin_listen.map(ListenAddress::on_this_machine),
        socket,
        token: settings.admin_token.take(),
        certificate: settings.admin_cert.take(),
        key: settings.admin_key.take(),
        clients: settings.admin_clients.take(),
        subjects: settings.admin_subjects.take().unwrap_or_default(),
        names: settings.admin_names.take().unwrap_or_default(),
    };
    let listens = (admin.listen.is_some(), "admin-listen");
    let has_certificate = (admin.certificate.is_some(), "admin-cert");
    let knows_clients = (admin.clients.is_some(), "admin-clients");
    for (is_given, name, (is_there, needed)) in [
        (admin.token.is_some(), "admin-token", listens),
        (admin.certificate.is_some(), "admin-cert", listens),
        (admin.key.is_some(), "admin-key", has_certificate),
        (admin.clients.is_some(), "admin-clients", has_certificate),
        (!admin.names.is_empty(), "admin-names", listens),
        (!admin.subjects.is_empty(), "admin-subjects", knows_clients),
    ] {
        if is_given && !is_there {
            errors.push(ConfigError::Needs(name, needed));
        }
    }
    let subjects = admin.subjects.iter();
    let wrong = subjects.filter_map(|subject| one_line::check_subject(subject).err());
    errors.extend(wrong.map(ConfigError::AdminSubject));
    if let Some(address) = admin.listen
        && !address.ip().to_canonical().is_loopback()
    {
        let identifies = admin.token.is_some() || admin.clients.is_some();
        if admin.certificate.is_none() || !identifies {
            errors.push(ConfigError::OpenAdministration(address));
        }
    }
    admin
}

/// The Unix socket in settings.
pub(super) fn socket(settings: &mut Settings) -> AdminSocket {
    match settings.admin_socket.take() {
        None => AdminSocket::Default,
        Some(path) if path == Path::new("none") => AdminSocket::None,
        Some(path) => AdminSocket::At(path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolved(text: &str) -> Result<Administration, String> {
        let mut settings: Settings = toml::from_str(text).expect("valid");
        let mut errors = Vec::new();
        let admin = resolve(&mut errors, &mut settings);
        match errors.first() {
            None => Ok(admin),
            Some(error) => Err(error.to_string()),
        }
    }

    #[test]
    fn an_address_of_the_network_needs_tls_and_a_way_to_tell_who_asks() {
        let open = "admin-listen = '0.0.0.0:8443'\n";
        let tls = "admin-cert = '/c'\nadmin-key = '/k'\n";
        for text in ["", tls, "admin-token = '/t'\n"] {
            let error = resolved(&format!("{open}{text}")).expect_err(text);
            assert!(error.contains("admin-listen 0.0.0.0:8443"), "{error}");
        }
        for text in ["admin-token = '/t'", "admin-clients = '/ca'"] {
            resolved(&format!("{open}{tls}{text}")).expect(text);
        }
        for address in ["127.0.0.1:1", "[::1]:1", "127.8.8.8:1"] {
            resolved(&format!("admin-listen = '{address}'")).expect(address);
        }
    }

    #[test]
    fn settings_without_an_effect_are_refused() {
        for (text, words) in [
            ("admin-token = '/t'", "admin-token needs admin-listen"),
            (
                "admin-listen = '[::1]:1'\nadmin-key = '/k'",
                "admin-key needs admin-cert",
            ),
            (
                "admin-listen = '[::1]:1'\nadmin-clients = '/k'",
                "admin-clients needs admin-cert",
            ),
        ] {
            let error = resolved(text).expect_err(text);
            assert!(error.starts_with(words), "{error}");
        }
    }

    #[test]
    fn the_socket_can_be_switched_off() {
        assert_eq!(resolved("").expect("valid").socket, AdminSocket::Default);
        let none = resolved("admin-socket = 'none'").expect("valid");
        assert_eq!(none.socket, AdminSocket::None);
        let at = resolved("admin-socket = '/run/a.sock'").expect("valid");
        assert_eq!(at.socket, AdminSocket::At("/run/a.sock".into()));
    }
}
