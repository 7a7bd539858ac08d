//! Parses lines of facts, for clients.

use std::borrow::Cow;

use super::selection::Fact;
use super::{FileFacts, FileType, Permissions, Unique};
use crate::excerpt::Excerpt;
use crate::number::decimal;
use crate::time::{TimeError, TimeValue};

/// Why a line of facts is invalid. The server is at fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FactsError {
    /// No space ends the facts.
    #[error("there is no name in the line of facts '{0}'")]
    NoName(Excerpt),
    /// A fact without `=`.
    #[error("'{0}' is no fact; a fact is written as Size=3;")]
    NoValue(Excerpt),
    /// The size is not a number.
    #[error("the size '{0}' is no number of bytes")]
    Size(Excerpt),
    /// The time of the last change is not valid.
    #[error("the time of the last change is wrong: {0}")]
    Modified(#[from] TimeError),
}

impl<'a> FileFacts<'a> {
    /// Reads a line of facts, without its line end and without the space that such a line begins
    /// with on the control channel. Returns the facts and the name.
    ///
    /// Unknown facts are ignored, and so are invalid values of facts outside of RFC 3659, whose form differs between servers. Of a
    /// repeated fact, the last one counts.
    ///
    /// # Errors
    ///
    /// When the line has another form, or `Size` or `Modify` is invalid, which a client needs to copy the file.
    pub fn parse_line(line: &'a [u8]) -> Result<(Self, &'a [u8]), FactsError> {
        let end = end_of_facts(line).ok_or_else(|| FactsError::NoName(Excerpt::new(line)))?;
        let (texts, name) = (&line[..end], &line[end + 1..]);
        if name.is_empty() {
            return Err(FactsError::NoName(Excerpt::new(line)));
        }
        let mut facts = Self::default();
        for text in texts.split(|&byte| byte == b';') {
            // The last `;` is followed by an empty text.
            if !text.is_empty() {
                facts.read(text)?;
            }
        }
        Ok((facts, name))
    }

    fn read(&mut self, text: &'a [u8]) -> Result<(), FactsError> {
        let equals = text.iter().position(|&byte| byte == b'=');
        let equals = equals.ok_or_else(|| FactsError::NoValue(Excerpt::new(text)))?;
        let value = &text[equals + 1..];
        match Fact::from_name(&text[..equals]) {
            Some(Fact::Type) => self.file_type = Some(file_type(value)),
            Some(Fact::Modify) => self.modified = Some(TimeValue::parse(value)?.0),
            Some(Fact::Size) => {
                let size = decimal(value).ok_or_else(|| FactsError::Size(Excerpt::new(value)))?;
                self.size = Some(size);
            }
            Some(Fact::Perm) => self.permissions = Some(permissions(value)),
            Some(Fact::UnixMode) => self.mode = mode(value),
            Some(Fact::UnixOwner) => self.owner = Some(decoded(value)),
            Some(Fact::UnixUid) => self.uid = decimal(value),
            Some(Fact::UnixGroup) => self.group = Some(decoded(value)),
            Some(Fact::UnixGid) => self.gid = decimal(value),
            Some(Fact::Unique) => self.unique = Some(unique(value)),
            Some(Fact::UnixSlink) => self.link_target = Some(decoded(value)),
            Some(Fact::Count) => self.entries = decimal(value),
            Some(Fact::Charset) | None => {}
        }
        Ok(())
    }
}

/// The offset of the space before the name. Some servers write group names with spaces, others omit the last `;`; both at once
/// would be ambiguous.
fn end_of_facts(line: &[u8]) -> Option<usize> {
    if line.first() == Some(&b' ') {
        return Some(0);
    }
    let ended = line.windows(2).position(|pair| pair == b"; ");
    let end = ended.map(|semicolon| semicolon + 1);
    end.or_else(|| line.iter().position(|&byte| byte == b' '))
}

fn file_type(value: &[u8]) -> FileType {
    let named = |kind: &FileType| kind.name().as_bytes().eq_ignore_ascii_case(value);
    // RFC 3659 7.5.1.5 appends the link's target, and other servers write symlink.
    let link = [&b"OS.unix=slink:"[..], b"OS.unix=symlink"]
        .into_iter()
        .any(|prefix| {
            let start = value.get(..prefix.len());
            start.is_some_and(|start| start.eq_ignore_ascii_case(prefix))
        });
    if link {
        return FileType::Symlink;
    }
    let known = FileType::ALL.into_iter().find(named);
    known.unwrap_or(FileType::Other)
}

fn permissions(value: &[u8]) -> Permissions {
    let letters = Permissions::LETTERS.into_iter();
    letters
        .filter(|(letter, _)| value.iter().any(|byte| byte.eq_ignore_ascii_case(letter)))
        .fold(Permissions::default(), |all, (_, letter)| all | letter)
}

fn mode(value: &[u8]) -> Option<u32> {
    let digits = value.iter().all(|byte| (b'0'..=b'7').contains(byte));
    let text = std::str::from_utf8(value).ok().filter(|_| digits)?;
    let mode = u32::from_str_radix(text, 8).ok()?;
    (mode <= 0o7777).then_some(mode)
}

/// A value is an inode only if it would be written identically.
fn unique(value: &[u8]) -> Unique<'_> {
    let inode = || {
        let (device, inode) = std::str::from_utf8(value).ok()?.split_once('-')?;
        let number = |text: &str| u64::from_str_radix(text, 16).ok();
        let (device, inode) = (number(device)?, number(inode)?);
        let same = format!("{device:x}-{inode:x}").as_bytes() == value;
        same.then_some(Unique::Inode { device, inode })
    };
    inode().unwrap_or_else(|| Unique::Token(decoded(value)))
}

/// Decodes URL encoding. Invalid sequences stay: globus-gridftp-server does not encode the names of owners.
fn decoded(text: &[u8]) -> Cow<'_, [u8]> {
    if !text.contains(&b'%') {
        return Cow::Borrowed(text);
    }
    let mut plain = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&byte, after)) = rest.split_first() {
        match (byte, after) {
            (b'%', [high, low, after @ ..])
                if let (Some(high), Some(low)) = (hex(*high), hex(*low)) =>
            {
                plain.push(high << 4 | low);
                rest = after;
            }
            _ => {
                plain.push(byte);
                rest = after;
            }
        }
    }
    Cow::Owned(plain)
}

fn hex(digit: u8) -> Option<u8> {
    let value = char::from(digit).to_digit(16)?;
    u8::try_from(value).ok()
}
