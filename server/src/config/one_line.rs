//! The form of subjects and VOMS attributes in the configuration. Both are compared as `/DC=org/CN=Alice` and `/atlas/Role=production`,
//! so a text of another form is about no user, and a rule that denies would deny nothing.

use std::borrow::Cow;

/// A text that can match nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum FormError {
    #[error("'{text}' does not begin with a slash and matches no user: write {remedy}")]
    Subject { text: String, remedy: String },
    #[error("'{text}' does not begin with a slash and matches no VOMS attribute: write /{text}")]
    Attribute { text: String },
    #[error("'{text}' begins with a slash and is the name of no virtual organization: write {}", text.trim_start_matches('/'))]
    Organization { text: String },
    #[error(
        "'{text}' is compared as it stands, so that * matches no other text: name each subject, or leave admin-subjects out \
         for all that admin-clients has issued"
    )]
    Wildcard { text: String },
}

/// A pattern for subjects. It may begin with a wildcard.
pub(super) fn check_subject_pattern(text: &str) -> Result<(), FormError> {
    match may_begin_with_slash(text) {
        true => Ok(()),
        false => Err(no_subject(text)),
    }
}

/// A subject that is compared as it stands. A certificate of a host may have `CN=*.example.org`.
pub(super) fn check_subject(text: &str) -> Result<(), FormError> {
    if text == "*" || text.ends_with("/*") || text.ends_with("=*") {
        let text = text.to_owned();
        return Err(FormError::Wildcard { text });
    }
    match text.starts_with('/') {
        true => Ok(()),
        false => Err(no_subject(text)),
    }
}

/// A pattern for VOMS attributes. It may begin with a wildcard.
pub(super) fn check_attribute_pattern(text: &str) -> Result<(), FormError> {
    match may_begin_with_slash(text) {
        true => Ok(()),
        false => Err(FormError::Attribute {
            text: text.to_owned(),
        }),
    }
}

/// A pattern for names of virtual organizations, which are those of the first groups of attributes, without the slash.
pub(super) fn check_organization_pattern(text: &str) -> Result<(), FormError> {
    match text.starts_with('/') {
        false => Ok(()),
        true => Err(FormError::Organization {
            text: text.to_owned(),
        }),
    }
}

/// Whether a text that the pattern matches may begin with a slash.
fn may_begin_with_slash(pattern: &str) -> bool {
    pattern.starts_with(['/', '*', '?', '[', '{'])
}

fn no_subject(text: &str) -> FormError {
    FormError::Subject {
        text: text.to_owned(),
        remedy: one_line(text),
    }
}

/// The one-line form of a name that OpenSSL or another program wrote with commas: `CN=Alice,DC=example,DC=org` (RFC 2253) or
/// `DC = org, DC = example, CN = Alice` (the default of `openssl x509 -subject`).
fn one_line(text: &str) -> String {
    let attribute = |part: &str| {
        let (key, value) = part.split_once('=')?;
        Some(format!("{}={}", key.trim(), value.trim()))
    };
    let parts: Option<Vec<String>> = text.split(',').map(attribute).collect();
    let Some(mut parts) = parts else {
        let rest: Cow<'_, str> = match text.trim() {
            "" => "DC=org/CN=Name".into(),
            text => text.into(),
        };
        return format!("/{rest}");
    };
    // RFC 2253 begins with the last attribute, which is mostly the name of the user.
    let is_outer = |part: &String| {
        let key = part.split('=').next().unwrap_or_default();
        ["DC", "C", "O"]
            .iter()
            .any(|outer| key.eq_ignore_ascii_case(outer))
    };
    if parts.last().is_some_and(is_outer) && !parts.first().is_some_and(is_outer) {
        parts.reverse();
    }
    format!("/{}", parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_commas_are_written_with_slashes() {
        for (text, expected) in [
            ("CN=Alice,DC=trial,DC=org", "/DC=org/DC=trial/CN=Alice"),
            (
                "DC = org, DC = trial, CN = Alice",
                "/DC=org/DC=trial/CN=Alice",
            ),
            ("CN=Alice", "/CN=Alice"),
            ("DC=org/CN=Alice", "/DC=org/CN=Alice"),
            ("Alice", "/Alice"),
            ("", "/DC=org/CN=Name"),
        ] {
            let error = check_subject_pattern(text).expect_err(text).to_string();
            let words = format!("matches no user: write {expected}");
            assert!(error.ends_with(&words), "{text}: {error}");
        }
    }

    #[test]
    fn patterns_that_can_match_are_accepted() {
        for text in [
            "/DC=org/CN=Alice",
            "*",
            "*/CN=Alice",
            "?DC=org*",
            "{/A=1,/B=2}",
            "[/]A=1",
        ] {
            check_subject_pattern(text).expect(text);
            check_attribute_pattern(text).expect(text);
        }
        for text in ["/DC=org/CN=Alice", "/CN=*.example.org"] {
            check_subject(text).expect(text);
        }
        for text in ["*", "/DC=org/*", "/DC=org/CN=*", "CN=Alice"] {
            check_subject(text).expect_err(text);
        }
        check_organization_pattern("atlas").expect("a name");
        check_organization_pattern("/atlas").expect_err("a slash");
        check_attribute_pattern("atlas/Role=production").expect_err("no slash");
    }
}
