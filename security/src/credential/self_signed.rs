//! Self-signed credentials, for two ends that both have them (`DCSC P`).

use std::time::{Duration, SystemTime};

use aws_lc_rs::digest::{SHA256, digest};

use super::{Credential, CredentialError};
use crate::certificate::{Certificate, KEY_USAGE};
use crate::encode::{
    BIT_STRING, COMMON_NAME, INTEGER, SEQUENCE, Unsigned, attribute, element, extension, validity,
};
use crate::key::{KeyError, PrivateKey};

/// By how much the certificate becomes valid earlier, for machines whose clocks are slow.
const CLOCK_SKEW: Duration = Duration::from_secs(3600);

/// `digitalSignature`, `keyEncipherment` and `keyCertSign` (RFC 5280 4.2.1.3), with the number of unused bits before them. OpenSSL takes a
/// certificate without the last one for one of another issuer.
const KEY_USES: [u8; 2] = [2, 0xa4];

impl Credential {
    /// A new self-signed credential with this common name, for this time. Its key can be exported. Takes tens of milliseconds: the key
    /// is one of RSA, which all servers have.
    ///
    /// # Errors
    ///
    /// When no key can be made, or the clock is centuries away.
    pub fn self_signed(
        name: &str,
        now: SystemTime,
        life: Duration,
    ) -> Result<Self, CredentialError> {
        let key = PrivateKey::generate_rsa()?;
        let name = element(SEQUENCE, &[&attribute(&COMMON_NAME, name)]);
        let uses = element(BIT_STRING, &[&KEY_USES]);
        let validity = validity(now - CLOCK_SKEW, now + life);
        let key_info = key.public_key_info();
        // RFC 5280 4.1.2.2: positive, and at most 20 bytes. It is new because the key is.
        let mut serial = [0; 16];
        serial.copy_from_slice(&digest(&SHA256, &key_info).as_ref()[..16]);
        serial[0] = serial[0] & 0x3f | 0x40;
        let unsigned = Unsigned {
            serial: &element(INTEGER, &[&serial]),
            issuer: &name,
            validity: &validity.map_err(|error| KeyError::Signature(error.to_string()))?,
            subject: &name,
            key_info: &key_info,
            extensions: &element(SEQUENCE, &[&extension(&KEY_USAGE, true, &uses)]),
        };
        let certificate = Certificate::from_der(&unsigned.sign(&key)?)?;
        Self::new(vec![certificate], key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::credential::credential_pem;

    #[test]
    fn a_self_signed_credential_can_be_given_away() {
        let now = SystemTime::now();
        let life = Duration::from_secs(3600);
        let credential = Credential::self_signed("data channels", now, life).expect("made");
        assert_eq!(credential.identity().one_line(), "/CN=data channels");
        assert!(credential.expires() > now && credential.expires() <= now + life);
        let pem = credential_pem(credential.key(), credential.chain()).expect("exported");
        let given = Credential::of_session(&pem).expect("a credential");
        assert_eq!(given.leaf().der(), credential.leaf().der());
    }
}
