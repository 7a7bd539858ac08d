//! VOMS attributes in proxies, and the files of a vomsdir.

#![no_main]

use gridhaul_security::voms::{VomsServers, claims};
use gridhaul_security_fuzz::{Edits, chain, edited};
use libfuzzer_sys::fuzz_target;

const EXTENSION: &str = "1.3.6.1.4.1.8005.100.100.5";

fuzz_target!(|input: (Edits, Vec<u8>)| {
    let (edits, bytes) = input;
    let sample = chain()
        .iter()
        .find_map(|certificate| certificate.extension(EXTENSION))
        .expect("the sample has attributes");
    for extension in [&edited(sample, &edits), &bytes] {
        for membership in claims(extension).unwrap_or_default() {
            let own = |attribute: &gridhaul_security::voms::Fqan| {
                attribute.as_str().starts_with('/') && !attribute.organization().is_empty()
            };
            assert!(membership.attributes.iter().all(own));
        }
    }
    let mut servers = VomsServers::default();
    let _ = servers.add_server("vo", "host", &bytes);
    let _ = servers.add_certificates("vo", &bytes);
});
