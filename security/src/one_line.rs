//! One-line names (`/DC=org/CN=Alice`) as people write them in files: with escapes, and with names of
//! attributes that OpenSSL has since written otherwise.

/// Reads what stands in a file, and writes it as [`Name::one_line`](crate::name::Name::one_line) does:
/// `\xHH` is a byte, a backslash before anything else is taken off, and bytes that are not printable
/// ASCII become `\xHH`.
pub(crate) fn read(text: &[u8]) -> String {
    let mut name = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((&first, behind)) = rest.split_first() {
        let (byte, behind) = match (first, behind) {
            (b'\\', [b'x', high, low, behind @ ..]) => match (hex_digit(*high), hex_digit(*low)) {
                (Some(high), Some(low)) => (high << 4 | low, behind),
                _ => (b'x', &rest[2..]),
            },
            (b'\\', [escaped, behind @ ..]) => (*escaped, behind),
            (b'\\', []) => break,
            _ => (first, behind),
        };
        push(&mut name, byte);
        rest = behind;
    }
    name
}

/// One spelling for the attributes that have several: `USERID` is `UID`, and `E` and `Email` are
/// `emailAddress`. globus-gridftp-server and the VOMS library compare names so.
pub(crate) fn spell(name: &str) -> String {
    const SPELLINGS: &[(&str, &str)] = &[
        ("/USERID=", "/UID="),
        ("/emailAddress=", "/emailAddress="),
        ("/Email=", "/emailAddress="),
        ("/E=", "/emailAddress="),
    ];
    let mut spelled = String::with_capacity(name.len());
    let mut rest = name;
    while let Some(slash) = rest.find('/') {
        let (before, from) = rest.split_at(slash);
        spelled.push_str(before);
        let known = SPELLINGS.iter().find(|(other, _)| {
            from.get(..other.len())
                .is_some_and(|start| start.eq_ignore_ascii_case(other))
        });
        let (other, one) = known.unwrap_or(&("/", "/"));
        spelled.push_str(one);
        rest = &from[other.len()..];
    }
    spelled.push_str(rest);
    spelled
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
            ("/E=", "/emailAddress="),
            ("E=a//", "E=a//"),
            ("/CN=\u{fc}/E\u{fc}", "/CN=\u{fc}/E\u{fc}"),
        ] {
            assert_eq!(spell(name), spelled);
        }
    }
}
