//! Finds phrases that plain technical English does without, in comments and Markdown pages.

use std::path::Path;

use serde::Deserialize;

use crate::workspace::{LintError, files, read, toml_file};

const RULES: &str = "lints/words.toml";

/// The phrases, each with what to write instead.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Rules {
    rule: Vec<Rule>,
    /// Pages that are not checked, with the reason.
    #[serde(default)]
    except: Vec<Exception>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Rule {
    /// Words in lower case, separated by one space. `*` stands for any one word.
    phrases: Vec<String>,
    reason: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Exception {
    /// The beginning of the file's path from the top directory.
    path: String,
    /// Why its words are not ours, or not prose. For readers of the file of rules.
    #[serde(rename = "reason")]
    _reason: String,
}

/// Prints each phrase that a rule names, and returns their number.
///
/// # Errors
///
/// If a file cannot be read.
pub(crate) fn check() -> Result<usize, LintError> {
    let rules: Rules = toml_file(Path::new(RULES))?;
    let mut findings = 0;
    for path in files(Path::new("."), &["rs", "md"])? {
        let name = path.to_string_lossy();
        let name = name.trim_start_matches("./");
        if rules
            .except
            .iter()
            .any(|except| name.starts_with(&except.path))
        {
            continue;
        }
        let text = read(&path)?;
        let prose = if name.ends_with(".md") {
            page(&text)
        } else {
            comments(&text)
        };
        for (line, phrase, reason) in matches(&prose, &rules.rule) {
            findings += 1;
            println!("{name}:{line}: \"{phrase}\": {reason}");
        }
    }
    Ok(findings)
}

/// A word of prose in lower case, with its line. `None` ends a sentence or a comment.
type Word = Option<(usize, String)>;

/// The words of the line comments of a Rust source.
fn comments(text: &str) -> Vec<Word> {
    let mut words = Vec::new();
    let mut in_example = false;
    for (index, line) in text.lines().enumerate() {
        match line.trim_start().strip_prefix("//") {
            Some(comment) => {
                let comment = comment.trim_start_matches(['/', '!']);
                if comment.trim_start().starts_with("```") {
                    in_example = !in_example;
                } else if !in_example {
                    add_line(&mut words, comment, index + 1);
                }
            }
            None => {
                in_example = false;
                words.push(None);
                if let Some((_, comment)) = line.split_once(" // ") {
                    add_line(&mut words, comment, index + 1);
                    words.push(None);
                }
            }
        }
    }
    words
}

/// The words of a Markdown page, without its code blocks.
fn page(text: &str) -> Vec<Word> {
    let mut words = Vec::new();
    let mut in_code = false;
    for (index, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
        }
        if in_code || line.starts_with("    ") || line.trim().is_empty() {
            words.push(None);
        } else {
            add_line(&mut words, line, index + 1);
        }
    }
    words
}

/// Adds the words of a line. `code` in backquotes is not prose and stands as one word without letters.
fn add_line(words: &mut Vec<Word>, line: &str, number: usize) {
    for (index, part) in line.split('`').enumerate() {
        if index % 2 == 1 {
            words.push(Some((number, "`".to_owned())));
            continue;
        }
        for word in part.split_whitespace() {
            let letters = |c: char| c.is_alphanumeric() || c == '\'' || c == '-';
            let bare = word.trim_matches(|c| !letters(c)).to_lowercase();
            if !bare.is_empty() {
                words.push(Some((number, bare)));
            }
            if word.ends_with(['.', ':', ';', '?', '|']) {
                words.push(None);
            }
        }
    }
}

/// The places where a rule's phrase stands: line, phrase, reason.
fn matches<'a>(words: &[Word], rules: &'a [Rule]) -> Vec<(usize, &'a str, &'a str)> {
    let mut found = Vec::new();
    for rule in rules {
        for phrase in &rule.phrases {
            let wanted: Vec<&str> = phrase.split(' ').collect();
            for window in words.windows(wanted.len()) {
                let fits = window.iter().zip(&wanted).all(|(word, wanted)| {
                    word.as_ref()
                        .is_some_and(|(_, word)| *wanted == "*" || word == wanted)
                });
                if let (true, Some(Some((line, _)))) = (fits, window.first()) {
                    found.push((*line, phrase.as_str(), rule.reason.as_str()));
                }
            }
        }
    }
    found.sort_unstable();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule() -> Vec<Rule> {
        let phrases = vec!["whoever".to_owned(), "what there is to *".to_owned()];
        vec![Rule {
            phrases,
            reason: "name it".to_owned(),
        }]
    }

    fn found(words: &[Word]) -> Vec<(usize, String)> {
        let rules = rule();
        matches(words, &rules)
            .into_iter()
            .map(|(line, p, _)| (line, p.to_owned()))
            .collect()
    }

    #[test]
    fn phrases_are_found_over_the_end_of_a_line() {
        let text = "/// Says what there is\n/// to say.\nlet x = 1; // Whoever asks.\n";
        let expected = [
            (1, "what there is to *".to_owned()),
            (3, "whoever".to_owned()),
        ];
        assert_eq!(found(&comments(text)), expected);
    }

    #[test]
    fn code_is_not_prose() {
        assert!(
            found(&comments(
                "let whoever = 1;\n/// ```\n/// whoever();\n/// ```\n"
            ))
            .is_empty()
        );
        assert!(found(&comments("/// `whoever` is a name.\n")).is_empty());
        assert!(found(&page("Text.\n\n    whoever\n\n```\nwhoever\n```\n")).is_empty());
    }

    #[test]
    fn sentences_end_phrases() {
        assert!(found(&page("What there is. To do.\n")).is_empty());
    }
}
