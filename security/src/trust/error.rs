//! Why chains are refused, in words that an administrator can act on.

use std::fmt;
use std::time::SystemTime;

use der::DateTime;

use crate::name::Name;

/// Why a chain is not accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChainError {
    /// There is none.
    #[error("no certificate was presented")]
    Empty,
    /// It is longer than any that makes sense.
    #[error("more than {limit} certificates were presented")]
    TooLong {
        /// How many would be taken.
        limit: usize,
    },
    /// Too many certificates could have signed one another.
    #[error("the certificates sent with {certificate} can be put together in too many ways")]
    TooManyPaths {
        /// The first certificate of the chain.
        certificate: Name,
    },
    /// The certificate that signed one is not available.
    #[error(
        "{certificate} was issued by {issuer}, which is not in the trust directory: install that \
         authority's certificate if it is to be trusted"
    )]
    UnknownIssuer {
        /// The certificate.
        certificate: Name,
        /// Who issued it.
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
    /// A signature is not the issuer's.
    #[error("the signature of {certificate} was not made with the key of {issuer}")]
    Signature {
        /// The certificate.
        certificate: Name,
        /// Whose name it has as its issuer.
        issuer: Name,
    },
    /// A signature is of a kind that can be forged.
    #[error(
        "{certificate} is signed with {algorithm}, which is broken: it needs to be issued anew"
    )]
    BrokenAlgorithm {
        /// The certificate.
        certificate: Name,
        /// The broken part.
        algorithm: &'static str,
    },
    /// A signature is of a kind that we do not know.
    #[error(
        "{certificate} is signed with an algorithm, or for a kind of key, that is not supported"
    )]
    UnknownAlgorithm {
        /// The certificate.
        certificate: Name,
    },
    /// A key is too short to be safe, or too long to be used.
    #[error("the RSA key of {certificate} has {bits} bits; 2048 to 8192 are accepted")]
    KeySize {
        /// The certificate.
        certificate: Name,
        /// How many bits it has.
        bits: u32,
    },
    /// A certificate's time has not begun.
    #[error("{certificate} is not valid before {}: are the clocks right?", moment(.from))]
    NotYetValid {
        /// The certificate.
        certificate: Name,
        /// When its time begins.
        from: SystemTime,
    },
    /// A certificate's time is over.
    #[error("{certificate} has expired at {}", moment(.until))]
    Expired {
        /// The certificate.
        certificate: Name,
        /// When its time was over.
        until: SystemTime,
    },
    /// An extension must not be ignored, and we do not know it.
    #[error("{certificate} has the critical extension {identifier}, which is not supported")]
    CriticalExtension {
        /// The certificate.
        certificate: Name,
        /// The extension, in dotted decimals.
        identifier: String,
    },
    /// A proxy's subject is not its issuer's and one CN more.
    #[error("the proxy {certificate} is not named after its issuer {issuer}")]
    ProxyName {
        /// The proxy.
        certificate: Name,
        /// Who issued it.
        issuer: Name,
    },
    /// A proxy has a policy that we cannot read.
    #[error("the proxy {certificate} is restricted by a policy that is not supported")]
    ProxyPolicy {
        /// The proxy.
        certificate: Name,
    },
    /// A proxy says what it is in a way that may be ignored.
    #[error("the proxy {certificate} does not mark its ProxyCertInfo extension as critical")]
    ProxyNotCritical {
        /// The proxy.
        certificate: Name,
    },
    /// A proxy has an extension that proxies must not have.
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
    /// More proxies follow than one allows.
    #[error(
        "the proxy {certificate} allows {limit} further proxies below it, and there are {found}"
    )]
    ProxyPathLength {
        /// The proxy that sets the limit.
        certificate: Name,
        /// Its limit.
        limit: u32,
        /// How many proxies are below it.
        found: usize,
    },
    /// A proxy's issuer may not sign.
    #[error("the key usage of {issuer} does not allow to sign the proxy {certificate}")]
    ProxyIssuerUsage {
        /// The proxy.
        certificate: Name,
        /// Who issued it.
        issuer: Name,
    },
    /// The issuer of a certificate that is no proxy is a proxy or a user.
    #[error("{certificate} was issued by {issuer}, which is no certificate authority")]
    NotAnAuthority {
        /// The certificate.
        certificate: Name,
        /// Who issued it.
        issuer: Name,
    },
    /// A proxy as Globus made them before the GSI-3 draft.
    #[error("{certificate} is a legacy (GSI-2) proxy: make an RFC 3820 proxy")]
    LegacyProxy {
        /// The proxy.
        certificate: Name,
    },
    /// A certificate authority presented itself as a user.
    #[error(
        "{certificate} belongs to a certificate authority, and was used as a user's or a host's"
    )]
    AuthorityAsUser {
        /// The certificate.
        certificate: Name,
    },
    /// Its holder cannot be named.
    #[error("a certificate issued by {issuer} has no subject")]
    NoSubject {
        /// Who issued it.
        issuer: Name,
    },
    /// A certificate authority may not sign certificates.
    #[error("the key usage of {authority} does not allow to sign certificates")]
    AuthorityUsage {
        /// The authority.
        authority: Name,
    },
    /// More authorities follow than one allows.
    #[error("{authority} allows {limit} further authorities below it, and there are {found}")]
    PathLength {
        /// The authority that sets the limit.
        authority: Name,
        /// Its limit.
        limit: u32,
        /// How many are below it.
        found: usize,
    },
    /// There is no signing policy for an authority.
    #[error(
        "there is no signing policy for {authority} in the trust directory, so that it may not issue \
         {certificate}"
    )]
    NoSigningPolicy {
        /// The certificate.
        certificate: Name,
        /// Who issued it.
        authority: Name,
    },
    /// A subject is not among those that an authority may issue.
    #[error("the signing policy of {authority} does not allow it to issue {certificate}")]
    OutsideSigningPolicy {
        /// The certificate.
        certificate: Name,
        /// Who issued it.
        authority: Name,
    },
    /// A name is not among those that an authority may vouch for.
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
        /// Why not.
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
    /// A revocation list is there, and cannot be used.
    #[error(
        "the revocation list of {authority} cannot be used, so that none of its certificates is \
         accepted: mend the file {file} in the trust directory (fetch-crl)"
    )]
    RevocationListUnusable {
        /// Whose list it is.
        authority: Name,
        /// The file.
        file: String,
    },
    /// All revocation lists are about other certificates.
    #[error(
        "the revocation lists of {authority} are not about {certificate}: fetch the one of its \
         distribution point"
    )]
    RevocationListScope {
        /// The certificate.
        certificate: Name,
        /// Whose lists they are.
        authority: Name,
    },
    /// A revocation list is not its authority's.
    #[error(
        "no revocation list of {authority} was signed with the key of its certificate, and the \
         certificate must allow that (key usage cRLSign): fetch it anew"
    )]
    RevocationListSignature {
        /// Whose list it should be.
        authority: Name,
    },
    /// A revocation list is from the future.
    #[error(
        "the revocation list of {authority} is not valid before {}: are the clocks right?",
        moment(.from)
    )]
    RevocationListNotYetValid {
        /// Whose list it is.
        authority: Name,
        /// When its time begins.
        from: SystemTime,
    },
    /// A revocation list is too old to be relied on.
    #[error(
        "the revocation list of {authority} has expired at {}: fetch it anew (fetch-crl)",
        moment(.until)
    )]
    RevocationListExpired {
        /// Whose list it is.
        authority: Name,
        /// When its time was over.
        until: SystemTime,
    },
}

/// A time in UTC: `2027-01-31T12:00:00Z`.
fn moment(time: &SystemTime) -> impl fmt::Display {
    // Every time comes from a certificate, and those can be written.
    DateTime::from_system_time(*time).unwrap_or(DateTime::INFINITY)
}
