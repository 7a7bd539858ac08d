//! Writes lines of facts. Does not allocate, because a listing may have a million lines.

use super::selection::{Fact, FactSelection};
use super::{FileFacts, Permissions, Unique};
use crate::line;
use crate::number::{append_decimal, append_hexadecimal, append_octal};
use crate::time::TimeValue;

impl FileFacts<'_> {
    /// Appends the line of facts of the file `name`, without a line end. Control characters in the name, which a client could take
    /// for a line end, become `?`: such a file is visible in listings, but cannot be opened under this name.
    pub fn append_line(&self, line: &mut Vec<u8>, wanted: FactSelection, name: &[u8]) {
        for fact in wanted.iter() {
            self.append_fact(line, fact);
        }
        line.push(b' ');
        line::append_shown(line, name);
    }

    fn append_fact(&self, line: &mut Vec<u8>, fact: Fact) {
        let start = line.len();
        line.extend_from_slice(fact.name().as_bytes());
        line.push(b'=');
        if self.append_value(line, fact).is_some() {
            line.push(b';');
        } else {
            line.truncate(start);
        }
    }

    /// `None` if the file has no such fact.
    fn append_value(&self, line: &mut Vec<u8>, fact: Fact) -> Option<()> {
        match fact {
            Fact::Type => line.extend_from_slice(self.file_type?.name().as_bytes()),
            // Names are sent unchanged, and GridFTP clients take them for UTF-8.
            Fact::Charset => line.extend_from_slice(b"UTF-8"),
            Fact::Perm => append_permissions(line, self.permissions?),
            Fact::UnixOwner => append_encoded(line, self.owner.as_deref()?),
            Fact::UnixGroup => append_encoded(line, self.group.as_deref()?),
            Fact::UnixSlink => append_encoded(line, self.link_target.as_deref()?),
            Fact::Unique => match self.unique.as_ref()? {
                Unique::Inode { device, inode } => {
                    append_hexadecimal(line, *device);
                    line.push(b'-');
                    append_hexadecimal(line, *inode);
                }
                Unique::Token(token) => append_encoded(line, token),
            },
            Fact::Modify => TimeValue(self.modified?).append(line),
            Fact::Size => append_decimal(line, self.size?),
            Fact::UnixMode => append_octal(line, self.mode?.into(), 4),
            Fact::UnixUid => append_decimal(line, self.uid?.into()),
            Fact::UnixGid => append_decimal(line, self.gid?.into()),
            Fact::Count => append_decimal(line, self.entries?),
        }
        Some(())
    }
}

fn append_permissions(line: &mut Vec<u8>, permissions: Permissions) {
    let allowed = |&&(_, letter): &&(u8, Permissions)| permissions.has(letter);
    let letters = Permissions::LETTERS.iter().filter(allowed);
    line.extend(letters.map(|(letter, _)| *letter));
}

/// Appends a text with URL encoding of `;` (the end of a fact), space (the end of all facts), `=`, `%`, and all bytes that are
/// not printable ASCII, as globus-gridftp-server 13.24 does for link targets.
fn append_encoded(line: &mut Vec<u8>, text: &[u8]) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    for &byte in text {
        if byte.is_ascii_graphic() && !b";=%".contains(&byte) {
            line.push(byte);
        } else {
            let (high, low) = (usize::from(byte >> 4), usize::from(byte & 0x0f));
            line.extend_from_slice(&[b'%', HEX[high], HEX[low]]);
        }
    }
}
