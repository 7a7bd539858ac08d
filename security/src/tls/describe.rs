//! The version and cipher suite of a connection, for the log.

use rustls::{ProtocolVersion, SupportedCipherSuite};

/// `TLS 1.3, TLS13_AES_256_GCM_SHA384`.
pub(super) fn describe(
    version: Option<ProtocolVersion>,
    suite: Option<SupportedCipherSuite>,
) -> String {
    let version = match version {
        Some(ProtocolVersion::TLSv1_3) => "TLS 1.3",
        Some(ProtocolVersion::TLSv1_2) => "TLS 1.2",
        _ => return "no TLS yet".to_owned(),
    };
    match suite.and_then(|suite| suite.suite().as_str()) {
        Some(suite) => format!("{version}, {suite}"),
        None => version.to_owned(),
    }
}
