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
        "metadata": { "component": component(metadata, &metadata.program, "application") },
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
    use crate::program::Program;

    /// The components of a program, each with a licence.
    fn components_of(program: Program) -> Vec<Value> {
        let metadata = Metadata::read(program).expect("cargo runs");
        let text = text(&metadata).expect("encoded");
        let document: Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(document["metadata"]["component"]["name"], program.package());
        let components = document["components"].as_array().expect("a list");
        for one in components {
            assert!(one["licenses"][0]["expression"].is_string(), "{one}");
        }
        components.clone()
    }

    fn named<'a>(components: &'a [Value], name: &str) -> Option<&'a Value> {
        components.iter().find(|one| one["name"] == name)
    }

    #[test]
    fn what_a_program_links_is_listed_with_its_sum_and_licence() {
        for program in [Program::Server, Program::Client] {
            let components = components_of(program);
            let rustls = named(&components, "rustls").expect("it is linked");
            let sum = rustls["hashes"][0]["content"].as_str();
            assert_eq!(sum.map(str::len), Some(64));
            let purl = rustls["purl"].as_str();
            assert!(purl.is_some_and(|purl| purl.starts_with("pkg:cargo/rustls@")));
            let own = named(&components, "gridhaul-transfer");
            assert!(own.is_some_and(|one| one.get("purl").is_none()));
            // Those of tests and of this program, and the program itself.
            for absent in [
                "proptest",
                "clap_mangen",
                "gridhaul-interop",
                program.package(),
            ] {
                assert!(named(&components, absent).is_none(), "{absent}");
            }
        }
    }

    #[test]
    fn each_program_has_its_own_list() {
        let server = components_of(Program::Server);
        let client = components_of(Program::Client);
        for (name, in_server, in_client) in [
            ("gridhaul-sandbox", true, false),
            ("indicatif", false, true),
        ] {
            assert_eq!(named(&server, name).is_some(), in_server, "{name}");
            assert_eq!(named(&client, name).is_some(), in_client, "{name}");
        }
    }
}
