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

/// The bytes of a path that may be percent-encoded. A percent sign without two hexadecimal digits stays.
pub fn decoded(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        let digits = after.get(..2).filter(|_| byte == b'%');
        let digits = digits.filter(|digits| digits.iter().all(u8::is_ascii_hexdigit));
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
    fn plain_names_stay_and_others_are_escaped() {
        assert_eq!(escape("/a-b_c.d/e"), "/a-b_c.d/e");
        let name = "a b%~\n\u{e9}";
        assert_eq!(escape(name), "a%20b%25%7E%0A%C3%A9");
        assert_eq!(decoded(&escape(name)), name.as_bytes());
        assert_eq!(decoded("100%/%+1"), b"100%/%+1");
    }
}
