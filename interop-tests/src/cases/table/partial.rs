//! `globus-url-copy`: parts of files, and files of more than 4 GiB.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::cases::{Case, Context, Observation};
use crate::support::{Client, Failure, Launch, check, chown_to_nobody, content};

/// The size of the source of ordinary parts, in bytes.
const SIZE: u64 = 1_000_000;

/// The size of the sparse file, in bytes: past 4 GiB, and not a multiple of any block size.
const SPARSE: u64 = (5 << 30) + 12_345;

/// Offset and length, in bytes; either may be left out.
type Part = (Option<u64>, Option<u64>);

/// Parts inside the file, at block boundaries, up to the end, and past the end.
const PARTS: [Part; 7] = [
    (Some(100), Some(500)),
    (Some(262_143), Some(2)),
    (Some(262_144), Some(524_288)),
    (Some(999_900), Some(500)),
    (Some(1_000_000), Some(10)),
    (Some(100), None),
    (None, Some(100)),
];

/// Stream mode and MODE E.
const MODES: [&[&str]; 2] = [&[], &["-p", "4"]];

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for mode in MODES {
        for part in PARTS {
            let name = |direction: &str| {
                let words = [
                    mode.iter().map(ToString::to_string).collect(),
                    options(part),
                ]
                .concat();
                format!("globus-url-copy/partial {direction} {}", words.join(" "))
            };
            cases.push(Case::new(name("get"), move |context| {
                get(context, mode, part)
            }));
            if part != (Some(1_000_000), Some(10)) {
                // The client does not send an empty part.
                cases.push(Case::new(name("put"), move |context| {
                    put(context, mode, part)
                }));
            }
            cases.extend(Case::third_party(name("third-party"), move |context| {
                third_party(context, mode, part)
            }));
        }
        let name = |what: &str| format!("globus-url-copy/sparse 5 GB {what} {}", mode.join(" "));
        cases.push(Case::new(name("get of its last part"), move |context| {
            sparse_part(context, mode)
        }));
        cases.push(Case::new(name("put of its last part"), move |context| {
            sparse_part_put(context, mode)
        }));
        cases.extend(Case::third_party(
            name("third-party of its last part"),
            move |context| sparse_part_third_party(context, mode),
        ));
    }
    cases.push(Case::new(
        "globus-url-copy/sparse 5 GB get by curl",
        sparse_get,
    ));
    cases.push(Case::new(
        "globus-url-copy/sparse 5 GB put -p 4",
        sparse_put,
    ));
    cases
}

fn options((offset, length): Part) -> Vec<String> {
    let offset = offset.map(|offset| ["-off".to_owned(), offset.to_string()]);
    let length = length.map(|length| ["-len".to_owned(), length.to_string()]);
    offset.into_iter().chain(length).flatten().collect()
}

/// The client and `ESTO A` write the part at its offset in the source.
fn check_part(source: &Path, copy: &Path, (offset, length): Part) -> Result<(), Failure> {
    let mut expected = fs::read(source)?;
    let start = usize::try_from(offset.unwrap_or(0))
        .unwrap_or(usize::MAX)
        .min(expected.len());
    let end = length.map_or(expected.len(), |length| {
        expected
            .len()
            .min(start.saturating_add(usize::try_from(length).unwrap_or(usize::MAX)))
    });
    expected.truncate(end);
    expected[..start].fill(0);
    if start == end {
        expected.clear();
    }
    content::holds(copy, &expected)
}

fn get(context: &Context<'_>, mode: &[&str], part: Part) -> Result<Observation, Failure> {
    let source = context.remote_sample("source", SIZE)?;
    context
        .globus_url_copy(mode)
        .args(options(part))
        .args([context.from("source"), context.local_url("copy")])
        .run()?
        .succeeded()?;
    check_part(&source, &context.local("copy"), part)?;
    Ok(Observation::none())
}

fn put(context: &Context<'_>, mode: &[&str], part: Part) -> Result<Observation, Failure> {
    let source = context.local_sample("source", SIZE)?;
    context
        .globus_url_copy(mode)
        .args(options(part))
        .args([context.local_url("source"), context.to("copy")])
        .run()?
        .succeeded()?;
    check_part(&source, &context.remote("copy"), part)?;
    Ok(Observation::none())
}

fn third_party(context: &Context<'_>, mode: &[&str], part: Part) -> Result<Observation, Failure> {
    let source = context.remote_sample("source", SIZE)?;
    context
        .globus_url_copy(mode)
        .args(options(part))
        .args([context.from("source"), context.to("copy")])
        .run()?
        .succeeded()?;
    check_part(&source, &context.remote("copy"), part)?;
    Ok(Observation::none())
}

/// The offset of the last part of the sparse file, in bytes; the part ends with data.
const LAST_PART: u64 = SPARSE - 1_000_000;

fn last_part() -> Vec<String> {
    options((Some(LAST_PART), Some(SPARSE - LAST_PART)))
}

/// Compares the bytes from [`LAST_PART`] on; the bytes before it must be a hole.
fn check_last_part(source: &Path, copy: &Path) -> Result<(), Failure> {
    let copy = File::open(copy).map_err(|error| Failure::wrong(error.to_string()))?;
    let length = copy.metadata()?.len();
    check(length == SPARSE, || {
        format!("the copy ends at {length} instead of {SPARSE}")
    })?;
    let (mut expected, mut found) = (vec![0; 1_000_000], vec![1; 1_000_000]);
    File::open(source)?.read_exact_at(&mut expected, LAST_PART)?;
    copy.read_exact_at(&mut found, LAST_PART)?;
    check(found == expected, || "the bytes past 5 GB differ".into())?;
    copy.read_exact_at(&mut found, LAST_PART - 1_000_000)?;
    check(found.iter().all(|&byte| byte == 0), || {
        "bytes before the part were written".into()
    })
}

fn remote_sparse(context: &Context<'_>) -> Result<PathBuf, Failure> {
    let source = context.remote("source");
    content::write_sparse(&source, SPARSE)?;
    chown_to_nobody(&source)?;
    Ok(source)
}

fn sparse_part(context: &Context<'_>, mode: &[&str]) -> Result<Observation, Failure> {
    let source = remote_sparse(context)?;
    context
        .globus_url_copy(mode)
        .args(last_part())
        .args([context.from("source"), context.local_url("copy")])
        .run()?
        .succeeded()?;
    check_last_part(&source, &context.local("copy"))?;
    Ok(Observation::none())
}

fn sparse_part_put(context: &Context<'_>, mode: &[&str]) -> Result<Observation, Failure> {
    let source = context.local("source");
    content::write_sparse(&source, SPARSE)?;
    context
        .globus_url_copy(mode)
        .args(last_part())
        .args([context.local_url("source"), context.to("copy")])
        .run()?
        .succeeded()?;
    check_last_part(&source, &context.remote("copy"))?;
    Ok(Observation::none())
}

fn sparse_part_third_party(context: &Context<'_>, mode: &[&str]) -> Result<Observation, Failure> {
    let source = remote_sparse(context)?;
    context
        .globus_url_copy(mode)
        .args(last_part())
        .args([context.from("source"), context.to("copy")])
        .run()?
        .succeeded()?;
    check_last_part(&source, &context.remote("copy"))?;
    Ok(Observation::none())
}

/// The time limit for a copy of the whole sparse file, on a slow disk.
const SPARSE_LIMIT: Duration = Duration::from_secs(300);

/// Stream mode; the client does not store the file.
fn sparse_get(context: &Context<'_>) -> Result<Observation, Failure> {
    let source = remote_sparse(context)?;
    Client::new("sh")
        .args([
            "-c",
            "curl --silent --show-error \"$1\" | cmp - \"$2\"",
            "sh",
        ])
        .arg(context.home_url("source"))
        .arg(source)
        .time_limit(SPARSE_LIMIT)
        .run()?
        .succeeded()?;
    Ok(Observation::none())
}

/// MODE E, with a server of its own. The copy has no holes and temporarily takes 5 GB.
fn sparse_put(context: &Context<'_>) -> Result<Observation, Failure> {
    let source = context.local("source");
    content::write_sparse(&source, SPARSE)?;
    let roomy = roomy_directory()?;
    chown_to_nobody(roomy.path())?;
    let server = Launch::new(context.subject(), roomy.path()).start()?;
    context
        .globus_url_copy(["-p", "4", &context.local_url("source"), &server.url("copy")])
        .time_limit(SPARSE_LIMIT)
        .run()?
        .succeeded()?;
    // `cmp` is fast even when this program is built without optimisation.
    Client::new("cmp")
        .args([source, roomy.path().join("copy")])
        .time_limit(SPARSE_LIMIT)
        .run()?
        .succeeded()?;
    Ok(Observation::none())
}

/// A directory in `/dev/shm` if that has enough space, else on the disk.
fn roomy_directory() -> Result<tempfile::TempDir, Failure> {
    let memory = Path::new("/dev/shm");
    let free = rustix::fs::statvfs(memory).map_or(0, |place| place.f_bavail * place.f_frsize);
    let builder = || {
        let mut builder = tempfile::Builder::new();
        builder.prefix("gridhaul-interop-");
        builder
    };
    // Twice the file, so that two such cases at once do not exhaust the memory.
    Ok(if free > 2 * SPARSE {
        builder().tempdir_in(memory)
    } else {
        builder().tempdir()
    }?)
}
