//! Why the handshake between two hosts fails, in words.

use std::error::Error;
use std::io;
use std::time::SystemTime;

use rustls::AlertDescription;

use super::{RefusedChain, TlsVersions};
use crate::host_name::HostName;
use crate::name::Name;
use crate::trust::ChainError;

/// What is wrong with a peer. The text is a predicate: the peer's name goes before it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PeerFault {
    /// Its chain is not accepted.
    #[error("presents a certificate that is not accepted: {0}{hint}", hint = clocks(&.0.reason))]
    Chain(Box<RefusedChain>),
    /// It has a proxy, which users have.
    #[error(
        "presents the proxy {proxy} of {identity}: proxies are refused between hosts; it needs a host certificate"
    )]
    Proxy {
        /// The subject of the proxy.
        proxy: Name,
        /// Who made the first proxy.
        identity: Name,
    },
    /// The certificate is for other hosts.
    #[error(
        "presents the certificate of {}, not of {wanted}: name the host as in its certificate ({subject}), or have one issued \
         for {wanted}", of(.hosts, .subject)
    )]
    OtherHost {
        /// The host that was dialled.
        wanted: HostName,
        /// The subject of its certificate.
        subject: Name,
        /// The hosts that the certificate is for.
        hosts: Vec<String>,
    },
    /// It is none of the control servers.
    #[error(
        "presents the certificate {identity} ({}), which is no control server of this node: if it is one, name it in \
         control-servers", of(.hosts, .identity)
    )]
    NotListed {
        /// Its identity.
        identity: Name,
        /// The hosts that the certificate is for.
        hosts: Vec<String>,
    },
    /// It has sent no certificate.
    #[error("presents no certificate: control servers and nodes need one each")]
    NoCertificate,
    /// It ended the handshake with an alert that is about the certificate of this host.
    #[error("refuses the certificate {own} of this host ({}): its log has the reason", alert_text(*.alert))]
    RefusesOurs {
        /// The subject of the certificate of this host.
        own: Name,
        /// The alert.
        alert: AlertDescription,
    },
    /// There is no common version of TLS.
    #[error("has no version of TLS in common with this host, which has {}: compare tls-versions of both", versions(*.own))]
    Versions {
        /// The versions of this host.
        own: TlsVersions,
    },
    /// Another protocol than HTTP/2 is spoken inside.
    #[error("does not speak HTTP/2 over TLS (ALPN h2), so it is no node and no control server")]
    OtherProtocol,
    /// It does not speak TLS.
    #[error("does not speak TLS: is there another service at this port?")]
    NoTls,
    /// It violated the protocol.
    #[error("fails the handshake: {0}")]
    Protocol(String),
}

impl PeerFault {
    /// Whether the peer was accepted before: its certificate, or the revocation list of its authority, has only ended.
    pub fn is_end(&self) -> bool {
        self.end().is_some()
    }

    /// When that was.
    pub(super) fn end(&self) -> Option<SystemTime> {
        let Self::Chain(refused) = self else {
            return None;
        };
        match refused.reason {
            ChainError::Expired { until, .. } | ChainError::RevocationListExpired { until, .. } => {
                Some(until)
            }
            _ => None,
        }
    }

    /// Whether time does not change it.
    pub(super) fn is_for_good(&self) -> bool {
        match self {
            Self::NotListed { .. } | Self::OtherHost { .. } => true,
            Self::Chain(refused) => matches!(refused.reason, ChainError::Revoked { .. }),
            _ => false,
        }
    }

    /// The reason for an error of rustls that is not about the peer's certificate.
    pub(super) fn of(error: &rustls::Error, own: &Name, versions: TlsVersions) -> Self {
        use rustls::PeerIncompatible as No;

        match error {
            rustls::Error::NoCertificatesPresented => Self::NoCertificate,
            rustls::Error::AlertReceived(AlertDescription::NoApplicationProtocol)
            | rustls::Error::NoApplicationProtocol => Self::OtherProtocol,
            rustls::Error::AlertReceived(AlertDescription::ProtocolVersion)
            | rustls::Error::PeerIncompatible(
                No::Tls12NotOffered
                | No::Tls12NotOfferedOrEnabled
                | No::Tls13RequiredForQuic
                | No::ServerDoesNotSupportTls12Or13
                | No::ServerTlsVersionIsDisabledByOurConfig
                | No::SupportedVersionsExtensionRequired,
            ) => Self::Versions { own: versions },
            rustls::Error::AlertReceived(alert) if is_about_certificate(*alert) => {
                Self::RefusesOurs {
                    own: own.clone(),
                    alert: *alert,
                }
            }
            rustls::Error::InvalidMessage(_) => Self::NoTls,
            other => Self::Protocol(other.to_string()),
        }
    }

    /// The alert of a peer that has refused the certificate of this host, in an error of a connection after the handshake: with
    /// TLS 1.3 a client's end is complete before the server has seen the client's certificate (RFC 8446 4.4.4).
    pub fn in_error(error: &(dyn Error + 'static), own: &Name) -> Option<Self> {
        let mut next = Some(error);
        while let Some(error) = next {
            if let Some(rustls::Error::AlertReceived(alert)) = error.downcast_ref()
                && is_about_certificate(*alert)
            {
                return Some(Self::RefusesOurs {
                    own: own.clone(),
                    alert: *alert,
                });
            }
            // The source of an io::Error is that of its content.
            let content = error
                .downcast_ref::<io::Error>()
                .and_then(io::Error::get_ref);
            next = content.map_or_else(|| error.source(), |content| Some(content));
        }
        None
    }
}

fn clocks(reason: &ChainError) -> &'static str {
    match reason {
        ChainError::NotYetValid { .. } | ChainError::RevocationListNotYetValid { .. } => {
            " Compare the clocks of both machines"
        }
        ChainError::Expired { .. } => "; if it has not, compare the clocks of both machines",
        _ => "",
    }
}

/// Hosts, or the subject of a certificate without any.
fn of(hosts: &[String], subject: &Name) -> String {
    match hosts {
        [] => format!("{subject}, which names no host"),
        hosts => hosts.join(", "),
    }
}

fn versions(versions: TlsVersions) -> &'static str {
    match versions {
        TlsVersions::From12To13 => "1.2 and 1.3",
        TlsVersions::Only12 => "1.2",
        TlsVersions::Only13 => "1.3",
    }
}

fn is_about_certificate(alert: AlertDescription) -> bool {
    matches!(
        alert,
        AlertDescription::BadCertificate
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::CertificateRevoked
            | AlertDescription::CertificateExpired
            | AlertDescription::CertificateUnknown
            | AlertDescription::UnknownCA
            | AlertDescription::AccessDenied
            | AlertDescription::CertificateRequired
    )
}

fn alert_text(alert: AlertDescription) -> String {
    match alert {
        AlertDescription::CertificateExpired => {
            "expired or not valid yet: compare the clocks of both machines".to_owned()
        }
        AlertDescription::CertificateRevoked => "revoked".to_owned(),
        AlertDescription::UnknownCA => "its authority is not trusted there".to_owned(),
        AlertDescription::AccessDenied => "access denied".to_owned(),
        other => format!("alert {other:?}"),
    }
}
