//! The messages to the log process. The first byte is the content, and the rest a line or a number.

/// The longest message. Longer lines are cut.
pub(super) const LONGEST: usize = 128 * 1024;

/// A log file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LogFile {
    Log,
    Audit,
    Transfers,
}

impl LogFile {
    pub(crate) const ALL: [Self; 3] = [Self::Log, Self::Audit, Self::Transfers];
}

/// The content of a message, by its first byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Content {
    /// A line for a file.
    Line(LogFile),
    /// The descriptor with which to continue a file after a rotation.
    Replacement(LogFile),
    /// A request for an answer when all messages before it were processed. A number follows, with which it is answered.
    Flush,
    /// The number of lines for a file that could not be sent.
    Lost(LogFile),
}

impl Content {
    const REPLACEMENT: u8 = 16;
    const FLUSH: u8 = 32;
    const LOST: u8 = 48;

    pub(super) fn byte(self) -> u8 {
        match self {
            Self::Line(file) => file as u8,
            Self::Replacement(file) => Self::REPLACEMENT + file as u8,
            Self::Flush => Self::FLUSH,
            Self::Lost(file) => Self::LOST + file as u8,
        }
    }

    pub(super) fn of(byte: u8) -> Option<Self> {
        let files = LogFile::ALL.into_iter();
        let contents =
            files.flat_map(|file| [Self::Line(file), Self::Replacement(file), Self::Lost(file)]);
        let mut contents = contents.chain([Self::Flush]);
        contents.find(|content| content.byte() == byte)
    }
}

/// A message of a content and a number, such as that of lost lines.
pub(super) type Number = [u8; 1 + size_of::<u64>()];

pub(super) fn number(content: Content, number: u64) -> Number {
    let mut message = Number::default();
    message[0] = content.byte();
    message[1..].copy_from_slice(&number.to_le_bytes());
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_content_has_a_byte_of_its_own() {
        for byte in 0..=u8::MAX {
            assert!(Content::of(byte).is_none_or(|content| content.byte() == byte));
        }
        assert_eq!(Content::of(Content::FLUSH), Some(Content::Flush));
    }
}
