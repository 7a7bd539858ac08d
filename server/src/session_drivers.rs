//! The drivers of sessions of other machines: this machine makes data channels for a session whose control channel is elsewhere.
//!
//! The other machine describes the driver as bytes ([`Driver::session_value`]). What belongs to the site does not travel: each
//! machine uses its own trust directory and its own host certificate.

use std::sync::Arc;

use gridhaul_gsi::{Ftps, Gsi};
use gridhaul_security::trust::TrustStore;
use gridhaul_stack::{Driver, RestoreError, SessionValue};
use rustls::ServerConfig;

/// The driver that a value describes. `trust` returns the trust of this machine, and `host_tls` the TLS configuration with its
/// certificate; each is called if the driver needs it, and may block.
///
/// # Errors
///
/// When this program has no such driver, the value is malformed, or this machine has no certificate for it.
pub fn restore(
    value: &SessionValue,
    trust: impl FnOnce() -> Arc<TrustStore>,
    host_tls: impl FnOnce() -> Option<Arc<ServerConfig>>,
) -> Result<Arc<dyn Driver>, RestoreError> {
    match value.name() {
        Gsi::NAME => Ok(Arc::new(Gsi::restore(value.bytes(), trust())?)),
        Ftps::NAME => {
            let config = host_tls().ok_or_else(no_certificate)?;
            Ok(Arc::new(Ftps::restore(value.bytes(), config)?))
        }
        name => Err(RestoreError::UnknownDriver(name.to_owned())),
    }
}

fn no_certificate() -> RestoreError {
    RestoreError::Machine {
        driver: Ftps::NAME,
        reason:
            "it has no host certificate; configure one (certificate, key), as on the other machine"
                .to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use gridhaul_security::credential::Credential;
    use zeroize::Zeroizing;

    use super::*;
    use crate::security::{chain, server_config};

    fn value(name: &str, bytes: &[u8]) -> SessionValue {
        SessionValue::new(name, Zeroizing::new(bytes.to_vec())).expect("short")
    }

    fn host() -> Option<Arc<ServerConfig>> {
        let certificate = include_bytes!("security/samples/host.pem").as_slice();
        let key = include_bytes!("security/samples/host.key").as_slice();
        let host = Credential::from_pem(&[certificate, key].concat()).expect("a sample");
        let config = server_config(chain(&host), host.key().signing_key()).expect("usable");
        Some(Arc::new(config))
    }

    fn refusal(value: &SessionValue, host: impl FnOnce() -> Option<Arc<ServerConfig>>) -> String {
        let error = restore(value, Arc::default, host).expect_err("refused");
        error.to_string()
    }

    #[test]
    fn ftps_presents_the_certificate_of_this_machine() {
        let sent = Ftps::new(host().expect("a configuration"));
        let sent = sent.session_value().expect("it can be sent");
        assert_eq!(sent, value("ftps", b""));
        let trust = || unreachable!("ftps has no trust");
        let driver = restore(&sent, trust, host).expect("restored");
        assert_eq!(driver.name(), "ftps");
        assert!(refusal(&sent, || None).contains("no host certificate"));
        assert!(refusal(&value("ftps", b"x"), host).contains("1 bytes"));
    }

    #[test]
    fn unknown_drivers_and_formats_are_refused() {
        let unknown = refusal(&value("tcp", b""), host);
        assert!(unknown.contains("no driver \"tcp\""), "{unknown}");
        let newer = refusal(&value("gsi", &[9]), host);
        assert!(newer.contains("has the format 9"), "{newer}");
    }
}
