//! The reply to `FEAT`.

use gridhaul_protocol::command::{AlgorithmName, Text};
use gridhaul_protocol::facts::{Fact, FactSelection};
use gridhaul_protocol::feature::{self, ChecksumPreference, FactSupport, Feature, SimpleFeature};
use gridhaul_protocol::reply::Reply;
use gridhaul_storage::ChecksumAlgorithm;

/// What the reply depends on.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Conditions {
    pub(super) logged_in: bool,
    /// `DCAU` is allowed now.
    pub(super) has_dcau: bool,
    /// `AUTH GSSAPI` is allowed now.
    pub(super) offers_gsi: bool,
    /// `AUTH TLS` is allowed now.
    pub(super) offers_tls: bool,
    /// The control channel is protected by TLS, or can be.
    pub(super) has_tls: bool,
    /// `RADR`, `RPSV`, `RSTR` and `RRTR` are allowed.
    pub(super) has_rdma: bool,
    pub(super) facts: FactSelection,
}

/// The features of this server, in the order of globus-gridftp-server 13.24. As there, only clients that have logged in see
/// the checksums.
pub(super) fn features(conditions: &Conditions) -> Reply {
    let mut features = Vec::new();
    if conditions.logged_in {
        features.push(Feature::Checksums(checksums()));
    }
    let simple = |feature| Feature::Simple(feature);
    features.extend(
        Text::new(format!("posix-{}", crate::version::VERSION_NUMBER)).map(Feature::Storage),
    );
    features.extend([
        simple(SimpleFeature::StorAttr),
        Feature::DataChannelContext,
        simple(SimpleFeature::Mfmt),
        simple(SimpleFeature::Whoami),
        simple(SimpleFeature::Mlsr),
        simple(SimpleFeature::Mlsc),
        simple(SimpleFeature::Utf8),
    ]);
    features.extend(Text::new("EN").map(Feature::Languages));
    // After a GSI login clients assume DCAU A if they find this. In clear sessions they look for it before they send DCAU with
    // the credential of DCSC.
    if conditions.has_dcau {
        features.push(simple(SimpleFeature::Dcau));
    }
    features.extend([
        simple(SimpleFeature::Parallel),
        simple(SimpleFeature::Size),
        Feature::Facts(facts(conditions.facts)),
        simple(SimpleFeature::Eret),
        simple(SimpleFeature::Esto),
        simple(SimpleFeature::Spas),
        simple(SimpleFeature::Spor),
        Feature::RestStream,
        simple(SimpleFeature::Mdtm),
        Feature::DelayedPassive,
    ]);
    if conditions.has_rdma {
        features.push(simple(SimpleFeature::Radr));
    }
    // RFC 4217 6.
    let mechanisms = [
        (conditions.offers_gsi, "GSSAPI"),
        (conditions.offers_tls, "TLS"),
    ];
    let offered = mechanisms.into_iter().filter(|(offered, _)| *offered);
    features.extend(offered.filter_map(|(_, name)| Text::new(name).map(Feature::Authentication)));
    if conditions.has_tls {
        features.extend([simple(SimpleFeature::Pbsz), simple(SimpleFeature::Prot)]);
    }
    feature::reply(&features)
}

/// The preferences of globus-gridftp-server 13.24. The CRCs, which it does not have, get the lowest one.
fn checksums() -> Vec<ChecksumPreference> {
    let preference = |algorithm| match algorithm {
        ChecksumAlgorithm::Sha512 => 12,
        ChecksumAlgorithm::Sha256 => 11,
        _ => 10,
    };
    let algorithms = ChecksumAlgorithm::ALL.into_iter();
    algorithms
        .filter_map(|algorithm| {
            let preference = preference(algorithm);
            let algorithm = AlgorithmName::new(algorithm.name())?;
            Some(ChecksumPreference {
                algorithm,
                preference,
            })
        })
        .collect()
}

fn facts(selection: FactSelection) -> Vec<FactSupport> {
    let supported = |fact: Fact| {
        let name = Text::new(fact.name())?;
        Some(FactSupport {
            name,
            selected: selection.has(fact),
        })
    };
    Fact::ALL.into_iter().filter_map(supported).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_find_what_they_look_for() {
        let reply = features(&Conditions {
            logged_in: true,
            ..Conditions::default()
        });
        let text = String::from_utf8(reply.encode()).expect("ASCII");
        for line in [
            " CKSM ADLER32:10;CRC32:10;CRC32C:10;MD5:10;SHA1:10;SHA256:11;SHA512:12;\r\n",
            " MLST Type*;Modify*;Charset;Size*;Perm*;",
            " REST STREAM\r\n",
            " PARALLEL\r\n",
            " PASV AllowDelayed;\r\n",
            " SIZE\r\n",
            " DCSC P,D\r\n",
        ] {
            assert!(text.contains(line), "{line}: {text}");
        }
        for word in ["DCAU", "HTTP", "AUTH", "PBSZ"] {
            assert!(!text.contains(word), "{word}");
        }
    }

    #[test]
    fn security_features_are_listed_where_they_are_available() {
        let text = |conditions: &Conditions| {
            String::from_utf8(features(conditions).encode()).expect("ASCII")
        };
        let gsi = text(&Conditions {
            has_dcau: true,
            ..Conditions::default()
        });
        assert!(gsi.contains(" DCAU\r\n") && !gsi.contains("AUTH"), "{gsi}");
        let both = text(&Conditions {
            offers_gsi: true,
            offers_tls: true,
            has_tls: true,
            ..Conditions::default()
        });
        for line in [
            " AUTH GSSAPI\r\n",
            " AUTH TLS\r\n",
            " PBSZ\r\n",
            " PROT\r\n",
        ] {
            assert!(both.contains(line), "{line}: {both}");
        }
        assert!(!both.contains("DCAU"), "{both}");
    }

    #[test]
    fn rdma_is_listed_where_it_is_available() {
        let text = |has_rdma| {
            let conditions = Conditions {
                has_rdma,
                ..Conditions::default()
            };
            String::from_utf8(features(&conditions).encode()).expect("ASCII")
        };
        assert!(text(true).contains(" RADR\r\n"));
        assert!(!text(false).contains("RADR"));
    }

    #[test]
    fn checksums_are_not_listed_before_login() {
        let reply = features(&Conditions::default());
        assert!(!String::from_utf8_lossy(&reply.encode()).contains("CKSM"));
    }
}
