//! Parses DER without copying. Elements have their position in the input, so that the signed bytes can be extracted
//! unchanged.
//!
//! The structures of `x509-cert` decode into values of their own, which would not preserve names in unusual string types.
//! The crate `der` decodes lengths and tags, and accepts only definite, minimal lengths.

use std::ops::Range;

use der::asn1::ObjectIdentifier;
use der::{Decode, Encode, ErrorKind, Header, Reader, SliceReader, Tag};

/// One element: tag, length, content.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Element<'a> {
    all: &'a [u8],
    tag: Tag,
    start: usize,
    content: usize,
    end: usize,
}

impl<'a> Element<'a> {
    pub(crate) fn tag(&self) -> Tag {
        self.tag
    }

    pub(crate) fn content(&self) -> &'a [u8] {
        &self.all[self.content..self.end]
    }

    /// Tag, length and content.
    pub(crate) fn encoding(&self) -> &'a [u8] {
        &self.all[self.start..self.end]
    }

    /// The position of the content in the input of [`Elements::new`].
    pub(crate) fn content_range(&self) -> Range<usize> {
        self.content..self.end
    }

    /// The position of the encoding in the input of [`Elements::new`].
    pub(crate) fn range(&self) -> Range<usize> {
        self.start..self.end
    }

    /// The elements in the content.
    pub(crate) fn children(&self) -> Elements<'a> {
        Elements {
            all: self.all,
            position: self.content,
            end: self.end,
        }
    }

    /// The value, for types of `der` and `x509-cert`.
    pub(crate) fn decode<T: Decode<'a, Error = der::Error>>(&self) -> der::Result<T> {
        T::from_der(self.encoding())
    }

    pub(crate) fn is_context(&self, number: u32) -> bool {
        self.tag.is_context_specific() && self.tag.number().value() == number
    }

    /// The position of the octets of a BIT STRING without unused bits.
    pub(crate) fn bit_string(&self) -> der::Result<Range<usize>> {
        self.tag.assert_eq(Tag::BitString)?;
        match self.content() {
            [0, ..] => Ok(self.content + 1..self.end),
            _ => Err(Tag::BitString.value_error().into()),
        }
    }

    /// A non-negative number that fits into 32 bits.
    pub(crate) fn small_number(&self) -> der::Result<u32> {
        self.decode()
    }
}

/// A sequence of elements.
#[derive(Clone, Debug)]
pub(crate) struct Elements<'a> {
    all: &'a [u8],
    position: usize,
    end: usize,
}

impl<'a> Elements<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self {
            all: bytes,
            position: 0,
            end: bytes.len(),
        }
    }

    /// The single element that `bytes` consist of, which must have the tag.
    pub(crate) fn only(bytes: &'a [u8], tag: Tag) -> der::Result<Element<'a>> {
        let mut elements = Self::new(bytes);
        let element = elements.expect(tag)?;
        elements.finish()?;
        Ok(element)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.position == self.end
    }

    /// The next element, with any tag.
    pub(crate) fn next(&mut self) -> der::Result<Element<'a>> {
        let rest = &self.all[self.position..self.end];
        let reader = SliceReader::new(rest)?;
        let header = Header::peek(&reader)?;
        let content = self.position + usize::try_from(header.encoded_len()?)?;
        let length = usize::try_from(header.length())?;
        let end = content
            .checked_add(length)
            .filter(|end| *end <= self.end)
            .ok_or_else(|| der::Error::incomplete(reader.input_len()))?;
        let start = std::mem::replace(&mut self.position, end);
        Ok(Element {
            all: self.all,
            tag: header.tag(),
            start,
            content,
            end,
        })
    }

    /// The next element, which must have the tag.
    pub(crate) fn expect(&mut self, tag: Tag) -> der::Result<Element<'a>> {
        let element = self.next()?;
        element.tag.assert_eq(tag)?;
        Ok(element)
    }

    /// The next element if it has the tag.
    pub(crate) fn optional(&mut self, tag: Tag) -> der::Result<Option<Element<'a>>> {
        self.next_if(|element| element.tag == tag)
    }

    /// The next element if it is `[number]`.
    pub(crate) fn optional_context(&mut self, number: u32) -> der::Result<Option<Element<'a>>> {
        self.next_if(|element| element.is_context(number))
    }

    /// Fails if elements remain.
    pub(crate) fn finish(&self) -> der::Result<()> {
        if self.is_empty() {
            return Ok(());
        }
        Err(ErrorKind::TrailingData {
            decoded: self.position.try_into()?,
            remaining: (self.end - self.position).try_into()?,
        }
        .into())
    }

    fn next_if(
        &mut self,
        is_wanted: impl FnOnce(&Element<'a>) -> bool,
    ) -> der::Result<Option<Element<'a>>> {
        if self.is_empty() {
            return Ok(None);
        }
        let mut ahead = self.clone();
        let element = ahead.next()?;
        Ok(is_wanted(&element).then(|| {
            *self = ahead;
            element
        }))
    }
}

/// Whether the content of an OBJECT IDENTIFIER is this identifier.
pub(crate) fn is_identifier(content: &[u8], identifier: &ObjectIdentifier) -> bool {
    content == identifier.as_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_have_their_position() {
        // SEQUENCE { INTEGER 5, [0] { NULL } }
        let bytes = [0x30, 7, 2, 1, 5, 0xa0, 2, 5, 0];
        let sequence = Elements::only(&bytes, Tag::Sequence).expect("one sequence");
        let mut children = sequence.children();
        let number = children.expect(Tag::Integer).expect("a number");
        assert_eq!(number.range(), 2..5);
        assert_eq!(number.small_number(), Ok(5));
        assert!(children.optional(Tag::Boolean).expect("sound").is_none());
        let tagged = children.optional_context(0).expect("sound");
        assert_eq!(tagged.expect("it is there").content_range(), 7..9);
        children.finish().expect("no more");
    }

    #[test]
    fn truncated_and_too_long_elements_are_refused() {
        for bytes in [
            &[][..],
            &[0x30],
            &[0x30, 1],
            &[0x30, 0, 0],
            &[0x30, 0x80, 0, 0],
            &[0x30, 0x81, 1, 5],
            &[0x31, 0],
        ] {
            assert!(Elements::only(bytes, Tag::Sequence).is_err(), "{bytes:?}");
        }
        let inner_too_long = [0x30, 2, 2, 1, 5];
        let sequence = Elements::only(&inner_too_long[..4], Tag::Sequence).expect("a sequence");
        assert!(sequence.children().next().is_err());
    }

    #[test]
    fn negative_and_large_numbers_are_refused() {
        for bytes in [&[2, 1, 0xff][..], &[2, 5, 1, 0, 0, 0, 0], &[2, 2, 0, 1]] {
            let element = Elements::only(bytes, Tag::Integer).expect("an integer");
            assert!(element.small_number().is_err(), "{bytes:?}");
        }
    }
}
