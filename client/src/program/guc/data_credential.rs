//! `-data-cred`: the credential of data channels.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use gridhaul_security::credential::Credential;
use gridhaul_security::files::read_session_credential;

use super::{GucError, Request};
use crate::session::DataCredential;

/// The value for a self-signed credential that is made for these copies.
const AUTO: &str = "auto";

/// Longer than any run. Data channels that are opened later would fail.
const LIFE: Duration = Duration::from_secs(30 * 24 * 3600);

impl Request {
    /// What servers are given for their data channels.
    pub(super) fn data_credential(&self) -> Result<Option<Arc<DataCredential>>, GucError> {
        let Some(value) = &self.data_credential else {
            return Ok(None);
        };
        let failed = |reason: String| GucError::DataCredential(value.display().to_string(), reason);
        let is_temporary = value.as_os_str() == AUTO;
        let credential = match is_temporary {
            true => Credential::self_signed("gridhaul data channels", SystemTime::now(), LIFE)
                .map_err(|error| error.to_string()),
            false => read(value),
        };
        let given = DataCredential::new(credential.map_err(failed)?, is_temporary);
        let given = given.map_err(|error| failed(error.to_string()))?;
        Ok(Some(Arc::new(given)))
    }
}

fn read(file: &Path) -> Result<Credential, String> {
    let read = read_session_credential(file).map_err(|error| error.to_string())?;
    match read.expires() <= SystemTime::now() {
        true => Err("it has expired".to_owned()),
        false => Ok(read),
    }
}
