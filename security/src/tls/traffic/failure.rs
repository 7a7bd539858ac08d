//! A failure of a connection, and the alert for the peer.

use rustls::AlertDescription;

use crate::tls::protection::RecordError;

/// A failure, and the alert that is sent for it, if any.
pub(super) struct Failure {
    pub(super) alert: Option<AlertDescription>,
    pub(super) reason: String,
}

impl Failure {
    pub(super) fn new(alert: AlertDescription, reason: impl Into<String>) -> Self {
        Self {
            alert: Some(alert),
            reason: reason.into(),
        }
    }
}

impl From<RecordError> for Failure {
    fn from(error: RecordError) -> Self {
        Self::new(error.alert(), error.to_string())
    }
}

impl From<rustls::Error> for Failure {
    fn from(error: rustls::Error) -> Self {
        Self::new(AlertDescription::InternalError, error.to_string())
    }
}
