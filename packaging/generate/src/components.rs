//! The software bill of materials, in the format of CycloneDX 1.5. It has no time and no random number, so that two builds
//! of the same sources make the same file.

use serde_json::{Value, json};

use crate::metadata::{Crate, Metadata, MetadataError};

/// The document.
///
/// # Errors
///
/// When it cannot be encoded.
pub(crate) fn text(metadata: &Metadata) -> Result<String, MetadataError> {
    let components: Vec<Value> = metadata
        .crates
        .iter()
        .map(|one| component(metadata, one, "library"))
        .collect();
    let document = json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": { "component": component(metadata, &metadata.server, "application") },
        "components": components,
    });
    let mut text = serde_json::to_string_pretty(&document)?;
    text.push('\n');
    Ok(text)
}

fn component(metadata: &Metadata, one: &Crate, kind: &str) -> Value {
    let Crate { name, version, .. } = one;
    let mut component = json!({ "type": kind, "name": name, "version": version });
    component["bom-ref"] = json!(format!("{name}@{version}"));
    if let Some(license) = &one.license {
        // Old manifests separate alternatives with a slash, which SPDX does not know.
        let expression = license.replace('/', " OR ");
        component["licenses"] = json!([{ "expression": expression }]);
    }
    if let Some(description) = &one.description {
        component["description"] =
            json!(description.split_whitespace().collect::<Vec<_>>().join(" "));
    }
    // Crates of the workspace are not in a registry.
    if one.source.is_some() {
        component["purl"] = json!(format!("pkg:cargo/{name}@{version}"));
    }
    if let Some(sum) = metadata.checksums.get(&(name.clone(), version.clone())) {
        component["hashes"] = json!([{ "alg": "SHA-256", "content": sum }]);
    }
    component
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_server_links_is_listed_with_its_sum_and_licence() {
        let metadata = Metadata::read().expect("cargo runs");
        let text = text(&metadata).expect("encoded");
        let document: Value = serde_json::from_str(&text).expect("JSON");
        let components = document["components"].as_array().expect("a list");
        let named = |name: &str| components.iter().find(|one| one["name"] == name);
        let rustls = named("rustls").expect("it is linked");
        assert_eq!(
            rustls["hashes"][0]["content"].as_str().map(str::len),
            Some(64)
        );
        assert!(
            rustls["purl"]
                .as_str()
                .is_some_and(|purl| purl.starts_with("pkg:cargo/rustls@"))
        );
        assert!(named("gridhaul-transfer").is_some_and(|one| one.get("purl").is_none()));
        // Those of tests and of this program.
        for absent in [
            "proptest",
            "clap_mangen",
            "gridhaul-server",
            "gridhaul-interop",
        ] {
            assert!(named(absent).is_none(), "{absent}");
        }
        for one in components {
            assert!(one["licenses"][0]["expression"].is_string(), "{one}");
        }
    }
}
