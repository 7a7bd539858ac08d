//! Tables of the configuration file, `[[authorize]]` and `[[limit]]`. Each key of a table is read on its own, as the keys of the
//! file are, so that one run finds all errors, each with its line, an example, and no words of the TOML library.

use std::ops::Range;

use serde::Deserialize as _;
use serde::de::{DeserializeOwned, IntoDeserializer as _};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::examples::{Example, written};
use super::settings::Settings;
use super::similar::similar;

/// What an element of such a list of tables is read to.
pub(super) trait Table: DeserializeOwned {
    /// The keys that it may have, with an example of each value.
    const KEYS: &'static [(&'static str, Example)];

    /// A table in which every key is optional, so that each can be read alone.
    type Parts: DeserializeOwned;
}

/// Something wrong in a table.
#[derive(Debug)]
pub(super) struct TableProblem {
    /// Where it is in the text of the file.
    pub(super) span: Range<usize>,
    /// Names the table by its number, the key, what is wrong, and the remedy.
    pub(super) text: String,
}

/// The problems of the value of a key whose value must be a list of tables.
pub(super) fn problems<T: Table>(
    key: &str,
    value: &Spanned<DeValue<'_>>,
    text: &str,
) -> Vec<TableProblem> {
    let DeValue::Array(tables) = value.get_ref() else {
        return vec![no_list(key, value.span())];
    };
    let mut found = Vec::new();
    for (index, table) in tables.iter().enumerate() {
        let name = format!("[[{key}]] table {}", index + 1);
        match table.get_ref() {
            DeValue::Table(keys) => found.extend(of_table::<T>(&name, table, keys, text)),
            _ => found.push(no_list(key, table.span())),
        }
    }
    found
}

fn no_list(key: &str, span: Range<usize>) -> TableProblem {
    let text = format!(
        "{key}: this is no list of tables; write [[{key}]] with two brackets on a line of its own, and the keys of the table \
         on the lines below it"
    );
    TableProblem { span, text }
}

fn of_table<T: Table>(
    name: &str,
    table: &Spanned<DeValue<'_>>,
    keys: &DeTable<'_>,
    text: &str,
) -> Vec<TableProblem> {
    let keys = keys.iter();
    let found: Vec<_> = keys
        .filter_map(|(key, value)| {
            let (span, problem) = of_key::<T>(key, value, text)?;
            let text = format!("{name}: {problem}");
            Some(TableProblem { span, text })
        })
        .collect();
    if !found.is_empty() {
        return found;
    }
    // The keys are right, and do not fit together.
    let read = T::deserialize(table.clone().into_deserializer());
    let problem = read.err().map(|error| TableProblem {
        span: table.span(),
        text: format!("{name}: {}", error.message()),
    });
    problem.into_iter().collect()
}

fn of_key<T: Table>(
    key: &Spanned<std::borrow::Cow<'_, str>>,
    value: &Spanned<DeValue<'_>>,
    text: &str,
) -> Option<(Range<usize>, String)> {
    let name = key.get_ref();
    let mut known = T::KEYS.iter();
    let Some((_, example)) = known.find(|(known, _)| known == name) else {
        let hint = match Settings::is_key(name) {
            true => "; keys of the server must stand before the first [[authorize]] or [[limit]]"
                .to_owned(),
            false => {
                let keys = T::KEYS.iter().map(|(key, _)| *key);
                let all: Vec<_> = keys.clone().collect();
                format!("{}; it may have {}", similar(name, keys), all.join(", "))
            }
        };
        return Some((key.span(), format!("{name}: a table has no such key{hint}")));
    };
    let alone = DeTable::from_iter([(key.clone(), value.clone())]);
    let alone = Spanned::new(value.span(), alone);
    let error = T::Parts::deserialize(alone.into_deserializer()).err()?;
    let span = error.span().unwrap_or_else(|| value.span());
    let problem = example.wrong(name, &written(text, &value.span()), error.message());
    Some((span, problem))
}
