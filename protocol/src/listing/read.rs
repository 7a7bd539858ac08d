//! Parses lines of listings, for clients.

use std::borrow::Cow;

use jiff::civil::{Date, Time};
use nom::branch::alt;
use nom::bytes::complete::{tag, take, take_till1, take_while1};
use nom::character::complete::{char, one_of};
use nom::combinator::{all_consuming, map, map_opt, opt, rest, value, verify};
use nom::sequence::{preceded, separated_pair, terminated};
use nom::{IResult, Parser};

use super::{ListLine, ListTime, MONTHS};
use crate::excerpt::Excerpt;
use crate::facts::FileType;
use crate::number::decimal;

/// A line without the form of `ls -l`. The server is at fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' does not look like a line of ls -l; MLSD may do better")]
pub struct ListError(Excerpt);

impl<'a> ListLine<'a> {
    /// Reads a line of `LIST` or `STAT`, without its line end and without the leading space that it has on the control channel.
    /// `None` for lines without an entry: empty ones, and the sum of blocks at the start of the output of `ls`.
    ///
    /// Columns may have any width, the group may be missing, and devices may have two numbers instead of the size, which is
    /// then 0.
    ///
    /// # Errors
    ///
    /// When the line has another form.
    pub fn parse(line: &'a [u8]) -> Result<Option<Self>, ListError> {
        if line.trim_ascii().is_empty() || all_consuming(sum_of_blocks).parse(line).is_ok() {
            return Ok(None);
        }
        match all_consuming(list_line).parse(line) {
            Ok((_, line)) => Ok(Some(line)),
            Err(_) => Err(ListError(Excerpt::new(line))),
        }
    }
}

fn sum_of_blocks(input: &[u8]) -> IResult<&[u8], ()> {
    value((), (tag("total"), blanks, number::<u64>)).parse(input)
}

fn list_line(input: &[u8]) -> IResult<&[u8], ListLine<'_>> {
    let (input, (file_type, mode)) = (file_type, mode).parse(input)?;
    // Access control lists, SELinux contexts, extended attributes.
    let (input, _) = opt(one_of("+.@")).parse(input)?;
    let (input, links) = preceded(blanks, number).parse(input)?;
    let group = terminated(preceded(blanks, word), blanks);
    let without_group = value(&b""[..], blanks);
    let (input, owner) = preceded(blanks, word).parse(input)?;
    let (input, (group, size, modified)) = alt((
        (group, size, preceded(blanks, time)),
        (without_group, size, preceded(blanks, time)),
    ))
    .parse(input)?;
    // Only one space separates the name; further spaces belong to it.
    let (input, name) =
        preceded(char(' '), verify(rest, |name: &[u8]| !name.is_empty())).parse(input)?;
    let (name, link_target) = match (file_type, arrow(name)) {
        (FileType::Symlink, Some(at)) => {
            (&name[..at], Some(Cow::Borrowed(&name[at + ARROW.len()..])))
        }
        _ => (name, None),
    };
    let line = ListLine {
        file_type: match (file_type, name) {
            (FileType::Directory, b".") => FileType::CurrentDirectory,
            (FileType::Directory, b"..") => FileType::ParentDirectory,
            _ => file_type,
        },
        mode,
        links,
        owner: Cow::Borrowed(owner),
        group: Cow::Borrowed(group),
        size,
        modified,
        name: Cow::Borrowed(name),
        link_target,
    };
    Ok((input, line))
}

const ARROW: &[u8] = b" -> ";

/// The offset of the arrow in the name of a link, if a name precedes it.
fn arrow(name: &[u8]) -> Option<usize> {
    let at = name.windows(ARROW.len()).position(|window| window == ARROW);
    at.filter(|&at| at > 0)
}

fn file_type(input: &[u8]) -> IResult<&[u8], FileType> {
    map_opt(take(1_usize), |letter: &[u8]| match letter {
        b"-" => Some(FileType::File),
        b"d" => Some(FileType::Directory),
        b"p" => Some(FileType::Pipe),
        b"c" => Some(FileType::CharacterDevice),
        b"b" => Some(FileType::BlockDevice),
        b"l" => Some(FileType::Symlink),
        [letter] if letter.is_ascii_alphabetic() => Some(FileType::Other),
        _ => None,
    })
    .parse(input)
}

fn mode(input: &[u8]) -> IResult<&[u8], u32> {
    map_opt(take(9_usize), |letters: &[u8]| {
        let classes = letters.chunks_exact(3).zip([0o4000, 0o2000, 0o1000]);
        classes
            .enumerate()
            .try_fold(0, |mode, (class, (letters, special))| {
                let shift = 6 - 3 * class;
                let bit = |letter, yes, bit: u32| match letter {
                    b'-' => Some(0),
                    letter if letter == yes => Some(bit << shift),
                    _ => None,
                };
                let execute = match letters[2] {
                    b's' | b't' => special | 0o1 << shift,
                    b'S' | b'T' => special,
                    letter => bit(letter, b'x', 0o1)?,
                };
                Some(mode | bit(letters[0], b'r', 0o4)? | bit(letters[1], b'w', 0o2)? | execute)
            })
    })
    .parse(input)
}

fn size(input: &[u8]) -> IResult<&[u8], u64> {
    let device = (number::<u64>, char(','), opt(blanks), number::<u64>);
    alt((value(0, device), number)).parse(input)
}

fn time(input: &[u8]) -> IResult<&[u8], ListTime> {
    let (input, month) = map_opt(take(3_usize), month).parse(input)?;
    let (input, day) = preceded(blanks, number::<i8>).parse(input)?;
    let clock = separated_pair(number::<i8>, char(':'), number::<i8>);
    let recent = map_opt(clock, move |(hour, minute)| {
        // The year is unknown, so check the day in a leap year.
        Date::new(2024, month, day).ok()?;
        Time::new(hour, minute, 0, 0).ok()?;
        Some(ListTime::Recent {
            month,
            day,
            hour,
            minute,
        })
    });
    let dated = map_opt(number::<i16>, move |year| {
        Date::new(year, month, day).ok()?;
        Some(ListTime::Dated { year, month, day })
    });
    preceded(blanks, alt((recent, dated))).parse(input)
}

fn month(name: &[u8]) -> Option<i8> {
    let is_it = |month: &str| month.as_bytes().eq_ignore_ascii_case(name);
    let index = MONTHS.iter().position(|month| is_it(month))?;
    i8::try_from(index + 1).ok()
}

fn number<T: std::str::FromStr>(input: &[u8]) -> IResult<&[u8], T> {
    map_opt(take_while1(|byte: u8| byte.is_ascii_digit()), decimal).parse(input)
}

fn word(input: &[u8]) -> IResult<&[u8], &[u8]> {
    take_till1(|byte| byte == b' ').parse(input)
}

fn blanks(input: &[u8]) -> IResult<&[u8], ()> {
    map(take_while1(|byte| byte == b' '), |_| ()).parse(input)
}
