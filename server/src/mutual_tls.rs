//! The handshakes between control servers and data nodes, on sockets of the runtime.

use std::fmt::Display;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use gridhaul_security::host_name::HostName;
use gridhaul_security::tls::{
    HostAcceptor, HostConnector, HostSettings, HostVerifier, PeerFault, PeerIdentity, Principal,
    TlsError,
};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;
use tokio_rustls::{TlsAcceptor, TlsConnector, client, server};

/// Why there is no connection with a peer.
#[derive(Debug, thiserror::Error)]
pub enum MutualTlsError {
    /// One end refuses the other.
    #[error("{peer} {fault}")]
    Refused {
        /// The peer, as the caller names it.
        peer: String,
        /// The reason, and the remedy.
        fault: Box<PeerFault>,
    },
    /// The connection ended before the handshake was complete.
    #[error(
        "{peer} ends the connection during the TLS handshake ({error}): its log may have the reason"
    )]
    Ended {
        /// The peer, as the caller names it.
        peer: String,
        /// The underlying OS error.
        error: io::Error,
    },
    /// The peer is too slow.
    #[error("{peer} has not completed the TLS handshake within {} seconds", within.as_secs())]
    TooSlow {
        /// The peer, as the caller names it.
        peer: String,
        /// The time that it had.
        within: Duration,
    },
    /// The settings of this end cannot be used.
    #[error("no TLS with {peer}: {error}")]
    Settings {
        /// The peer, as the caller names it.
        peer: String,
        /// The reason.
        error: TlsError,
    },
}

/// Accepts a connection of one of these control servers. `peer` names it in errors.
///
/// # Errors
///
/// When the peer is none of them, or there is no handshake within the time.
pub async fn accept<S: AsyncRead + AsyncWrite + Unpin>(
    stream: S,
    peer: &impl Display,
    settings: &HostSettings,
    control_servers: &Arc<[Principal]>,
    within: Duration,
) -> Result<(server::TlsStream<S>, PeerIdentity), MutualTlsError> {
    let acceptor = HostAcceptor::new(settings, control_servers);
    let HostAcceptor { config, verifier } = acceptor.map_err(|error| unusable(peer, error))?;
    let handshake = TlsAcceptor::from(config).accept(stream);
    let stream = completed(timeout(within, handshake).await, peer, within, &verifier)?;
    let protocol = stream.get_ref().1.alpn_protocol();
    let identity = accepted(peer, &verifier, protocol)?;
    Ok((stream, identity))
}

/// Makes a connection with this node. `peer` names it in errors, with its port.
///
/// With TLS 1.3 this end is complete before the node has seen the certificate of this host (RFC 8446 4.4.4): its refusal comes
/// with the first read, where [`PeerFault::in_error`] finds it.
///
/// # Errors
///
/// When the peer is not that node, or there is no handshake within the time.
pub async fn connect<S: AsyncRead + AsyncWrite + Unpin>(
    stream: S,
    peer: &impl Display,
    host: HostName,
    settings: &HostSettings,
    within: Duration,
) -> Result<(client::TlsStream<S>, PeerIdentity), MutualTlsError> {
    let connector = HostConnector::new(settings, host).map_err(|error| unusable(peer, error))?;
    let name = connector.server_name();
    let HostConnector { config, verifier } = connector;
    let handshake = TlsConnector::from(config).connect(name, stream);
    let stream = completed(timeout(within, handshake).await, peer, within, &verifier)?;
    let protocol = stream.get_ref().1.alpn_protocol();
    let identity = accepted(peer, &verifier, protocol)?;
    Ok((stream, identity))
}

fn unusable(peer: &impl Display, error: TlsError) -> MutualTlsError {
    MutualTlsError::Settings {
        peer: peer.to_string(),
        error,
    }
}

fn completed<T, E>(
    handshake: Result<io::Result<T>, E>,
    peer: &impl Display,
    within: Duration,
    verifier: &HostVerifier,
) -> Result<T, MutualTlsError> {
    let peer = || peer.to_string();
    let Ok(handshake) = handshake else {
        return Err(MutualTlsError::TooSlow {
            peer: peer(),
            within,
        });
    };
    handshake.map_err(
        |error| match error.get_ref().and_then(|inner| inner.downcast_ref()) {
            Some(tls) => MutualTlsError::Refused {
                peer: peer(),
                fault: Box::new(verifier.fault(tls)),
            },
            None => MutualTlsError::Ended {
                peer: peer(),
                error,
            },
        },
    )
}

fn accepted(
    peer: &impl Display,
    verifier: &HostVerifier,
    protocol: Option<&[u8]>,
) -> Result<PeerIdentity, MutualTlsError> {
    verifier
        .accepted(protocol)
        .map_err(|fault| MutualTlsError::Refused {
            peer: peer.to_string(),
            fault: Box::new(fault),
        })
}

#[cfg(test)]
mod tests {
    use gridhaul_security::credential::Credential;
    use gridhaul_security::tls::TlsSettings;
    use gridhaul_security::trust::TrustBuilder;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    use super::*;

    const WITHIN: Duration = Duration::from_secs(10);

    /// Both ends have the certificate of `localhost`.
    fn settings() -> HostSettings {
        let pem = [
            &include_bytes!("security/samples/host.pem")[..],
            include_bytes!("security/samples/host.key"),
        ];
        let credential = Credential::from_pem(&pem.concat()).expect("a credential");
        let mut trust = TrustBuilder::default();
        trust.add("ca.pem", include_bytes!("security/samples/ca.pem"));
        let policy = include_bytes!("security/samples/ca.signing_policy");
        trust.add("ca.signing_policy", policy);
        let settings = TlsSettings::new(Arc::new(credential), Arc::new(trust.build().0));
        HostSettings::try_from(&settings).expect("a host's")
    }

    fn own(settings: &HostSettings) -> Arc<[Principal]> {
        Principal::of_own(settings.certificate.certificate()).into()
    }

    fn host(name: &str) -> HostName {
        name.parse().expect("a name")
    }

    #[tokio::test]
    async fn both_ends_know_each_other_and_exchange_data() {
        let (here, there) = duplex(1024);
        let settings = settings();
        let listed = own(&settings);
        let node = accept(there, &"192.0.2.1:50000", &settings, &listed, WITHIN);
        let name = "localhost:7512";
        let control = connect(here, &name, host("localhost"), &settings, WITHIN);
        let (node, control) = tokio::join!(node, control);
        let (mut node, of_control) = node.expect("accepted");
        let (mut control, of_node) = control.expect("accepted");
        assert_eq!(of_control, of_node);
        assert_eq!(of_node.hosts, ["localhost"]);
        control.write_all(b"request").await.expect("sent");
        control.flush().await.expect("sent");
        let mut received = [0; 7];
        node.read_exact(&mut received).await.expect("received");
        assert_eq!(&received, b"request");
    }

    #[tokio::test]
    async fn a_refusal_names_both_hosts_and_reaches_the_other_end() {
        let settings = settings();
        let listed = own(&settings);
        let (here, there) = duplex(1024);
        let node = accept(there, &"192.0.2.1:50000", &settings, &listed, WITHIN);
        let name = "dtn2.example.org:7512";
        let control = connect(here, &name, host("dtn2.example.org"), &settings, WITHIN);
        let (node, control) = tokio::join!(node, control);
        let control = control.expect_err("another host").to_string();
        let begin = "dtn2.example.org:7512 presents the certificate of localhost, not of";
        assert!(control.starts_with(begin), "{control}");
        let node = node.expect_err("refused").to_string();
        assert!(node.starts_with("192.0.2.1:50000 refuses"), "{node}");

        let (here, there) = duplex(1024);
        let others: Arc<[Principal]> = Arc::new([Principal::Host(host("ctl.example.org"))]);
        let node = accept(there, &"192.0.2.1:50000", &settings, &others, WITHIN);
        let control = async {
            let name = "localhost:7512";
            let connected = connect(here, &name, host("localhost"), &settings, WITHIN);
            let (mut stream, _) = connected.await.expect("this end is complete");
            stream.read_u8().await.expect_err("refused")
        };
        let (node, control) = tokio::join!(node, control);
        let node = node.expect_err("not listed").to_string();
        assert!(node.contains("control-servers"), "{node}");
        let subject = settings.certificate.certificate().subject();
        let fault = PeerFault::in_error(&control, subject).expect("the alert");
        assert!(fault.to_string().contains("access denied"), "{fault}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_says_nothing_ends_or_speaks_no_tls_is_told_apart() {
        let settings = settings();
        let listed = own(&settings);
        let accepted = async |there| {
            let node = accept(there, &"192.0.2.1:50000", &settings, &listed, WITHIN);
            node.await.expect_err("no handshake").to_string()
        };
        let (_here, there) = duplex(1024);
        let text = accepted(there).await;
        assert!(text.contains("within 10 seconds"), "{text}");
        let (here, there) = duplex(1024);
        drop(here);
        let text = accepted(there).await;
        assert!(text.contains("ends the connection"), "{text}");
        let (mut here, there) = duplex(1024);
        here.write_all(b"GET / HTTP/1.1\r\n\r\n")
            .await
            .expect("sent");
        let text = accepted(there).await;
        assert!(text.contains("does not speak TLS"), "{text}");
    }
}
