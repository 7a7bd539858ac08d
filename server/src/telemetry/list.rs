//! A list of texts as the value of a field of a log line.

use std::error::Error;
use std::fmt;

/// A list of texts. It is an array in JSON, and several fields of one name in the journal.
///
/// `tracing` has no values that are lists. Its only values of arbitrary types are errors, which a formatter can ask for their
/// type. So a list is given to it as an error: `peers = list.value()`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct List(Vec<String>);

impl List {
    /// `None` for an empty list, so that the log has no field for what most lines lack.
    pub(super) fn of(items: impl IntoIterator<Item = impl fmt::Display>) -> Option<Self> {
        let items: Vec<String> = items.into_iter().map(|item| item.to_string()).collect();
        (!items.is_empty()).then_some(Self(items))
    }

    /// The list as a value for `tracing`.
    pub(super) fn value(&self) -> &(dyn Error + 'static) {
        self
    }

    /// The list in a value, if it has one.
    pub(super) fn in_value<'a>(value: &'a (dyn Error + 'static)) -> Option<&'a [String]> {
        value.downcast_ref::<Self>().map(|list| list.0.as_slice())
    }
}

impl Error for List {}

/// As a text line has it. Texts with characters that could look like the end of the list are in quotes.
impl fmt::Display for List {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_plain = |c: char| {
            c.is_alphanumeric() || matches!(c, '/' | '=' | '.' | ':' | '_' | '-' | '%' | '+')
        };
        f.write_str("[")?;
        for (place, item) in self.0.iter().enumerate() {
            if place > 0 {
                f.write_str(", ")?;
            }
            if !item.is_empty() && item.chars().all(is_plain) {
                f.write_str(item)?;
            } else {
                write!(f, "{item:?}")?;
            }
        }
        f.write_str("]")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_cannot_end_the_list() {
        let list =
            List::of(["/atlas/Role=production", "a] peer=192.0.2.1 [\"b"]).expect("not empty");
        let text = "[/atlas/Role=production, \"a] peer=192.0.2.1 [\\\"b\"]";
        assert_eq!(list.to_string(), text);
        assert_eq!(List::in_value(list.value()).map(<[String]>::len), Some(2));
        assert_eq!(List::of([""; 0]), None);
    }
}
