//! The short names of attribute types in OpenSSL 3.0, which grid-mapfiles and signing policies contain.

/// The short name of an attribute type (the content of its OBJECT IDENTIFIER).
pub(super) fn short_name(identifier: &[u8]) -> Option<&'static str> {
    let (last, arc) = identifier.split_last()?;
    let names = ARCS.iter().find(|(prefix, _)| *prefix == arc)?.1;
    let found = names.binary_search_by_key(last, |(number, _)| *number);
    found.ok().map(|index| names[index].1)
}

/// Attribute types below an arc, by their last number.
type Arc = &'static [(u8, &'static str)];

const ARCS: &[(&[u8], Arc)] = &[
    (&[0x55, 4], X520),
    (&[0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1], PILOT),
    (&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9], PKCS9),
    (&[0x2b, 6, 1, 4, 1, 0x82, 0x37, 60, 2, 1], JURISDICTION),
];

/// 2.5.4 (X.520).
const X520: Arc = &[
    (3, "CN"),
    (4, "SN"),
    (5, "serialNumber"),
    (6, "C"),
    (7, "L"),
    (8, "ST"),
    (9, "street"),
    (10, "O"),
    (11, "OU"),
    (12, "title"),
    (13, "description"),
    (14, "searchGuide"),
    (15, "businessCategory"),
    (16, "postalAddress"),
    (17, "postalCode"),
    (18, "postOfficeBox"),
    (19, "physicalDeliveryOfficeName"),
    (20, "telephoneNumber"),
    (21, "telexNumber"),
    (22, "teletexTerminalIdentifier"),
    (23, "facsimileTelephoneNumber"),
    (24, "x121Address"),
    (25, "internationaliSDNNumber"),
    (26, "registeredAddress"),
    (27, "destinationIndicator"),
    (28, "preferredDeliveryMethod"),
    (29, "presentationAddress"),
    (30, "supportedApplicationContext"),
    (31, "member"),
    (32, "owner"),
    (33, "roleOccupant"),
    (34, "seeAlso"),
    (35, "userPassword"),
    (36, "userCertificate"),
    (37, "cACertificate"),
    (38, "authorityRevocationList"),
    (39, "certificateRevocationList"),
    (40, "crossCertificatePair"),
    (41, "name"),
    (42, "GN"),
    (43, "initials"),
    (44, "generationQualifier"),
    (45, "x500UniqueIdentifier"),
    (46, "dnQualifier"),
    (47, "enhancedSearchGuide"),
    (48, "protocolInformation"),
    (49, "distinguishedName"),
    (50, "uniqueMember"),
    (51, "houseIdentifier"),
    (52, "supportedAlgorithms"),
    (53, "deltaRevocationList"),
    (54, "dmdName"),
    (65, "pseudonym"),
    (72, "role"),
    (97, "organizationIdentifier"),
    (98, "c3"),
    (99, "n3"),
    (100, "dnsName"),
];

/// 0.9.2342.19200300.100.1 (RFC 4524).
const PILOT: Arc = &[
    (1, "UID"),
    (2, "textEncodedORAddress"),
    (3, "mail"),
    (4, "info"),
    (5, "favouriteDrink"),
    (6, "roomNumber"),
    (7, "photo"),
    (8, "userClass"),
    (9, "host"),
    (10, "manager"),
    (11, "documentIdentifier"),
    (12, "documentTitle"),
    (13, "documentVersion"),
    (14, "documentAuthor"),
    (15, "documentLocation"),
    (20, "homeTelephoneNumber"),
    (21, "secretary"),
    (22, "otherMailbox"),
    (23, "lastModifiedTime"),
    (24, "lastModifiedBy"),
    (25, "DC"),
    (26, "aRecord"),
    (27, "pilotAttributeType27"),
    (28, "mXRecord"),
    (29, "nSRecord"),
    (30, "sOARecord"),
    (31, "cNAMERecord"),
    (37, "associatedDomain"),
    (38, "associatedName"),
    (39, "homePostalAddress"),
    (40, "personalTitle"),
    (41, "mobileTelephoneNumber"),
    (42, "pagerTelephoneNumber"),
    (43, "friendlyCountryName"),
    (44, "uid"),
    (45, "organizationalStatus"),
    (46, "janetMailbox"),
    (47, "mailPreferenceOption"),
    (48, "buildingName"),
    (49, "dSAQuality"),
    (50, "singleLevelQuality"),
    (51, "subtreeMinimumQuality"),
    (52, "subtreeMaximumQuality"),
    (53, "personalSignature"),
    (54, "dITRedirect"),
    (55, "audio"),
    (56, "documentPublisher"),
];

/// 1.2.840.113549.1.9 (PKCS #9).
const PKCS9: Arc = &[
    (1, "emailAddress"),
    (2, "unstructuredName"),
    (3, "contentType"),
    (4, "messageDigest"),
    (5, "signingTime"),
    (6, "countersignature"),
    (7, "challengePassword"),
    (8, "unstructuredAddress"),
    (9, "extendedCertificateAttributes"),
    (14, "extReq"),
    (15, "SMIME-CAPS"),
    (16, "SMIME"),
    (20, "friendlyName"),
];

/// 1.3.6.1.4.1.311.60.2.1 (CA/Browser Forum).
const JURISDICTION: Arc = &[
    (1, "jurisdictionL"),
    (2, "jurisdictionST"),
    (3, "jurisdictionC"),
];

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::super::dotted;
    use super::*;
    use crate::test_pki::{openssl, run};

    #[test]
    fn the_names_are_those_of_openssl() {
        // Lines are `SHORT = LONG, 1.2.3` or `SHORT = 1.2.3`.
        let objects = run(&mut openssl(["list", "-objects"]));
        let known: HashMap<_, _> = objects
            .lines()
            .filter_map(|line| line.split_once(" = "))
            .map(|(short, rest)| (rest.rsplit(", ").next().unwrap_or(rest), short))
            .collect();
        for (prefix, names) in ARCS {
            for (number, name) in *names {
                let identifier = [prefix, &[*number][..]].concat();
                let dotted = dotted(&identifier).expect("sound");
                assert_eq!(known.get(&*dotted), Some(name), "{dotted}");
                assert_eq!(short_name(&identifier), Some(*name));
            }
        }
    }

    #[test]
    fn numbers_are_in_order_and_below_128() {
        for (_, names) in ARCS {
            assert!(names.is_sorted_by(|(one, _), (next, _)| one < next));
            assert!(names.iter().all(|(number, _)| *number < 128));
        }
    }
}
