//! The one-time word, by which an end that listens knows its peer, and the peer knows it.
//!
//! The word itself does not travel: each end proves that it knows it, for two random numbers of this connection.

use std::fmt;

use aws_lc_rs::hmac::{HMAC_SHA256, Key, sign, verify};
use gridhaul_stack::random_bytes;
use zeroize::Zeroizing;

/// Without letters that look like digits (Crockford's base 32).
const LETTERS: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";

/// Eighty bits, so that a proof which was observed does not help to guess the word.
const LENGTH: usize = 16;

/// Letters of a group, for the eye.
const GROUP: usize = 4;

/// The word.
pub(super) struct Word(Zeroizing<String>);

/// The end that proves. Without it, a proof could be sent back as the other one's.
#[derive(Debug, Clone, Copy)]
pub(super) enum Role {
    Listens,
    Asks,
}

/// The random numbers of both ends as text.
#[derive(Debug, Clone)]
pub(super) struct Nonces {
    pub(super) listener: String,
    pub(super) asker: String,
}

impl Word {
    pub(super) fn random() -> Self {
        let bytes = Zeroizing::new(random_bytes::<LENGTH>());
        let letters = bytes.iter().map(|byte| LETTERS[usize::from(byte & 31)]);
        Self(Zeroizing::new(letters.map(char::from).collect()))
    }

    /// As a person types it: with or without hyphens, and with letters for digits. `None` if it cannot be a word.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut word = Zeroizing::new(String::with_capacity(LENGTH));
        for letter in text.chars().filter(|letter| !matches!(letter, '-' | ' ')) {
            let letter = match letter.to_ascii_lowercase() {
                'o' => '0',
                'i' | 'l' => '1',
                other => other,
            };
            let is_letter = u8::try_from(letter).is_ok_and(|letter| LETTERS.contains(&letter));
            if !is_letter || word.len() == LENGTH {
                return None;
            }
            word.push(letter);
        }
        (word.len() == LENGTH).then_some(Self(word))
    }

    /// In hexadecimal.
    pub(super) fn proof(&self, role: Role, nonces: &Nonces) -> String {
        let tag = sign(&self.key(), message(role, nonces).as_bytes());
        hexadecimal(tag.as_ref())
    }

    /// Compares in constant time.
    pub(super) fn is_proof(&self, role: Role, nonces: &Nonces, proof: &str) -> bool {
        let tag = bytes(proof);
        tag.is_some_and(|tag| verify(&self.key(), message(role, nonces).as_bytes(), &tag).is_ok())
    }

    fn key(&self) -> Key {
        Key::new(HMAC_SHA256, self.0.as_bytes())
    }
}

impl fmt::Display for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, letter) in self.0.chars().enumerate() {
            if place > 0 && place % GROUP == 0 {
                f.write_str("-")?;
            }
            write!(f, "{letter}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Word")
    }
}

/// A random number as text: for a proof, or as the token of a data connection.
pub(super) fn nonce() -> String {
    hexadecimal(&random_bytes::<16>())
}

fn message(role: Role, nonces: &Nonces) -> String {
    let role = match role {
        Role::Listens => "listens",
        Role::Asks => "asks",
    };
    format!("{role} {} {}", nonces.listener, nonces.asker)
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// `None` if the text has other letters, or half a byte.
fn bytes(hexadecimal: &str) -> Option<Vec<u8>> {
    let digits = hexadecimal.as_bytes();
    let pairs = digits.chunks(2).map(|pair| {
        let pair = std::str::from_utf8(pair).ok()?;
        let is_pair = pair.len() == 2 && pair.bytes().all(|digit| digit.is_ascii_hexdigit());
        is_pair.then(|| u8::from_str_radix(pair, 16).ok())?
    });
    pairs.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nonces() -> Nonces {
        Nonces {
            listener: nonce(),
            asker: nonce(),
        }
    }

    #[test]
    fn a_word_is_read_as_it_is_shown() {
        let word = Word::random();
        let shown = word.to_string();
        assert_eq!(shown.len(), 19, "{shown}");
        assert_ne!(shown, Word::random().to_string());
        let nonces = nonces();
        let proof = word.proof(Role::Asks, &nonces);
        for typed in [
            shown.clone(),
            shown.replace('-', ""),
            shown.to_uppercase(),
            shown.replace('0', "o").replace('1', "L"),
        ] {
            let typed = Word::parse(&typed).expect("a word");
            assert!(typed.is_proof(Role::Asks, &nonces, &proof));
        }
        for wrong in [
            "",
            "abcd",
            "u234-5678-9abc-defg",
            &format!("{shown}0"),
            "\u{e9}234-5678-9abc-defg",
        ] {
            assert!(Word::parse(wrong).is_none(), "{wrong}");
        }
    }

    #[test]
    fn a_proof_is_for_one_end_one_connection_and_one_word() {
        let (word, ours) = (Word::random(), nonces());
        let proof = word.proof(Role::Asks, &ours);
        assert!(word.is_proof(Role::Asks, &ours, &proof));
        assert!(!word.is_proof(Role::Listens, &ours, &proof));
        assert!(!word.is_proof(Role::Asks, &nonces(), &proof));
        assert!(!Word::random().is_proof(Role::Asks, &ours, &proof));
        for wrong in ["", "0", &proof[1..], &proof[2..], "zz", "\u{e9}\u{e9}"] {
            assert!(!word.is_proof(Role::Asks, &ours, wrong), "{wrong}");
        }
    }
}
