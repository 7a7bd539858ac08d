//! The question to the callout, and its answer.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::harmful::is_harmful;

/// The version of the protocol.
const VERSION: u32 = 1;

/// The maximum length of a reason in bytes.
const MAX_REASON: usize = 500;

/// An authenticated client, for the callout.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Claim<'a> {
    /// The identity, in one-line form.
    pub(crate) identity: &'a str,
    /// The subjects of all proxies, and of the user.
    pub(crate) subjects: &'a [&'a str],
    /// The verified VOMS attributes, the primary one first.
    pub(crate) fqans: &'a [&'a str],
    /// The client's address as the process that talks to it reports it.
    pub(crate) address: Option<IpAddr>,
    /// The account that the client named, if it did.
    pub(crate) requested: Option<&'a str>,
}

/// The callout permits the login.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Permission {
    /// The account that it names, if it does.
    pub(crate) account: Option<String>,
}

/// Why there is no permission.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CalloutError {
    /// The callout denies the login, with this reason.
    #[error("{0}")]
    Denied(String),
    /// It gave no valid answer.
    #[error("{0}")]
    Failed(String),
}

#[derive(Serialize)]
struct Question<'a> {
    version: u32,
    identity: &'a str,
    subjects: &'a [&'a str],
    fqans: &'a [&'a str],
    address: Option<IpAddr>,
    requested_account: Option<&'a str>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Answer {
    decision: Decision,
    account: Option<String>,
    reason: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Decision {
    Permit,
    Deny,
}

impl Claim<'_> {
    /// The question as a line of JSON.
    ///
    /// # Errors
    ///
    /// When it cannot be written.
    pub(super) fn to_json(&self) -> Result<Vec<u8>, CalloutError> {
        let question = Question {
            version: VERSION,
            identity: self.identity,
            subjects: self.subjects,
            fqans: self.fqans,
            address: self.address,
            requested_account: self.requested,
        };
        let json = serde_json::to_vec(&question);
        let mut json = json.map_err(|error| CalloutError::Failed(error.to_string()))?;
        json.push(b'\n');
        Ok(json)
    }
}

/// Reads an answer. Anything but one complete object with known keys is a failure.
///
/// # Errors
///
/// When the callout denies, or the answer is invalid.
pub(super) fn read_answer(answer: &[u8]) -> Result<Permission, CalloutError> {
    let answer: Answer = serde_json::from_slice(answer).map_err(|error| {
        // The error quotes the answer.
        let error = one_line(&error.to_string());
        CalloutError::Failed(format!("its answer is invalid: {error}"))
    })?;
    match answer.decision {
        Decision::Deny => {
            let reason = answer.reason.as_deref().map(one_line).unwrap_or_default();
            Err(CalloutError::Denied(reason))
        }
        Decision::Permit => match answer.account {
            Some(account) if !is_account(&account) => Err(CalloutError::Failed(format!(
                "it named {account:?}, which cannot be the name of an account"
            ))),
            account => Ok(Permission { account }),
        },
    }
}

/// The same names as in grid-mapfiles.
fn is_account(name: &str) -> bool {
    let fits = |letter: char| letter.is_alphanumeric() || "._-@+$\\".contains(letter);
    (1..=256).contains(&name.len()) && !name.starts_with('-') && name.chars().all(fits)
}

/// A reason goes to the client and to the log.
fn one_line(text: &str) -> String {
    let text = &text[..text.floor_char_boundary(MAX_REASON)];
    let readable = |letter: char| if is_harmful(letter) { ' ' } else { letter };
    text.chars().map(readable).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_question_is_one_line() {
        let claim = Claim {
            identity: "/DC=org/CN=Al \"x\"\n",
            subjects: &["/DC=org/CN=Al \"x\"\n"],
            fqans: &["/atlas/Role=pilot"],
            address: "192.0.2.7".parse().ok(),
            requested: None,
        };
        let json = String::from_utf8(claim.to_json().expect("written")).expect("UTF-8");
        assert_eq!(
            json,
            "{\"version\":1,\"identity\":\"/DC=org/CN=Al \\\"x\\\"\\n\",\"subjects\":[\"/DC=org/CN=Al \\\"x\\\"\\n\"],\
             \"fqans\":[\"/atlas/Role=pilot\"],\"address\":\"192.0.2.7\",\"requested_account\":null}\n"
        );
    }

    #[test]
    fn only_a_complete_permission_permits() {
        let permit = |account: Option<&str>| {
            Ok(Permission {
                account: account.map(str::to_owned),
            })
        };
        assert_eq!(read_answer(b" {\"decision\":\"permit\"}\n"), permit(None));
        let named = b"{\"decision\":\"permit\",\"account\":\"grid01\",\"reason\":\"x\"}";
        assert_eq!(read_answer(named), permit(Some("grid01")));
        let denied = read_answer(b"{\"decision\":\"deny\",\"reason\":\"a\\nb\"}");
        assert_eq!(denied, Err(CalloutError::Denied("a b".to_owned())));
        for answer in [
            "",
            "permit",
            "{}",
            "{\"decision\":\"Permit\"}",
            "{\"decision\":\"permit\"",
            "{\"decision\":\"permit\"}{\"decision\":\"deny\"}",
            "{\"decision\":\"permit\",\"decision\":\"deny\"}",
            "{\"decision\":\"permit\",\"acount\":\"x\"}",
            "{\"decision\":\"permit\",\"account\":\"\"}",
            "{\"decision\":\"permit\",\"account\":\"../root\"}",
            "{\"decision\":\"permit\",\"account\":\"a:b\"}",
            "{\"decision\":\"permit\",\"account\":7}",
            "[\"permit\"]",
        ] {
            let failed = read_answer(answer.as_bytes());
            assert!(matches!(failed, Err(CalloutError::Failed(_))), "{answer}");
        }
    }

    #[test]
    fn what_an_answer_says_is_one_short_line_without_controls() {
        let quoted = "x\\u202e\\u001b".repeat(10_000);
        for answer in [
            format!("{{\"decision\":\"deny\",\"reason\":\"{quoted}\"}}"),
            format!("{{\"decision\":\"{quoted}\"}}"),
            format!("{{\"{quoted}\":1}}"),
        ] {
            let error = read_answer(answer.as_bytes()).expect_err("no permission");
            let text = error.to_string();
            assert!(text.len() < MAX_REASON + 50, "{}", text.len());
            assert!(!text.contains(is_harmful), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_answers_do_no_harm(answer in proptest::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(read_answer(&answer).is_err());
        }
    }
}
