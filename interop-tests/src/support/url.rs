//! Paths in URLs.

/// Percent-encodes every byte of `path` except letters, digits and `/-_.` (RFC 3986 2.1).
pub fn escape(path: &str) -> String {
    use std::fmt::Write;
    path.bytes().fold(String::new(), |mut url, byte| {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'-' | b'_' | b'.' => {
                url.push(char::from(byte));
            }
            _ => {
                let _ = write!(url, "%{byte:02X}");
            }
        }
        url
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_names_stay_and_others_are_escaped() {
        assert_eq!(escape("/a-b_c.d/e"), "/a-b_c.d/e");
        assert_eq!(escape("a b%~\n\u{e9}"), "a%20b%25%7E%0A%C3%A9");
    }
}
