//! Whether a pattern covers a later one, so that a rule with the later pattern is never reached.

/// Whether `first` covers `later` if it matches its text: a wildcard of `later` stands at a place where `first` has a `*`. Its
/// classes and alternatives are not compared.
pub(super) fn are_comparable(first: &str, later: &str) -> bool {
    !first.contains(['?', '[', '{']) && !later.contains(['[', '{'])
}

/// Whether a pattern that matches the subject of a proxy also matches that of its issuer, and the other way around: its wildcard
/// is at the end, and begins in the name of the user at the latest.
pub(super) fn has_all_issuers(pattern: &str) -> bool {
    let Some(start) = pattern.strip_suffix('*') else {
        return false;
    };
    !start.contains('*') && names(start) <= 1
}

/// Whether a pattern is the subject of a user, and not of a proxy, whose subject has a further name.
pub(super) fn is_user(pattern: &str) -> bool {
    !pattern.contains(['*', '?', '[', '{']) && names(pattern) <= 1
}

fn names(subject: &str) -> usize {
    subject.to_ascii_lowercase().matches("/cn=").count()
}
