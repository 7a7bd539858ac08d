//! Warnings and errors of the log, compared with the page that lists them.

use std::fs;
use std::path::{Path, PathBuf};

use crate::{page, top};

/// The crates that write to the log.
const CRATES: [&str; 2] = ["server/src", "accounts/src"];

/// All source files beneath a directory.
fn sources(directory: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for path in crate::entries(directory) {
        if path.is_dir() {
            files.extend(sources(&path));
        } else if path.extension().is_some_and(|kind| kind == "rs") {
            files.push(path);
        }
    }
    files
}

/// The arguments of the calls of a macro in a text.
fn calls<'a>(text: &'a str, name: &str) -> Vec<&'a str> {
    let mut found = Vec::new();
    for (start, _) in text.match_indices(name) {
        let is_other = text[..start].ends_with(|c: char| c.is_alphanumeric() || c == '_');
        let rest = &text[start + name.len()..];
        if !is_other {
            found.push(&rest[..end(rest)]);
        }
    }
    found
}

/// Where the parenthesis closes that was open before a text.
fn end(text: &str) -> usize {
    let (mut depth, mut quoted, mut escaped) = (1, false, false);
    for (index, letter) in text.char_indices() {
        match letter {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            '(' if !quoted => depth += 1,
            ')' if !quoted => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return index;
        }
    }
    text.len()
}

/// The message among the arguments of a macro: the last text in quotes, on one line.
fn message(arguments: &str) -> Option<String> {
    let arguments = arguments.trim().trim_end_matches(',');
    let texts = arguments.split('"').skip(1).step_by(2);
    let message = texts.last()?;
    let lines = message.split("\\\n").map(str::trim_start);
    Some(lines.collect())
}

/// Whether a text is of this form, whose parts are in order. Between them there may be anything.
fn is_of_form(form: &[&str], text: &str) -> bool {
    let (Some((first, others)), Some(last)) = (form.split_first(), form.last()) else {
        return false;
    };
    let Some(mut rest) = text.strip_prefix(first) else {
        return false;
    };
    for part in others {
        match rest.find(part) {
            Some(place) => rest = &rest[place + part.len()..],
            None => return false,
        }
    }
    text.ends_with(last)
}

/// Without the names of values in braces.
fn parts(message: &str) -> Vec<&str> {
    let parts = message.split('{').enumerate();
    parts
        .map(|(index, part)| match index {
            0 => part,
            _ => part.split_once('}').map_or(part, |(_, part)| part),
        })
        .collect()
}

#[test]
fn every_warning_and_error_of_the_log_is_documented() {
    let page = page("docs/reference/log.md");
    let documented: Vec<&str> = page.spans().collect();
    let mut seen = 0;
    for directory in CRATES {
        for file in sources(&top().join(directory)) {
            let source = fs::read_to_string(&file).expect("it is there");
            let code = source.split("#[cfg(test)]\nmod tests {").next();
            let code = code.unwrap_or_default();
            for arguments in ["warn!(", "error!("]
                .iter()
                .flat_map(|name| calls(code, name))
            {
                // A macro's own arguments, or a text that is named elsewhere.
                let message = message(arguments).filter(|message| message != "{}");
                let Some(message) = message.filter(|_| !arguments.contains('$')) else {
                    continue;
                };
                seen += 1;
                let own = parts(&message);
                let is_told = documented.iter().any(|span| {
                    let form: Vec<&str> = span.split("...").collect();
                    is_of_form(&form, &message) || own.len() > 1 && is_of_form(&own, span)
                });
                assert!(
                    is_told,
                    "docs/reference/log.md lacks {message:?} of {file:?}"
                );
            }
        }
    }
    assert!(seen > 50, "only {seen} messages");
}
