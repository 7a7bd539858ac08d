//! Lists of files to copy: a source and a destination on each line, as in the lists of globus-url-copy.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read as _};
use std::path::Path;

use super::find::Errand;
use crate::location::{Location, LocationError, as_text};

/// The most lines. All are in memory.
const LINES: usize = 1_000_000;

/// The most bytes of all lines.
const BYTES: usize = 256 << 20;

/// The longest line, in bytes: two encoded paths of Linux.
const LINE_BYTES: u64 = 32 * 1024;

/// Why a list cannot be used.
#[derive(Debug, thiserror::Error)]
pub(in crate::program) enum ListError {
    #[error("{name}: {error}")]
    Io { name: String, error: io::Error },
    #[error("{name}, line {line}: {reason}")]
    Line {
        name: String,
        line: usize,
        reason: String,
    },
}

/// A source and a destination.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Pair {
    words: [String; 2],
    source: Location,
    destination: Location,
}

impl Pair {
    fn parse(
        [source, destination]: [String; 2],
        rewrite: &dyn Fn(String) -> Result<String, LocationError>,
    ) -> Result<Self, LocationError> {
        let words = [rewrite(source)?, rewrite(destination)?];
        Ok(Self {
            source: Location::parse(&words[0])?,
            destination: Location::parse(&words[1])?,
            words,
        })
    }

    /// The words of the list, and the copy that they ask for.
    pub(super) fn parts(self) -> ([String; 2], Errand) {
        let errand = Errand::new(vec![self.source], self.destination);
        (self.words, errand)
    }
}

impl From<Pair> for Errand {
    fn from(pair: Pair) -> Self {
        pair.parts().1
    }
}

/// Reads the pairs of a file, or of standard input if its name is `-`. `rewrite` may change or refuse each location.
///
/// # Errors
///
/// When it cannot be read, or a line is not two locations.
pub(super) fn read(
    path: &Path,
    rewrite: &dyn Fn(String) -> Result<String, LocationError>,
) -> Result<Vec<Pair>, ListError> {
    let name = path.display().to_string();
    if name == "-" {
        return pairs("standard input", io::stdin().lock(), rewrite);
    }
    match File::open(path) {
        Ok(file) => pairs(&name, BufReader::new(file), rewrite),
        Err(error) => Err(ListError::Io { name, error }),
    }
}

/// The pairs: two words on a line, in quotes if they have spaces; `#` begins a comment.
fn pairs(
    name: &str,
    mut lines: impl BufRead,
    rewrite: &dyn Fn(String) -> Result<String, LocationError>,
) -> Result<Vec<Pair>, ListError> {
    let (mut pairs, mut bytes) = (Vec::new(), 0);
    for number in 1.. {
        let wrong = |reason: &str| ListError::Line {
            name: name.to_owned(),
            line: number,
            reason: reason.to_owned(),
        };
        let mut line = Vec::new();
        let mut bounded = lines.by_ref().take(LINE_BYTES);
        let read = bounded.read_until(b'\n', &mut line);
        let read = read.map_err(|error| ListError::Io {
            name: name.to_owned(),
            error,
        })?;
        if read == 0 {
            break;
        }
        if !line.ends_with(b"\n") && line.len() as u64 >= LINE_BYTES {
            return Err(wrong("the line is too long"));
        }
        bytes += line.len();
        if number > LINES || bytes > BYTES {
            return Err(wrong("the list is too long: divide it"));
        }
        match <[String; 2]>::try_from(words_of(&line)) {
            Ok(words) => {
                let pair = Pair::parse(words, rewrite);
                pairs.push(pair.map_err(|error| wrong(&error.to_string()))?);
            }
            Err(words) if words.is_empty() => {}
            Err(_) => {
                return Err(wrong(
                    "a line is SOURCE DESTINATION, in quotes if they have spaces",
                ));
            }
        }
    }
    Ok(pairs)
}

/// The words of a line, which keep their bytes. Those that `-do` of globus-url-copy writes behind the URLs are left out: a part, if that
/// is the whole file, and facts of the source.
fn words_of(line: &[u8]) -> Vec<String> {
    let mut words = Vec::new();
    let mut rest = line.trim_ascii_start();
    while !rest.is_empty() && !rest.starts_with(b"#") {
        let (quoted, end) = match rest.strip_prefix(b"\"") {
            Some(quoted) => (quoted, quoted.iter().position(|byte| *byte == b'"')),
            None => (rest, rest.iter().position(u8::is_ascii_whitespace)),
        };
        let (word, after) = quoted.split_at(end.unwrap_or(quoted.len()));
        words.push(as_text(word));
        // The quote, or the white space.
        rest = after.get(1..).unwrap_or_default().trim_ascii_start();
    }
    if words.len() <= 4 && words.get(2).is_some_and(|part| part == "0,-1") {
        words.truncate(2);
    }
    words
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt as _;

    use super::*;

    #[test]
    fn lines_have_two_words() {
        let text = "\n  # comment\na b\n\"a b\"  \"c\" # d\r\na b 0,-1 size=3;\n";
        let read = pairs("list", text.as_bytes(), &Ok).expect("valid");
        let words = read.iter().map(|pair| &pair.words);
        assert!(words.eq([&["a", "b"], &["a b", "c"], &["a", "b"]]));
        let error = pairs("list", "a b\na b c\n".as_bytes(), &Ok).expect_err("three words");
        assert!(error.to_string().starts_with("list, line 2: a line is"));
        let latin = b"caf\xe9 ftp://h/caf\xe9\n\"/a b\xff\" b\xc2\xa0c\n";
        let read = pairs("list", latin.as_slice(), &Ok).expect("valid");
        let here = std::path::absolute(OsStr::from_bytes(b"caf\xe9")).expect("a directory");
        assert_eq!(read[0].source, Location::Local(here));
        assert_eq!(read[0].words[1], "ftp://h/caf%E9");
        let quoted = OsStr::from_bytes(b"/a b\xff");
        assert_eq!(read[1].source, Location::Local(quoted.into()));
        // A no-break space is a part of the name, as for globus-url-copy.
        assert_eq!(read[1].words[1], "b\u{a0}c");
        let long = vec![b'x'; 40_000];
        let error = pairs("list", long.as_slice(), &Ok).expect_err("too long");
        assert!(error.to_string().contains("too long"), "{error}");
    }

    /// Comments without end.
    struct Comments {
        line: Vec<u8>,
        at: usize,
    }

    impl io::Read for Comments {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let rest = &self.line[self.at..];
            let count = rest.len().min(buffer.len());
            buffer[..count].copy_from_slice(&rest[..count]);
            self.at = (self.at + count) % self.line.len();
            Ok(count)
        }
    }

    #[test]
    fn a_list_without_end_is_refused() {
        let mut line = vec![b'#'; 16_384];
        line.push(b'\n');
        let comments = BufReader::new(Comments { line, at: 0 });
        let error = pairs("list", comments, &Ok).expect_err("too long");
        assert!(error.to_string().contains("divide it"), "{error}");
        let lines = "\n".repeat(LINES + 1);
        let error = pairs("list", lines.as_bytes(), &Ok).expect_err("too many lines");
        assert!(error.to_string().contains("divide it"), "{error}");
    }
}
