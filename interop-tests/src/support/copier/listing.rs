//! Listings of `gridhaul ls --json` and `gridhaul tree --json`, as `globus-url-copy -list` prints them.

use std::ffi::OsString;

use crate::support::url::decoded;

/// A line of the listing.
#[derive(serde::Deserialize)]
struct Entry {
    url: String,
    #[serde(rename = "type")]
    kind: String,
}

/// The URL, and a line for each entry: four spaces, the name, and a slash or a space.
pub(super) fn as_globus(output: &[u8], url: Option<&OsString>) -> Vec<u8> {
    let mut text = Vec::new();
    if let Some(url) = url {
        text.extend(url.as_encoded_bytes());
        text.push(b'\n');
    }
    for line in output.split_inclusive(|byte| *byte == b'\n') {
        let Ok(entry) = serde_json::from_slice::<Entry>(line) else {
            // The failure of the case shows it.
            text.extend(line);
            continue;
        };
        let url = entry.url.trim_end_matches('/');
        let name = url.rsplit('/').next().unwrap_or_default();
        text.extend(b"    ");
        text.extend(decoded(name));
        text.push(match entry.kind.as_str() {
            "directory" => b'/',
            _ => b' ',
        });
        text.push(b'\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_have_names_of_files_and_directories() {
        let output = concat!(
            "{\"url\":\"ftp://h/d/a%20\\\\b\",\"type\":\"file\",\"size\":1}\n",
            "{\"url\":\"ftp://h/d/sub\",\"type\":\"directory\"}\n",
        );
        let url = OsString::from("ftp://h/d/");
        let text = as_globus(output.as_bytes(), Some(&url));
        assert_eq!(text, b"ftp://h/d/\n    a \\b \n    sub/\n");
    }
}
