//! Issues the certificates of control servers and nodes.

use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use aws_lc_rs::digest::{SHA256, digest};
use der::asn1::ObjectIdentifier;
use zeroize::Zeroizing;

use super::{AuthorityError, Role, subject};
use crate::certificate::{BASIC_CONSTRAINTS, Certificate, Fingerprint, KEY_USAGE};
use crate::credential::{Credential, credential_pem};
use crate::delegation::{requested, signed_request};
use crate::encode::{
    BIT_STRING, BOOLEAN, INTEGER, OCTET_STRING, SEQUENCE, Unsigned, element, extension, identifier,
    number, validity,
};
use crate::host_name::HostName;
use crate::key::{KeyError, PrivateKey};
use crate::name::Name;

const DAY: Duration = Duration::from_secs(24 * 3600);

/// An authority, and with it the certificate of its control server, whose key is beside that of the authority.
const LIFE_OF_AUTHORITY: Duration = DAY.saturating_mul(3650);

/// The certificate of a node, which cannot be revoked.
const LIFE_OF_NODE: Duration = DAY.saturating_mul(365);

/// By how much certificates become valid earlier, for machines whose clocks are slow.
const CLOCK_SKEW: Duration = Duration::from_secs(3600);

const EXTENDED_KEY_USAGE: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.29.37");
const SUBJECT_ALTERNATIVE_NAME: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.29.17");
const SUBJECT_KEY_IDENTIFIER: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.29.14");
const AUTHORITY_KEY_IDENTIFIER: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.29.35");
const SERVER_AUTH: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.6.1.5.5.7.3.1");
const CLIENT_AUTH: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.6.1.5.5.7.3.2");

/// Bits of a key usage (RFC 5280 4.2.1.3), with the number of unused bits before them.
const DIGITAL_SIGNATURE: [u8; 2] = [7, 0x80];
const KEY_CERT_SIGN: [u8; 2] = [2, 0x04];

/// The authority of the data nodes of a control server.
#[derive(Debug)]
pub struct NodeAuthority {
    credential: Credential,
}

impl NodeAuthority {
    /// A new authority, and the text of its file.
    ///
    /// # Errors
    ///
    /// When no key can be made.
    pub fn create(now: SystemTime) -> Result<(Self, Zeroizing<Vec<u8>>), AuthorityError> {
        let key = PrivateKey::generate_ec()?;
        let id: String = random::<8>()?
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        let name = subject::of_authority(&id);
        const TRUE: u8 = 0xff;
        let no_authority_below = element(SEQUENCE, &[&element(BOOLEAN, &[&[TRUE]]), &number(0)]);
        let key_identifier = element(OCTET_STRING, &[&key_identifier(&key.public_key_info())]);
        let extensions = element(
            SEQUENCE,
            &[
                &extension(&BASIC_CONSTRAINTS, true, &no_authority_below),
                &extension(&KEY_USAGE, true, &element(BIT_STRING, &[&KEY_CERT_SIGN])),
                &extension(&SUBJECT_KEY_IDENTIFIER, false, &key_identifier),
            ],
        );
        let certificate = sign(
            &key,
            &Content {
                issuer: &name,
                subject: &name,
                key_info: &key.public_key_info(),
                until: now + LIFE_OF_AUTHORITY,
                extensions: &extensions,
            },
            now,
        )?;
        let text = credential_pem(&key, std::slice::from_ref(&certificate))?;
        Self::new(vec![certificate], key).map(|authority| (authority, text))
    }

    /// Reads the file of an authority.
    ///
    /// # Errors
    ///
    /// When it has a credential of another kind.
    pub fn from_credential(credential: Credential) -> Result<Self, AuthorityError> {
        match subject::id(credential.leaf()) {
            Some(_) => Ok(Self { credential }),
            None => Err(AuthorityError::OtherKind(
                credential.leaf().subject().clone(),
            )),
        }
    }

    fn new(chain: Vec<Certificate>, key: PrivateKey) -> Result<Self, AuthorityError> {
        let subject = chain[0].subject().clone();
        let credential = Credential::new(chain, key);
        let credential = credential.map_err(|_| AuthorityError::OtherKind(subject))?;
        Self::from_credential(credential)
    }

    /// The certificate of the authority.
    pub fn certificate(&self) -> &Certificate {
        self.credential.leaf()
    }

    /// What nodes know of the authority before they are enrolled.
    pub fn fingerprint(&self) -> Fingerprint {
        self.certificate().fingerprint()
    }

    /// A new certificate and key of a control server: the text of its file.
    ///
    /// # Errors
    ///
    /// When no key can be made.
    pub fn control_server(&self, now: SystemTime) -> Result<Zeroizing<Vec<u8>>, AuthorityError> {
        let id = subject::id(self.certificate()).unwrap_or_default();
        let key = PrivateKey::generate_ec()?;
        let issued = self.issue(
            &Content {
                issuer: self.certificate().subject().as_der(),
                subject: &subject::of(Role::ControlServer, &id),
                key_info: &key.public_key_info(),
                until: now + LIFE_OF_AUTHORITY,
                // Also to accept connections of nodes that are invited.
                extensions: &self.extensions(&[CLIENT_AUTH, SERVER_AUTH], &[]),
            },
            now,
        )?;
        Ok(credential_pem(&key, &issued)?)
    }

    /// Issues the certificate of a node for a request with the name of this host. Returns the chain, leaf first.
    ///
    /// # Errors
    ///
    /// When the request is for another host, or does not prove that its sender has the key.
    pub fn node(
        &self,
        request: &[u8],
        host: &HostName,
        now: SystemTime,
    ) -> Result<Vec<Certificate>, AuthorityError> {
        let requested = requested(request).map_err(AuthorityError::Request)?;
        let subject = subject::of_node(host);
        if requested.subject != subject {
            let asked = Name::from_der(requested.subject);
            return Err(AuthorityError::OtherHost {
                asked: asked.map_or_else(|error| error.to_string(), |name| name.to_string()),
                invited: host.clone(),
            });
        }
        let names = alternative_name(host);
        let names = extension(&SUBJECT_ALTERNATIVE_NAME, false, &names);
        self.issue(
            &Content {
                issuer: self.certificate().subject().as_der(),
                subject: &subject,
                key_info: requested.key_info,
                until: now + LIFE_OF_NODE,
                extensions: &self.extensions(&[SERVER_AUTH], &names),
            },
            now,
        )
    }

    fn issue(
        &self,
        content: &Content<'_>,
        now: SystemTime,
    ) -> Result<Vec<Certificate>, AuthorityError> {
        let end = self.certificate().validity().not_after;
        if end <= now {
            return Err(AuthorityError::Expired);
        }
        let content = Content {
            until: content.until.min(end),
            ..*content
        };
        let issued = sign(self.credential.key(), &content, now)?;
        Ok(vec![issued, self.certificate().clone()])
    }

    fn extensions(&self, uses: &[ObjectIdentifier], more: &[u8]) -> Vec<u8> {
        let uses: Vec<u8> = uses.iter().flat_map(identifier).collect();
        let issuer = key_identifier(self.certificate().public_key_info());
        // RFC 5280 4.2.1.1: `[0] IMPLICIT OCTET STRING`.
        let issuer = element(SEQUENCE, &[&element(0x80, &[&issuer])]);
        element(
            SEQUENCE,
            &[
                &extension(
                    &KEY_USAGE,
                    true,
                    &element(BIT_STRING, &[&DIGITAL_SIGNATURE]),
                ),
                &extension(&EXTENDED_KEY_USAGE, false, &element(SEQUENCE, &[&uses])),
                &extension(&AUTHORITY_KEY_IDENTIFIER, false, &issuer),
                more,
            ],
        )
    }
}

/// The request of a node for its certificate.
///
/// # Errors
///
/// When the key cannot sign.
pub fn request(key: &PrivateKey, host: &HostName) -> Result<Vec<u8>, KeyError> {
    signed_request(key, &subject::of_node(host), &[])
}

struct Content<'a> {
    issuer: &'a [u8],
    subject: &'a [u8],
    key_info: &'a [u8],
    until: SystemTime,
    extensions: &'a [u8],
}

fn sign(
    key: &PrivateKey,
    content: &Content<'_>,
    now: SystemTime,
) -> Result<Certificate, AuthorityError> {
    // RFC 5280 4.1.2.2: positive, and at most 20 bytes. The first bits keep the length.
    let mut serial = random::<16>()?;
    serial[0] = serial[0] & 0x3f | 0x40;
    let validity = validity(now - CLOCK_SKEW, content.until);
    // Only clocks centuries away cannot be written.
    let validity = validity.map_err(|_| AuthorityError::Expired)?;
    let unsigned = Unsigned {
        serial: &element(INTEGER, &[&serial]),
        issuer: content.issuer,
        validity: &validity,
        subject: content.subject,
        key_info: content.key_info,
        extensions: content.extensions,
    };
    Ok(Certificate::from_der(&unsigned.sign(key)?)?)
}

/// RFC 5280 4.2.1.6
fn alternative_name(host: &HostName) -> Vec<u8> {
    const DNS_NAME: u8 = 0x82;
    const IP_ADDRESS: u8 = 0x87;
    let name = match host {
        HostName::Name(name) => element(DNS_NAME, &[name.as_bytes()]),
        HostName::Address(IpAddr::V4(address)) => element(IP_ADDRESS, &[&address.octets()]),
        HostName::Address(IpAddr::V6(address)) => element(IP_ADDRESS, &[&address.octets()]),
    };
    element(SEQUENCE, &[&name])
}

/// RFC 7093 2, method 1.
fn key_identifier(key_info: &[u8]) -> [u8; 20] {
    let mut identifier = [0; 20];
    identifier.copy_from_slice(&digest(&SHA256, key_info).as_ref()[..20]);
    identifier
}

pub(super) fn random<const N: usize>() -> Result<[u8; N], AuthorityError> {
    let mut bytes = [0; N];
    aws_lc_rs::rand::fill(&mut bytes).map_err(|_| AuthorityError::Random)?;
    Ok(bytes)
}
