//! Why chains are refused, with messages for administrators.

use std::fmt;
use std::time::SystemTime;

use der::DateTime;

use crate::name::Name;

/// Why a chain is not accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChainError {
    /// The peer has sent no certificate.
    #[error("no certificate was presented")]
    Empty,
    /// The chain is too long.
    #[error("more than {limit} certificates were presented")]
    TooLong {
        /// The maximum length.
        limit: usize,
    },
    /// There are too many possible paths.
    #[error("the certificates sent with {certificate} can be put together in too many ways")]
    TooManyPaths {
        /// The first certificate of the chain.
        certificate: Name,
    },
    /// The certificate of an issuer is not available.
    #[error(
        "{certificate} was issued by {issuer}, which is not in the trust directory: install that \
         authority's certificate if it is to be trusted"
    )]
    UnknownIssuer {
        /// The certificate.
        certificate: Name,
        /// Its issuer.
        issuer: Name,
    },
    /// It ends with a self-signed certificate that is not in the trust directory.
    #[error(
        "{certificate} is self-signed and not in the trust directory: install it there if it is to be \
         trusted"
    )]
    UntrustedRoot {
        /// The self-signed certificate.
        certificate: Name,
    },
    /// A signature was not made with the issuer's key.
    #[error("the signature of {certificate} was not made with the key of {issuer}")]
    Signature {
        /// The certificate.
        certificate: Name,
        /// Its issuer.
        issuer: Name,
    },
    /// A signature algorithm is broken.
    #[error(
        "{certificate} is signed with {algorithm}, which is broken: it needs to be issued anew"
    )]
    BrokenAlgorithm {
        /// The certificate.
        certificate: Name,
        /// The broken algorithm.
        algorithm: &'static str,
    },
    /// A signature algorithm is not supported.
    #[error(
        "{certificate} is signed with an algorithm, or for a kind of key, that is not supported"
    )]
    UnknownAlgorithm {
        /// The certificate.
        certificate: Name,
    },
    /// A key is too short to be secure, or too long to be supported.
    #[error("the RSA key of {certificate} has {bits} bits; 2048 to 8192 are accepted")]
    KeySize {
        /// The certificate.
        certificate: Name,
        /// Its length.
        bits: u32,
    },
    /// A certificate is not valid yet.
    #[error("{certificate} is not valid before {}: are the clocks right?", moment(.from))]
    NotYetValid {
        /// The certificate.
        certificate: Name,
        /// The start of its validity.
        from: SystemTime,
    },
    /// A certificate has expired.
    #[error("{certificate} has expired at {}", moment(.until))]
    Expired {
        /// The certificate.
        certificate: Name,
        /// The end of its validity.
        until: SystemTime,
    },
    /// A critical extension is not supported.
    #[error("{certificate} has the critical extension {identifier}, which is not supported")]
    CriticalExtension {
        /// The certificate.
        certificate: Name,
        /// The extension, in dotted decimals.
        identifier: String,
    },
    /// A proxy's subject is not that of its issuer with one further CN.
    #[error("the proxy {certificate} is not named after its issuer {issuer}")]
    ProxyName {
        /// The proxy.
        certificate: Name,
        /// Its issuer.
        issuer: Name,
    },
    /// A proxy has an unsupported policy.
    #[error("the proxy {certificate} is restricted by a policy that is not supported")]
    ProxyPolicy {
        /// The proxy.
        certificate: Name,
    },
    /// A proxy's ProxyCertInfo extension is not critical, so that other software may ignore it.
    #[error("the proxy {certificate} does not mark its ProxyCertInfo extension as critical")]
    ProxyNotCritical {
        /// The proxy.
        certificate: Name,
    },
    /// A proxy has a forbidden extension.
    #[error("the proxy {certificate} has the extension {identifier}, which no proxy may have")]
    ProxyExtension {
        /// The proxy.
        certificate: Name,
        /// The extension, in dotted decimals.
        identifier: String,
    },
    /// A proxy of one kind issued one of another.
    #[error("the proxy {certificate} is of another kind (RFC 3820, GSI-3) than its issuer")]
    ProxyKinds {
        /// The proxy.
        certificate: Name,
    },
    /// A limited proxy issued a full one.
    #[error("the full proxy {certificate} was issued by a limited one")]
    BeyondLimited {
        /// The full proxy.
        certificate: Name,
    },
    /// A proxy's path length is exceeded.
    #[error(
        "the proxy {certificate} allows {limit} further proxies below it, and there are {found}"
    )]
    ProxyPathLength {
        /// The proxy that sets the limit.
        certificate: Name,
        /// Its limit.
        limit: u32,
        /// The number of proxies below it.
        found: usize,
    },
    /// The key usage of a proxy's issuer does not permit signatures.
    #[error("the key usage of {issuer} does not allow to sign the proxy {certificate}")]
    ProxyIssuerUsage {
        /// The proxy.
        certificate: Name,
        /// Its issuer.
        issuer: Name,
    },
    /// A proxy or user has issued a certificate that is not a proxy.
    #[error("{certificate} was issued by {issuer}, which is no certificate authority")]
    NotAnAuthority {
        /// The certificate.
        certificate: Name,
        /// Its issuer.
        issuer: Name,
    },
    /// A legacy proxy of Globus, from before the GSI-3 draft.
    #[error("{certificate} is a legacy (GSI-2) proxy: make an RFC 3820 proxy")]
    LegacyProxy {
        /// The proxy.
        certificate: Name,
    },
    /// The certificate of an authority was used as that of a user or host.
    #[error(
        "{certificate} belongs to a certificate authority, and was used as a user's or a host's"
    )]
    AuthorityAsUser {
        /// The certificate.
        certificate: Name,
    },
    /// A certificate has an empty subject.
    #[error("a certificate issued by {issuer} has no subject")]
    NoSubject {
        /// Its issuer.
        issuer: Name,
    },
    /// The key usage of an authority does not permit to sign certificates.
    #[error("the key usage of {authority} does not allow to sign certificates")]
    AuthorityUsage {
        /// The authority.
        authority: Name,
    },
    /// The path length of an authority is exceeded.
    #[error("{authority} allows {limit} further authorities below it, and there are {found}")]
    PathLength {
        /// The authority that sets the limit.
        authority: Name,
        /// Its limit.
        limit: u32,
        /// The number of authorities below it.
        found: usize,
    },
    /// An authority has no signing policy.
    #[error(
        "there is no signing policy for {authority} in the trust directory, so that it may not issue \
         {certificate}"
    )]
    NoSigningPolicy {
        /// The certificate.
        certificate: Name,
        /// Its issuer.
        authority: Name,
    },
    /// The signing policy of an authority does not permit a subject.
    #[error("the signing policy of {authority} does not allow it to issue {certificate}")]
    OutsideSigningPolicy {
        /// The certificate.
        certificate: Name,
        /// Its issuer.
        authority: Name,
    },
    /// The name constraints of an authority do not permit a name.
    #[error("the name constraints of {authority} do not allow the name {name} of {certificate}")]
    OutsideNameConstraints {
        /// The certificate.
        certificate: Name,
        /// The authority.
        authority: Name,
        /// The name that breaks the constraint.
        name: String,
    },
    /// Name constraints cannot be applied.
    #[error("the name constraints of {authority} cannot be applied to {certificate}: {reason}")]
    UnusableNameConstraints {
        /// The certificate.
        certificate: Name,
        /// The authority.
        authority: Name,
        /// The reason.
        reason: &'static str,
    },
    /// A certificate was revoked.
    #[error("{certificate} (serial number {serial}) was revoked by its issuer")]
    Revoked {
        /// The certificate.
        certificate: Name,
        /// Its serial number in hexadecimal digits.
        serial: String,
    },
    /// The revocation list of an authority is unusable.
    #[error(
        "the revocation list of {authority} cannot be used, so that none of its certificates is \
         accepted: mend the file {file} in the trust directory (fetch-crl)"
    )]
    RevocationListUnusable {
        /// The issuer of the list.
        authority: Name,
        /// The file.
        file: String,
    },
    /// No revocation list of the issuer covers the certificate.
    #[error(
        "the revocation lists of {authority} are not about {certificate}: fetch the one of its \
         distribution point"
    )]
    RevocationListScope {
        /// The certificate.
        certificate: Name,
        /// The issuer of the lists.
        authority: Name,
    },
    /// No revocation list was signed by the authority.
    #[error(
        "no revocation list of {authority} was signed with the key of its certificate, and the \
         certificate must allow that (key usage cRLSign): fetch it anew"
    )]
    RevocationListSignature {
        /// The authority.
        authority: Name,
    },
    /// A revocation list is not valid yet.
    #[error(
        "the revocation list of {authority} is not valid before {}: are the clocks right?",
        moment(.from)
    )]
    RevocationListNotYetValid {
        /// The issuer of the list.
        authority: Name,
        /// The start of its validity.
        from: SystemTime,
    },
    /// A revocation list has expired.
    #[error(
        "the revocation list of {authority} has expired at {}: fetch it anew (fetch-crl)",
        moment(.until)
    )]
    RevocationListExpired {
        /// The issuer of the list.
        authority: Name,
        /// The end of its validity.
        until: SystemTime,
    },
}

/// A time in UTC: `2027-01-31T12:00:00Z`.
fn moment(time: &SystemTime) -> impl fmt::Display {
    // All times are from certificates or lists, whose range `DateTime` covers.
    DateTime::from_system_time(*time).unwrap_or(DateTime::INFINITY)
}
