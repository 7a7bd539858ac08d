//! Normalizes one-line names (`/DC=org/CN=Alice`) from files, with their escapes and older attribute names.

/// Converts a name from a file to the form of [`Name::one_line`](crate::name::Name::one_line). `\xHH` is a byte, a
/// backslash before another character than a slash or a plus sign is removed, and bytes that are not printable ASCII
/// become `\xHH`.
pub(crate) fn read(text: &[u8]) -> String {
    let mut name = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((&first, behind)) = rest.split_first() {
        let (byte, behind) = match (first, behind) {
            (b'\\', [b'x', high, low, behind @ ..]) => match (hex_digit(*high), hex_digit(*low)) {
                (Some(high), Some(low)) => (high << 4 | low, behind),
                _ => (b'x', &rest[2..]),
            },
            (b'\\', [b'/' | b'+', ..]) => (b'\\', behind),
            (b'\\', [escaped, behind @ ..]) => (*escaped, behind),
            (b'\\', []) => break,
            _ => (first, behind),
        };
        push(&mut name, byte);
        rest = behind;
    }
    name
}

/// Normalizes the spelling of a name. `USERID` becomes `UID`, and `E` and `Email` become `emailAddress`, as in
/// globus-gridftp-server and the VOMS library. A slash or a plus sign in a value keeps its backslash only if an attribute
/// could begin there: OpenSSL 3 writes `/CN=host\/x.org`, while older versions, and most files of sites, have
/// `/CN=host/x.org`.
pub(crate) fn spell(name: &str) -> String {
    const SPELLINGS: &[(&str, &str)] = &[
        ("/USERID=", "/UID="),
        ("/emailAddress=", "/emailAddress="),
        ("/Email=", "/emailAddress="),
        ("/E=", "/emailAddress="),
    ];
    let mut spelled = String::with_capacity(name.len());
    let mut rest = name;
    while let Some(next) = rest.find(['/', '\\']) {
        let (before, from) = rest.split_at(next);
        spelled.push_str(before);
        let known = SPELLINGS.iter().find(|(other, _)| {
            from.get(..other.len())
                .is_some_and(|start| start.eq_ignore_ascii_case(other))
        });
        let (read, written) = match known {
            Some((other, one)) => (other.len(), *one),
            None if is_escaped_value(from) => (2, &from[1..2]),
            // Together with the escaped character, which does not begin an attribute.
            None if from.starts_with("\\/") => (2, &from[..2]),
            None => (1, &from[..1]),
        };
        spelled.push_str(written);
        rest = &from[read..];
    }
    spelled.push_str(rest);
    spelled
}

/// Whether `text` begins with an escaped character that cannot be mistaken for the start of an attribute.
fn is_escaped_value(text: &str) -> bool {
    let behind = text
        .strip_prefix("\\/")
        .or_else(|| text.strip_prefix("\\+"));
    behind.is_some_and(|behind| {
        let value = behind.split(['/', '+']).next().unwrap_or_default();
        !value.contains('=')
    })
}

fn push(name: &mut String, byte: u8) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    if matches!(byte, b' '..=b'~') {
        name.push(char::from(byte));
    } else {
        name.push_str("\\x");
        name.push(char::from(DIGITS[usize::from(byte >> 4)]));
        name.push(char::from(DIGITS[usize::from(byte & 0xf)]));
    }
}

fn hex_digit(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        b'A'..=b'F' => Some(byte - b'A' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_read_and_written_in_one_form() {
        for (written, name) in [
            ("/CN=J\u{fc}rgen".as_bytes(), r"/CN=J\xC3\xBCrgen"),
            (br"/CN=J\xc3\xBCrgen", r"/CN=J\xC3\xBCrgen"),
            (br#"/CN=Alice \"Al\" Smith"#, r#"/CN=Alice "Al" Smith"#),
            (br"/CN=a\\b", r"/CN=a\b"),
            (br"/CN=\x41\xg1", "/CN=Axg1"),
            (br"/CN=host\/x.org\+1", r"/CN=host\/x.org\+1"),
            (br"/CN=a\x4", "/CN=ax4"),
            (b"/CN=a\\", "/CN=a"),
            (b"", ""),
        ] {
            assert_eq!(read(written), name);
        }
    }

    #[test]
    fn attributes_with_several_names_get_one() {
        for (name, spelled) in [
            ("/O=x/E=a@b.org", "/O=x/emailAddress=a@b.org"),
            ("/O=x/email=a@b.org", "/O=x/emailAddress=a@b.org"),
            ("/O=x/EMAILADDRESS=a@b.org", "/O=x/emailAddress=a@b.org"),
            ("/userid=1/CN=a/E=b", "/UID=1/CN=a/emailAddress=b"),
            ("/UID=1/OE=c/CN=host/x.org", "/UID=1/OE=c/CN=host/x.org"),
            (r"/CN=host\/x.org\+1/E=a", "/CN=host/x.org+1/emailAddress=a"),
            (r"/CN=a\/E=b\+O=c/CN=d", r"/CN=a\/E=b\+O=c/CN=d"),
            (r"/CN=a\b\", r"/CN=a\b\"),
            ("/E=", "/emailAddress="),
            ("E=a//", "E=a//"),
            ("/CN=\u{fc}/E\u{fc}", "/CN=\u{fc}/E\u{fc}"),
        ] {
            assert_eq!(spell(name), spelled);
        }
    }
}
