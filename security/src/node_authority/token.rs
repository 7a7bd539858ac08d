//! One-time tokens, with which a node without a certificate gets one.
//!
//! A token is a line of text that the administrator carries from the control server to the node: the name of the node, the
//! fingerprint of the authority, and a secret. The fingerprint lets the node know the control server before it sends the
//! secret.

use std::fmt;
use std::str::FromStr;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use zeroize::Zeroizing;

use super::AuthorityError;
use super::authority::random;
use crate::certificate::Fingerprint;
use crate::host_name::HostName;

/// The format of the text.
const BEGIN: &str = "gh1";

/// The bytes of a secret: too many to guess.
const SECRET: usize = 32;

/// A name of 253 characters, and the other parts.
const LONGEST: usize = 512;

/// A token. Its secret is wiped, and never printed by `Debug`.
#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    /// The host that may enrol.
    pub host: HostName,
    /// The authority of the control server.
    pub authority: Fingerprint,
    secret: Zeroizing<[u8; SECRET]>,
}

/// A text that is no token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "this is no token: take the whole text from {BEGIN}/ on that `gridhaul-server nodes invite` has printed for this node"
)]
pub struct TokenError;

impl Token {
    /// A new token.
    ///
    /// # Errors
    ///
    /// When there are no random numbers.
    pub fn new(host: HostName, authority: Fingerprint) -> Result<Self, AuthorityError> {
        Ok(Self {
            host,
            authority,
            secret: Zeroizing::new(random()?),
        })
    }

    /// The text for the node.
    pub fn text(&self) -> Zeroizing<String> {
        let [authority, secret] = [&self.authority.0, &*self.secret]
            .map(|bytes| Zeroizing::new(URL_SAFE_NO_PAD.encode(bytes)));
        Zeroizing::new(format!("{BEGIN}/{}/{}/{}", self.host, *authority, *secret))
    }

    /// What the node sends.
    pub fn secret(&self) -> &[u8] {
        &*self.secret
    }

    /// Whether a peer has sent the secret. Takes the same time for all secrets of its length.
    pub fn has_secret(&self, sent: &[u8]) -> bool {
        verify_slices_are_equal(&*self.secret, sent).is_ok()
    }
}

impl FromStr for Token {
    type Err = TokenError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let text = text.trim();
        if text.len() > LONGEST {
            return Err(TokenError);
        }
        let mut parts = text.split('/');
        let mut next = || parts.next().ok_or(TokenError);
        if next()? != BEGIN {
            return Err(TokenError);
        }
        let host = next()?.parse().map_err(|_| TokenError)?;
        let authority = Fingerprint(*decoded(next()?)?);
        let secret = decoded(next()?)?;
        match parts.next() {
            None => Ok(Self {
                host,
                authority,
                secret,
            }),
            Some(_) => Err(TokenError),
        }
    }
}

fn decoded(text: &str) -> Result<Zeroizing<[u8; SECRET]>, TokenError> {
    let mut bytes = Zeroizing::new([0; SECRET]);
    // The estimate of the decoder is longer than the result may be.
    let mut buffer = Zeroizing::new([0; SECRET + 4]);
    let length = URL_SAFE_NO_PAD.decode_slice(text, &mut *buffer);
    if length != Ok(SECRET) {
        return Err(TokenError);
    }
    bytes.copy_from_slice(&buffer[..SECRET]);
    Ok(bytes)
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Token")
            .field("host", &self.host)
            .field("authority", &self.authority)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(host: &str) -> Token {
        let host = host.parse().expect("a host");
        Token::new(host, Fingerprint([7; 32])).expect("a token")
    }

    #[test]
    fn the_text_has_everything_and_debug_has_no_secret() {
        for host in ["dtn1.example.org", "192.0.2.1", "2001:db8::1"] {
            let made = token(host);
            let text = made.text();
            assert_eq!(format!(" {}\n", *text).parse(), Ok(made.clone()));
            assert!(made.has_secret(made.secret()));
            assert!(!made.has_secret(&made.secret()[1..]));
            assert!(!made.has_secret(&[]));
            let secret = text.rsplit('/').next().expect("the last part");
            assert_eq!(secret.len(), 43);
            assert!(!format!("{made:?}").contains(secret));
        }
        assert!(!token("dtn1").has_secret(token("dtn1").secret()));
    }

    #[test]
    fn other_texts_are_refused() {
        let text = token("dtn1").text();
        let cut: Vec<String> = (0..text.len()).map(|end| text[..end].to_owned()).collect();
        let others = [
            format!("{}/", *text),
            format!("{}A", *text),
            text.replace("gh1", "gh2"),
            text.replace("dtn1", "dtn/1"),
            text.replace("dtn1", ""),
            "x".repeat(10_000),
        ];
        for text in cut.iter().chain(&others) {
            assert_eq!(text.parse::<Token>(), Err(TokenError), "{text}");
        }
    }
}
