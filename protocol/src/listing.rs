//! Lines of `LIST`, `STAT` and `NLST`. RFC 959 does not define their format; it is that of `ls -l`.
//!
//! They are for people, and for clients without `MLSD`: times have no zone and sometimes no year, and some names cannot be
//! written. [`facts`](crate::facts) are exact. The caller passes the time and the time zone.

mod read;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::fmt;
use std::io::Write as _;

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

use crate::facts::FileType;
use crate::line;

pub use read::ListError;

/// One line of `LIST` or `STAT`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListLine<'a> {
    /// The type of the file.
    pub file_type: FileType,
    /// The permission bits, with set-uid, set-gid and sticky (`0o7777`).
    pub mode: u32,
    /// The number of hard links.
    pub links: u64,
    /// The name of the owner, or the number if there is no name.
    pub owner: Cow<'a, [u8]>,
    /// The name of the group, or the number if there is no name.
    pub group: Cow<'a, [u8]>,
    /// Size in bytes.
    pub size: u64,
    /// The time of the last change of the content.
    pub modified: ListTime,
    /// The name.
    pub name: Cow<'a, [u8]>,
    /// The target of a symbolic link that was not followed.
    pub link_target: Option<Cow<'a, [u8]>>,
}

/// A time in a listing, in the server's time zone.
///
/// globus-gridftp-server 13.24 always writes the time of day and never a year, so lftp and curl assume a date in the last twelve
/// months for old files. This format is that of `ls`, which both read: the time of day for the last six months, and the year
/// for older and future times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListTime {
    /// `Nov 20 09:23`.
    Recent {
        /// From 1 to 12.
        month: i8,
        /// From 1 to 31.
        day: i8,
        /// From 0 to 23.
        hour: i8,
        /// From 0 to 59.
        minute: i8,
    },
    /// `Nov 20  2019`.
    Dated {
        /// The year of the common era.
        year: i16,
        /// From 1 to 12.
        month: i8,
        /// From 1 to 31.
        day: i8,
    },
}

const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];

/// Half a year of the Gregorian calendar, as in GNU `ls`.
const RECENT_SECONDS: i64 = 31_556_952 / 2;

/// Appends a line of `NLST`, without a line end. Control characters, which a client could take for a line end, become `?`.
pub fn append_name(line: &mut Vec<u8>, name: &[u8]) {
    line::append_shown(line, name);
}

impl ListLine<'_> {
    /// Appends the line, without a line end. Control characters in names become `?`; in names of owners and groups, characters
    /// that would start another column become `_`.
    pub fn append(&self, line: &mut Vec<u8>) {
        line.push(type_letter(self.file_type));
        append_mode(line, self.mode);
        append(line, format_args!(" {:3} ", self.links));
        append_account(line, &self.owner);
        line.push(b' ');
        append_account(line, &self.group);
        append(line, format_args!(" {:12} {} ", self.size, self.modified));
        line::append_shown(line, &self.name);
        if let (FileType::Symlink, Some(target)) = (self.file_type, &self.link_target) {
            line.extend_from_slice(b" -> ");
            line::append_shown(line, target);
        }
    }
}

impl ListTime {
    /// The form of the time `modified` in a listing at the time `now`.
    pub fn new(modified: Timestamp, now: Timestamp, zone: &TimeZone) -> Self {
        let time = zone.to_datetime(modified);
        let age = now.as_second() - modified.as_second();
        if (0..RECENT_SECONDS).contains(&age) {
            Self::Recent {
                month: time.month(),
                day: time.day(),
                hour: time.hour(),
                minute: time.minute(),
            }
        } else {
            Self::Dated {
                year: time.year(),
                month: time.month(),
                day: time.day(),
            }
        }
    }

    /// The most likely date and time for a listing that was received at the time `now`, both in the server's time zone. A client
    /// that does not know the zone may use its own; the error is then at most a day. Midnight if there is no time of day. `None`
    /// for February 29 of a year without one.
    pub fn guess(self, now: DateTime) -> Option<DateTime> {
        let date = |year, month, day, hour, minute| {
            DateTime::new(year, month, day, hour, minute, 0, 0).ok()
        };
        match self {
            Self::Dated { year, month, day } => date(year, month, day, 0, 0),
            Self::Recent {
                month,
                day,
                hour,
                minute,
            } => {
                // The server's zone may be a day ahead.
                let latest = now.tomorrow().unwrap_or(now);
                let in_year = |year| date(year, month, day, hour, minute);
                in_year(latest.year())
                    .filter(|time| *time <= latest)
                    .or_else(|| in_year(latest.year() - 1))
            }
        }
    }
}

impl fmt::Display for ListTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Recent {
                month,
                day,
                hour,
                minute,
            } => write!(f, "{} {day:2} {hour:02}:{minute:02}", month_name(month)),
            Self::Dated { year, month, day } => {
                // The format has no sign.
                write!(f, "{} {day:2}  {:04}", month_name(month), year.max(0))
            }
        }
    }
}

fn month_name(month: i8) -> &'static str {
    let index = usize::try_from(month - 1).ok();
    index.and_then(|index| MONTHS.get(index)).unwrap_or(&"???")
}

fn type_letter(file_type: FileType) -> u8 {
    match file_type {
        FileType::File => b'-',
        FileType::Directory | FileType::CurrentDirectory | FileType::ParentDirectory => b'd',
        FileType::Pipe => b'p',
        FileType::CharacterDevice => b'c',
        FileType::BlockDevice => b'b',
        FileType::Symlink => b'l',
        FileType::Other => b's',
    }
}

/// The nine letters of `ls -l`. globus-gridftp-server 13.24 does not show set-uid, set-gid and sticky.
fn append_mode(line: &mut Vec<u8>, mode: u32) {
    for (class, (special, letters)) in [
        (0o4000, [b's', b'S']),
        (0o2000, [b's', b'S']),
        (0o1000, [b't', b'T']),
    ]
    .into_iter()
    .enumerate()
    {
        let has = |bit: u32| mode & (bit >> (3 * class)) != 0;
        let or_dash = |has, letter| if has { letter } else { b'-' };
        line.push(or_dash(has(0o400), b'r'));
        line.push(or_dash(has(0o200), b'w'));
        line.push(match (mode & special != 0, has(0o100)) {
            (true, execute) => letters[usize::from(!execute)],
            (false, execute) => or_dash(execute, b'x'),
        });
    }
}

fn append(line: &mut Vec<u8>, text: fmt::Arguments<'_>) {
    line.write_fmt(text)
        .expect("writing to a Vec does not fail");
}

/// Appends a name in a column of at least eight bytes.
fn append_account(line: &mut Vec<u8>, name: &[u8]) {
    const WIDTH: usize = 8;
    let name = if name.is_empty() { b"?" } else { name };
    line.extend(std::iter::repeat_n(b' ', WIDTH.saturating_sub(name.len())));
    let in_column = |&byte: &u8| if byte > b' ' { byte } else { b'_' };
    line.extend(name.iter().map(in_column));
}
