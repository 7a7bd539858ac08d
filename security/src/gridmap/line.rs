//! Parses a line of a grid-mapfile.

use crate::one_line;

/// Parses a line: the subject in the one-line form, and at least one account. `None` for an empty line or a comment. The
/// error has the cause and the remedy.
pub(super) fn parse(line: &[u8]) -> Result<Option<(String, Vec<String>)>, String> {
    let line = line.trim_ascii();
    if line.is_empty() || line[0] == b'#' {
        return Ok(None);
    }
    let (subject, rest, quoted) = match line.strip_prefix(b"\"") {
        Some(quoted) => {
            let end = closing_quote(quoted)
                .ok_or("the quote that opens the subject is not closed: write \" after it")?;
            (&quoted[..end], &quoted[end + 1..], true)
        }
        None => {
            let end = line.iter().position(u8::is_ascii_whitespace);
            let (subject, rest) = line.split_at(end.unwrap_or(line.len()));
            (subject, rest, false)
        }
    };
    let subject = one_line::read(subject);
    if !subject.starts_with('/') {
        return Err("the subject does not begin with a slash: \
                    write it as /O=Grid/CN=Name, with the most general part first"
            .to_owned());
    }
    let accounts = accounts(without_comment(rest), quoted)?;
    Ok(Some((subject, accounts)))
}

fn closing_quote(text: &[u8]) -> Option<usize> {
    let mut escaped = false;
    text.iter().position(|&byte| {
        let closes = byte == b'"' && !escaped;
        escaped = byte == b'\\' && !escaped;
        closes
    })
}

fn without_comment(text: &[u8]) -> &[u8] {
    let comment = text
        .iter()
        .enumerate()
        .position(|(at, &byte)| byte == b'#' && (at == 0 || text[at - 1].is_ascii_whitespace()));
    &text[..comment.unwrap_or(text.len())]
}

/// The accounts are separated by commas and, if the subject is quoted, also by spaces, as in globus-gridftp-server. Without
/// quotes, spaces most likely belong to the subject, and a truncated subject must not be mapped.
fn accounts(text: &[u8], quoted: bool) -> Result<Vec<String>, String> {
    let text = str::from_utf8(text).map_err(|_| "the account is not UTF-8")?;
    let mut accounts = Vec::new();
    for part in text.split(',') {
        let mut words = part.split_ascii_whitespace();
        accounts.extend(words.next());
        match words.next() {
            Some(word) if quoted => accounts.extend([word].into_iter().chain(words)),
            Some(_) => {
                return Err("the subject seems to have spaces: put it in quotes; \
                            or the accounts lack a comma between them"
                    .to_owned());
            }
            None => {}
        }
    }
    if accounts.is_empty() {
        return Err("no account follows the subject: write one after it".to_owned());
    }
    accounts
        .into_iter()
        .map(|name| check_account(name).map(|()| name.to_owned()))
        .collect()
}

fn check_account(name: &str) -> Result<(), String> {
    if let Some(pool) = name.strip_prefix('.') {
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
        return match (1..32).contains(&pool.len())
            && pool.bytes().all(fits)
            && !pool.starts_with('-')
        {
            true => Ok(()),
            false => Err(format!("{name:?} cannot be the name of a pool of accounts")),
        };
    }
    let is_name = name.len() <= 256
        && !name.starts_with('-')
        && name
            .chars()
            .all(|c| c.is_alphanumeric() || "._-@+$\\".contains(c));
    if !is_name {
        return Err(format!("{name:?} cannot be the name of an account"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn quotes_and_backslashes_can_stand_in_a_subject() {
        let line = br#""\x2fCN=Al \"A\" Smith\\" al"#;
        let (subject, accounts) = parse(line).expect("valid").expect("not a comment");
        assert_eq!(subject, r#"/CN=Al "A" Smith\"#);
        assert_eq!(accounts, ["al"]);
    }

    #[test]
    fn comments_begin_at_the_line_or_behind_a_space() {
        for comment in ["", " \t\r", "#x", "  # \"/CN=a\" a"] {
            assert_eq!(parse(comment.as_bytes()), Ok(None), "{comment:?}");
        }
        for line in ["\"/CN=a#b\" a # b", "/CN=a#b a #"] {
            let parsed = parse(line.as_bytes()).expect("valid");
            assert_eq!(parsed, Some(("/CN=a#b".to_owned(), vec!["a".to_owned()])));
        }
    }

    #[test]
    fn a_pool_may_stand_for_an_account() {
        let (_, accounts) = parse(b"/CN=a .atlas,alice")
            .expect("valid")
            .expect("a line");
        assert_eq!(accounts, [".atlas", "alice"]);
    }

    #[test]
    fn each_mistake_is_named() {
        for (line, reason) in [
            (r#""/CN=a a"#, "not closed"),
            (r#""/CN=a\" a"#, "not closed"),
            (r#""/CN=a""#, "no account"),
            (r#""/CN=a" , ,"#, "no account"),
            ("/CN=a", "no account"),
            ("/CN=a # b", "no account"),
            ("/CN=Test User gridtest", "put it in quotes"),
            ("CN=a,O=Grid a", "begin with a slash"),
            ("\"\" a", "begin with a slash"),
            ("\"/CN=a\" .", "of a pool"),
            ("\"/CN=a\" ..", "of a pool"),
            ("\"/CN=a\" .po.ol", "of a pool"),
            ("\"/CN=a\" a:b", "cannot be the name"),
            ("\"/CN=a\" a,-b", "cannot be the name"),
            ("\"/CN=a\" a/b", "cannot be the name"),
            ("\"/CN=a\"b\" c", "cannot be the name"),
        ] {
            let error = parse(line.as_bytes()).expect_err(line);
            assert!(error.contains(reason), "{line}: {error}");
        }
    }

    proptest! {
        #[test]
        fn every_subject_can_be_written(name in "/[ -~]{0,40}", utf8 in any::<bool>()) {
            let name = if utf8 { format!("{name}\u{fc}") } else { name };
            let written = name.replace('\\', r"\\").replace('"', "\\\"");
            let line = format!("\"{written}\" account");
            let (subject, _) = parse(line.as_bytes()).expect("valid").expect("not a comment");
            prop_assert_eq!(subject, name.replace('\u{fc}', r"\xC3\xBC"));
        }

        #[test]
        fn arbitrary_lines_do_no_harm(line in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(Some((subject, accounts))) = parse(&line) {
                prop_assert!(subject.starts_with('/') && subject.is_ascii());
                prop_assert!(!accounts.is_empty());
            }
        }
    }
}
