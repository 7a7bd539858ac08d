//! The values of a form (`application/x-www-form-urlencoded`).

/// The value of a field, if the form has it.
pub(super) fn value(form: &[u8], name: &str) -> Option<Vec<u8>> {
    form.split(|byte| *byte == b'&').find_map(|field| {
        let value = field.strip_prefix(name.as_bytes())?;
        value.strip_prefix(b"=").map(decode)
    })
}

fn decode(text: &[u8]) -> Vec<u8> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((first, others)) = rest.split_first() {
        let escaped = others.get(..2).filter(|_| *first == b'%');
        let escaped = escaped.and_then(|digits| std::str::from_utf8(digits).ok());
        let escaped = escaped.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        let byte = match (escaped, first) {
            (Some(byte), _) => byte,
            (None, b'+') => b' ',
            (None, byte) => *byte,
        };
        decoded.push(byte);
        rest = if escaped.is_some() {
            &others[2..]
        } else {
            others
        };
    }
    decoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_comes_out_as_it_was_typed() {
        let found = |form: &str| {
            value(form.as_bytes(), "token")
                .map(|value| String::from_utf8_lossy(&value).into_owned())
        };
        assert_eq!(found("token=a%2Fb%2b%3D+c").as_deref(), Some("a/b+= c"));
        assert_eq!(found("x=1&token=abc&y=2").as_deref(), Some("abc"));
        assert_eq!(found("token=%zz%4").as_deref(), Some("%zz%4"));
        assert_eq!(found("tokens=abc"), None);
        assert_eq!(found(""), None);
    }
}
