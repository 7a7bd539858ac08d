//! The answer to `FEAT`.

use gridhaul_protocol::command::{AlgorithmName, Text};
use gridhaul_protocol::facts::{Fact, FactSelection};
use gridhaul_protocol::feature::{self, ChecksumPreference, FactSupport, Feature, SimpleFeature};
use gridhaul_protocol::reply::Reply;
use gridhaul_storage::ChecksumAlgorithm;

/// What this server can do. Checksums are told to those who have logged in, as globus-gridftp-server
/// 13.24 does; the order is its order.
pub(super) fn features(logged_in: bool, selection: FactSelection) -> Reply {
    let mut features = Vec::new();
    if logged_in {
        features.push(Feature::Checksums(checksums()));
    }
    let simple = |feature| Feature::Simple(feature);
    features.extend(Text::new(format!("posix-{}", crate::VERSION_NUMBER)).map(Feature::Storage));
    features.extend([
        simple(SimpleFeature::StorAttr),
        simple(SimpleFeature::Mfmt),
        simple(SimpleFeature::Whoami),
        simple(SimpleFeature::Mlsr),
        simple(SimpleFeature::Mlsc),
        simple(SimpleFeature::Utf8),
    ]);
    features.extend(Text::new("EN").map(Feature::Languages));
    features.extend([
        simple(SimpleFeature::Parallel),
        simple(SimpleFeature::Size),
        Feature::Facts(facts(selection)),
        simple(SimpleFeature::Eret),
        simple(SimpleFeature::Esto),
        simple(SimpleFeature::Spas),
        simple(SimpleFeature::Spor),
        Feature::RestStream,
        simple(SimpleFeature::Mdtm),
        Feature::DelayedPassive,
    ]);
    feature::reply(&features)
}

/// The preferences of globus-gridftp-server 13.24; the CRCs, which it does not have, get the lowest of them.
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
        let reply = features(true, FactSelection::default());
        let text = String::from_utf8(reply.encode()).expect("ASCII");
        for line in [
            " CKSM ADLER32:10;CRC32:10;CRC32C:10;MD5:10;SHA1:10;SHA256:11;SHA512:12;\r\n",
            " MLST Type*;Modify*;Charset;Size*;Perm*;",
            " REST STREAM\r\n",
            " PARALLEL\r\n",
            " PASV AllowDelayed;\r\n",
            " SIZE\r\n",
        ] {
            assert!(text.contains(line), "{line}: {text}");
        }
        for word in ["DCAU", "DCSC", "HTTP", "AUTHZ_ASSERT"] {
            assert!(!text.contains(word), "{word}");
        }
    }

    #[test]
    fn checksums_are_not_told_to_strangers() {
        let reply = features(false, FactSelection::default());
        assert!(!String::from_utf8_lossy(&reply.encode()).contains("CKSM"));
    }
}
