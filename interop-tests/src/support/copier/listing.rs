//! Listings of `gridhaul ls --json` and `gridhaul tree --json`, as `globus-url-copy -list` prints them.

use std::ffi::OsString;

/// The URL, and a line for each entry: four spaces, the name, and a slash or a space.
pub(super) fn as_globus(output: &[u8], url: Option<&OsString>) -> Vec<u8> {
    let mut text = Vec::new();
    if let Some(url) = url {
        text.extend(url.as_encoded_bytes());
        text.push(b'\n');
    }
    let output = String::from_utf8_lossy(output);
    for line in output.lines() {
        let (Some(url), Some(kind)) = (member(line, "url"), member(line, "type")) else {
            continue;
        };
        let url = url.trim_end_matches('/');
        let name = url.rsplit('/').next().unwrap_or_default();
        text.extend(b"    ");
        text.extend(decoded(name));
        text.push(if kind == "directory" { b'/' } else { b' ' });
        text.push(b'\n');
    }
    text
}

/// The text of a member of an object, whose escapes are `\\` and `\"`: URLs have no others.
fn member(object: &str, name: &str) -> Option<String> {
    let (_, value) = object.split_once(&format!("\"{name}\":\""))?;
    let mut text = String::new();
    let mut characters = value.chars();
    loop {
        match characters.next()? {
            '"' => return Some(text),
            '\\' => text.push(characters.next()?),
            character => text.push(character),
        }
    }
}

/// RFC 3986 2.1.
fn decoded(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        let digits = after.get(..2).filter(|_| byte == b'%');
        let digits = digits.and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(encoded) => {
                bytes.push(encoded);
                rest = &after[2..];
            }
            None => {
                bytes.push(byte);
                rest = after;
            }
        }
    }
    bytes
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
