//! How values are read from the file: as texts that are parsed like those of flags, and lists of these.

use std::fmt::{self, Display};
use std::marker::PhantomData;
use std::str::FromStr;

use serde::Deserialize;
use serde::de::{Deserializer, Error, SeqAccess, Visitor};

/// Reads values of these kinds from strings in the file, as from flags.
macro_rules! deserialize_as_text {
    ($($kind:ty),*) => {$(
        impl<'de> serde::Deserialize<'de> for $kind {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_any($crate::config::texts::Text::<$kind>::quoted())
            }
        }
    )*};
}

/// As [`deserialize_as_text`], and from plain numbers.
macro_rules! deserialize_as_number_or_text {
    ($($kind:ty),*) => {$(
        impl<'de> serde::Deserialize<'de> for $kind {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_any($crate::config::texts::Text::<$kind>::or_number())
            }
        }
    )*};
}

pub(super) use {deserialize_as_number_or_text, deserialize_as_text};

/// Reads one value.
pub(super) struct Text<T> {
    may_be_number: bool,
    kind: PhantomData<T>,
}

impl<T> Text<T> {
    pub(super) fn quoted() -> Self {
        Self {
            may_be_number: false,
            kind: PhantomData,
        }
    }

    pub(super) fn or_number() -> Self {
        Self {
            may_be_number: true,
            kind: PhantomData,
        }
    }
}

impl<T: FromStr<Err: Display>> Text<T> {
    /// A value without quotes. The error of its kind has an example, and numbers may be octal, so that the quotes matter.
    fn unquoted<E: Error>(&self, value: impl Display) -> Result<T, E> {
        let text = value.to_string();
        let parsed = text.parse::<T>().map_err(E::custom)?;
        if self.may_be_number {
            return Ok(parsed);
        }
        Err(E::custom(format_args!("write it in quotes: \"{text}\"")))
    }
}

impl<T: FromStr<Err: Display>> Visitor<'_> for Text<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("one value in quotes")
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<T, E> {
        self.unquoted(value)
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<T, E> {
        self.unquoted(number)
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<T, E> {
        self.unquoted(number)
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<T, E> {
        self.unquoted(number)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        text.parse().map_err(E::custom)
    }
}

/// Reads a list. A single value stands for a list of it; commas separate values in it, as in a flag.
pub(super) fn list<'de, D, T>(deserializer: D) -> Result<Option<Vec<T>>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + FromStr<Err: Display>,
{
    deserializer.deserialize_any(List(PhantomData)).map(Some)
}

struct List<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de> + FromStr<Err: Display>> Visitor<'de> for List<T> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of values in quotes")
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Vec<T>, E> {
        self.visit_str(&number.to_string())
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Vec<T>, E> {
        let values = text.split(',').map(|value| value.trim().parse());
        values.collect::<Result<_, _>>().map_err(E::custom)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut values: A) -> Result<Vec<T>, A::Error> {
        let mut list = Vec::new();
        while let Some(value) = values.next_element()? {
            list.push(value);
        }
        Ok(list)
    }
}
