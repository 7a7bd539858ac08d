//! Makes and compares files and trees of files.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::iter;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::OnceLock;
use std::time::{Duration, SystemTime};

use super::failure::Failure;

/// The bytes that are made, read or compared at once.
const PIECE: usize = 1 << 20;

/// The offset is written into the content at this distance, so that swapped blocks are detected.
const STAMP_DISTANCE: usize = 512;

/// Makes a file of `bytes` bytes. Any shift, swap or hole changes its content.
///
/// # Errors
///
/// When it cannot be written.
pub fn write(path: &Path, bytes: u64) -> io::Result<()> {
    let mut file = File::create(path)?;
    let mut piece = noise()[..usize::try_from(bytes).unwrap_or(PIECE).min(PIECE)].to_vec();
    let mut offset = 0;
    while offset < bytes {
        for (stamp, place) in (offset..)
            .step_by(STAMP_DISTANCE)
            .zip(piece.chunks_mut(STAMP_DISTANCE))
        {
            let stamp = stamp.to_be_bytes();
            let length = place.len().min(stamp.len());
            place[..length].copy_from_slice(&stamp[..length]);
        }
        let left = usize::try_from(bytes - offset).unwrap_or(PIECE).min(PIECE);
        file.write_all(&piece[..left])?;
        offset += left as u64;
    }
    Ok(())
}

/// Makes a sparse file of `bytes` bytes with data only at the start, around 2 GiB
/// and 4 GiB, and at the end.
///
/// # Errors
///
/// When it cannot be written.
pub fn write_sparse(path: &Path, bytes: u64) -> io::Result<()> {
    let file = File::create(path)?;
    file.set_len(bytes)?;
    for mark in [0, (2 << 30) - 4, (4 << 30) - 4, bytes - 8] {
        file.write_all_at(&(mark ^ 0x5555_5555_5555_5555).to_be_bytes(), mark)?;
    }
    Ok(())
}

/// Fails unless `actual` has the same bytes as `expected`. The error has the first offset at which they differ.
///
/// # Errors
///
/// When they differ or one cannot be read.
pub fn same(expected: &Path, actual: &Path) -> Result<(), Failure> {
    let open = |path: &Path| {
        File::open(path).map_err(|error| Failure::Wrong(format!("{}: {error}", path.display())))
    };
    let (mut left, mut right) = (open(expected)?, open(actual)?);
    let lengths = (left.metadata()?.len(), right.metadata()?.len());
    let differ = |what: String| {
        Failure::Wrong(format!(
            "{} differs from {}: {what}",
            actual.display(),
            expected.display()
        ))
    };
    if lengths.0 != lengths.1 {
        return Err(differ(format!(
            "{} bytes instead of {}",
            lengths.1, lengths.0
        )));
    }
    let (mut a, mut b) = (vec![0; PIECE], vec![0; PIECE]);
    let mut offset = 0;
    while offset < lengths.0 {
        let piece = usize::try_from(lengths.0 - offset)
            .unwrap_or(PIECE)
            .min(PIECE);
        left.read_exact(&mut a[..piece])?;
        right.read_exact(&mut b[..piece])?;
        if a[..piece] != b[..piece] {
            let place = a
                .iter()
                .zip(&b)
                .position(|(a, b)| a != b)
                .unwrap_or_default();
            return Err(differ(format!(
                "the first difference is at byte {}",
                offset + place as u64
            )));
        }
        offset += piece as u64;
    }
    Ok(())
}

/// Fails unless `path` holds exactly `expected`.
///
/// # Errors
///
/// When it does not, or cannot be read.
pub fn holds(path: &Path, expected: &[u8]) -> Result<(), Failure> {
    let found =
        fs::read(path).map_err(|error| Failure::Wrong(format!("{}: {error}", path.display())))?;
    if found == expected {
        return Ok(());
    }
    let place = found.iter().zip(expected).position(|(a, b)| a != b);
    Err(Failure::Wrong(format!(
        "{} has {} bytes instead of {}; the first difference is at byte {}",
        path.display(),
        found.len(),
        expected.len(),
        place.unwrap_or_else(|| found.len().min(expected.len()))
    )))
}

/// Fails unless both directories hold the same directories and files, with the same bytes.
///
/// # Errors
///
/// When they do not, or cannot be read.
pub fn same_tree(expected: &Path, actual: &Path) -> Result<(), Failure> {
    let (left, right) = (entries(expected)?, entries(actual)?);
    let missing: Vec<_> = left
        .keys()
        .filter(|name| !right.contains_key(*name))
        .collect();
    let surplus: Vec<_> = right
        .keys()
        .filter(|name| !left.contains_key(*name))
        .collect();
    if !missing.is_empty() || !surplus.is_empty() {
        return Err(Failure::Wrong(format!(
            "{}: missing {missing:?}, surplus {surplus:?}",
            actual.display()
        )));
    }
    for (name, is_directory) in left {
        if !is_directory {
            same(&expected.join(&name), &actual.join(&name))?;
        }
    }
    Ok(())
}

/// Maps the relative name of every entry beneath `top` to whether it is a directory.
fn entries(top: &Path) -> Result<BTreeMap<String, bool>, Failure> {
    let mut found = BTreeMap::new();
    let mut directories = vec![String::new()];
    while let Some(directory) = directories.pop() {
        let path = top.join(&directory);
        let listing = fs::read_dir(&path)
            .map_err(|error| Failure::Wrong(format!("{}: {error}", path.display())))?;
        for entry in listing {
            let entry = entry?;
            let name = Path::new(&directory)
                .join(entry.file_name())
                .display()
                .to_string();
            let is_directory = entry.file_type()?.is_dir();
            if is_directory {
                directories.push(name.clone());
            }
            found.insert(name, is_directory);
        }
    }
    Ok(found)
}

/// A modification time that every listing shows alike: 2001-09-09 01:46:40 UTC.
pub fn long_ago() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000)
}

/// Pseudo-random bytes, the same in each run (SplitMix64).
pub fn sample(length: usize) -> Vec<u8> {
    let mut state = 0_u64;
    let words = iter::repeat_with(|| {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut word = state;
        word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        word ^ (word >> 31)
    });
    let words = words.take(length.div_ceil(8)).flat_map(u64::to_be_bytes);
    words.take(length).collect()
}

/// A piece of the content of large files.
fn noise() -> &'static [u8] {
    static NOISE: OnceLock<Vec<u8>> = OnceLock::new();
    NOISE.get_or_init(|| sample(PIECE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_have_their_length_and_differ_everywhere() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("sample");
        for bytes in [0, 1, 1 << 20, (1 << 20) + 1] {
            write(&path, bytes).unwrap();
            assert_eq!(fs::metadata(&path).unwrap().len(), bytes);
        }
        let content = fs::read(&path).unwrap();
        assert_ne!(content[..1024], content[1024..2048]);
        assert!(content[1 << 20] == 0 || content[(1 << 20) - 8..1 << 20] != [0; 8]);
    }

    #[test]
    fn changed_and_lost_bytes_are_found() {
        let directory = tempfile::tempdir().unwrap();
        let (a, b) = (directory.path().join("a"), directory.path().join("b"));
        write(&a, 2_000_000).unwrap();
        write(&b, 2_000_000).unwrap();
        same(&a, &b).unwrap();
        let file = File::options().write(true).open(&b).unwrap();
        file.write_all_at(b"x", 1_500_000).unwrap();
        assert!(
            same(&a, &b)
                .unwrap_err()
                .to_string()
                .contains("byte 1500000")
        );
        file.set_len(1_999_999).unwrap();
        assert!(
            same(&a, &b)
                .unwrap_err()
                .to_string()
                .contains("1999999 bytes instead of 2000000")
        );
    }

    #[test]
    fn trees_differ_when_a_file_is_missing_surplus_or_changed() {
        let directory = tempfile::tempdir().unwrap();
        let (a, b) = (directory.path().join("a"), directory.path().join("b"));
        for top in [&a, &b] {
            fs::create_dir_all(top.join("x/y")).unwrap();
            fs::write(top.join("x/y/z"), "1").unwrap();
        }
        same_tree(&a, &b).unwrap();
        fs::write(b.join("x/y/z"), "2").unwrap();
        assert!(same_tree(&a, &b).is_err());
        fs::remove_file(b.join("x/y/z")).unwrap();
        assert!(
            same_tree(&a, &b)
                .unwrap_err()
                .to_string()
                .contains("missing [\"x/y/z\"]")
        );
        assert!(
            same_tree(&b, &a)
                .unwrap_err()
                .to_string()
                .contains("surplus [\"x/y/z\"]")
        );
    }
}
