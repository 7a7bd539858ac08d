//! The tokens of an invitation: each counts once, also if no certificate comes of it.

use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use gridhaul_security::certificate::Certificate;
use gridhaul_security::host_name::HostName;
use gridhaul_security::node_authority::{AuthorityError, NodeAuthority, Token};

/// Tokens that are not used, and the authority that issues certificates for them.
#[derive(Debug)]
pub(super) struct Invitations {
    authority: NodeAuthority,
    open: Mutex<Vec<Token>>,
}

/// A token that has just been used.
#[derive(Debug)]
pub(super) struct Used {
    pub(super) host: HostName,
    /// Leaf first.
    pub(super) issued: Result<Vec<Certificate>, AuthorityError>,
}

impl Invitations {
    pub(super) fn new(authority: NodeAuthority, tokens: Vec<Token>) -> Self {
        Self {
            authority,
            open: Mutex::new(tokens),
        }
    }

    /// Uses the token with this secret. `None` without one: it is wrong, or was used before. Compares it with all tokens, so that
    /// the time is the same for all.
    pub(super) fn redeem(&self, secret: &[u8], request: &[u8], now: SystemTime) -> Option<Used> {
        let token = {
            // Every change under the lock is complete, so a panic elsewhere leaves no partial state.
            let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
            let mut found = None;
            for (place, token) in open.iter().enumerate() {
                if token.has_secret(secret) {
                    found = Some(place);
                }
            }
            open.swap_remove(found?)
        };
        Some(Used {
            issued: self.authority.node(request, &token.host, now),
            host: token.host.clone(),
        })
    }

    /// The hosts whose tokens were not used.
    pub(super) fn left(&self) -> Vec<String> {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.iter().map(|token| token.host.to_string()).collect()
    }
}

#[cfg(test)]
mod tests {
    use gridhaul_security::key::PrivateKey;
    use gridhaul_security::node_authority::request;

    use super::*;

    #[test]
    fn a_token_counts_once_for_its_host_and_also_if_it_is_misused() {
        let now = SystemTime::now();
        let (authority, _) = NodeAuthority::create(now).expect("made");
        let token = |name: &str| {
            let host = name.parse().expect("a host");
            Token::new(host, authority.fingerprint()).expect("a token")
        };
        let [first, second, foreign] = ["dtn1", "dtn2", "dtn1"].map(token);
        let invitations = Invitations::new(authority, vec![first.clone(), second.clone()]);
        let key = PrivateKey::generate_ec().expect("a key");
        let asked = |name: &str| request(&key, &name.parse().expect("a host")).expect("a request");
        let redeem =
            |token: &Token, name: &str| invitations.redeem(token.secret(), &asked(name), now);
        assert!(redeem(&foreign, "dtn1").is_none());
        assert!(invitations.redeem(&[], &asked("dtn1"), now).is_none());
        let used = redeem(&first, "dtn1").expect("invited");
        let issued = used.issued.expect("issued");
        assert!(used.host.is_certified_by(&issued));
        assert!(redeem(&first, "dtn1").is_none(), "used");
        assert_eq!(invitations.left(), ["dtn2"]);
        let used = redeem(&second, "ctl.example.org").expect("invited");
        used.issued.expect_err("for another host");
        assert!(redeem(&second, "dtn2").is_none(), "used");
        assert!(invitations.left().is_empty());
    }
}
