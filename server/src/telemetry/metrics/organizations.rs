//! Bytes by virtual organization, for a bounded number of them.

use std::borrow::Cow;
use std::sync::{Mutex, PoisonError};

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;

/// The label of transfers without a VOMS attribute.
const NONE: &str = "none";
/// The label of further organizations.
const OTHER: &str = "other";
/// The number of organizations with a label of their own: the first ones that transfer something.
const MOST: usize = 50;
/// A DNS name has at most this length (RFC 1035 2.3.4).
const LONGEST: usize = 255;

type Labels = [(&'static str, Cow<'static, str>); 2];

#[derive(Debug, Default)]
pub(super) struct Organizations {
    pub(super) bytes: Family<Labels, Counter>,
    known: Mutex<Vec<String>>,
}

impl Organizations {
    pub(super) fn add(&self, organization: Option<&str>, direction: &'static str, bytes: u64) {
        let labels = [
            ("vo", self.label(organization)),
            ("direction", Cow::Borrowed(direction)),
        ];
        self.bytes.get_or_create(&labels).inc_by(bytes);
    }

    fn label(&self, organization: Option<&str>) -> Cow<'static, str> {
        let Some(name) = organization else {
            return Cow::Borrowed(NONE);
        };
        if !is_plain(name) {
            return Cow::Borrowed(OTHER);
        }
        // Names are added whole, so a panic elsewhere leaves no partial state.
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if !known.iter().any(|known| known == name) {
            if known.len() == MOST {
                return Cow::Borrowed(OTHER);
            }
            known.push(name.to_owned());
        }
        Cow::Owned(name.to_owned())
    }
}

/// Whether it has the form of a name that organizations have: that of a host. Then it needs no escapes.
fn is_plain(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    (1..=LONGEST).contains(&name.len()) && name.bytes().all(allowed) && name != NONE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn organizations_are_bounded_by_first_appearance() {
        let organizations = Organizations::default();
        for number in 0..60 {
            organizations.add(Some(&format!("vo{number}.example.org")), "sent", 1);
        }
        organizations.add(Some("vo3.example.org"), "sent", 1);
        organizations.add(None, "sent", 5);
        for hostile in ["", "a\"} 1", "a\nb", "none", &"x".repeat(256)] {
            organizations.add(Some(hostile), "sent", 100);
        }
        let bytes = |vo: &'static str| {
            let labels = [("vo", vo.into()), ("direction", "sent".into())];
            organizations.bytes.get(&labels).map(|found| found.get())
        };
        assert_eq!(bytes("vo3.example.org"), Some(2));
        assert_eq!(bytes("vo49.example.org"), Some(1));
        assert_eq!(bytes("vo50.example.org"), None);
        assert_eq!(bytes("other"), Some(510));
        assert_eq!(bytes("none"), Some(5));
    }
}
