//! Changes of names and modes, checksums, and small reads and writes.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use super::client::{closed, gfal};
use super::output::observed;
use crate::cases::{Case, Context, Observation};
use crate::support::{Failure, check, content};

type Check = fn(&Context<'_>) -> Result<Observation, Failure>;

const CASES: [(&str, Check); 13] = [
    ("gfal-sum", sums),
    ("gfal-sum of a missing file", sum_missing),
    ("gfal-mkdir", make_directory),
    ("gfal-mkdir -p", make_directories),
    ("gfal-mkdir where there is one", make_existing),
    ("gfal-mkdir in a closed directory", make_in_closed),
    ("gfal-rm", remove),
    ("gfal-rm -r", remove_tree),
    ("gfal-rename", rename),
    ("gfal-rename of a missing file", rename_missing),
    ("gfal-chmod", chmod),
    ("gfal-cat", cat),
    ("gfal-save", save),
];

pub(super) fn cases() -> Vec<Case> {
    let cases = CASES
        .into_iter()
        .map(|(name, run)| Case::new(format!("gfal/{name}"), run));
    let crc32 = Case::new("gfal/gfal-sum CRC32", sum_crc32).deviation("it has no CRC32");
    cases.chain([crc32]).collect()
}

const NOT_FOUND: &str = "No such file or directory";

/// The checksums were computed with Python's zlib and hashlib.
fn sums(context: &Context<'_>) -> Result<Observation, Failure> {
    context.remote_file("file", "gridhaul\n")?;
    let sums = [
        ("ADLER32", "123c035b"),
        ("MD5", "ef5e39395bed794d8a934a1cc29a9dd6"),
        ("SHA1", "17aa9908dc086148ad3a0ba7fddc9a5020f44faa"),
        (
            "SHA256",
            "73d7f1fe17aa978ca9241626b97fc5e4002f1e84fdf5d240ca56f590dde758d1",
        ),
        (
            "SHA512",
            "d21f845669418aa00a2b42d73da239d0a76f5c4c4a79bd6189d5e625ca14d267f749d92515f59a391670546997ea9ac684c2606ca62eb760aba851d23948fac6",
        ),
    ];
    for (algorithm, sum) in sums {
        gfal("gfal-sum", [&context.from("file"), algorithm], context)
            .run()?
            .succeeded()?
            .prints(&[sum])?;
    }
    Ok(Observation::none())
}

fn sum_crc32(context: &Context<'_>) -> Result<Observation, Failure> {
    context.remote_file("file", "gridhaul\n")?;
    gfal("gfal-sum", [&context.from("file"), "CRC32"], context)
        .run()?
        .succeeded()?
        .prints(&["ec4ae1b0"])?;
    Ok(Observation::none())
}

fn sum_missing(context: &Context<'_>) -> Result<Observation, Failure> {
    gfal("gfal-sum", [&context.from("nosuch"), "ADLER32"], context)
        .run()?
        .failed_with(2, &[NOT_FOUND])?;
    Ok(Observation::none())
}

fn make_directory(context: &Context<'_>) -> Result<Observation, Failure> {
    gfal("gfal-mkdir", [context.to("new")], context)
        .run()?
        .succeeded()?;
    check(context.remote("new").is_dir(), || "no directory".into())?;
    gfal("gfal-mkdir", [context.to("no/such/place")], context)
        .run()?
        .failed_with(2, &[NOT_FOUND])?;
    Ok(Observation::none())
}

fn make_directories(context: &Context<'_>) -> Result<Observation, Failure> {
    for _ in 0..2 {
        gfal("gfal-mkdir", ["-p", &context.to("a/b/c")], context)
            .run()?
            .succeeded()?;
    }
    check(context.remote("a/b/c").is_dir(), || "no directory".into())?;
    Ok(Observation::none())
}

fn make_existing(context: &Context<'_>) -> Result<Observation, Failure> {
    context.remote_directory("old")?;
    gfal("gfal-mkdir", [context.to("old")], context)
        .run()?
        .failed_with(17, &["File exists"])?;
    Ok(Observation::none())
}

fn make_in_closed(context: &Context<'_>) -> Result<Observation, Failure> {
    closed(context)?;
    gfal("gfal-mkdir", [context.to("closed/new")], context)
        .run()?
        .failed_with(13, &["Permission denied"])?;
    Ok(Observation::none())
}

fn remove(context: &Context<'_>) -> Result<Observation, Failure> {
    context.remote_sample("file", 10)?;
    context.remote_directory("directory")?;
    let urls = [context.to("file"), context.to("nosuch")];
    let removed = gfal("gfal-rm", urls, context).run()?;
    check(!context.remote("file").exists(), || {
        format!("the file is there\n{removed}")
    })?;
    let removed = removed.failed_with(2, &["DELETED", "MISSING"])?;
    let refused = gfal("gfal-rm", [context.to("directory")], context).run()?;
    let refused = refused.failed_with(21, &["Is a directory"])?;
    check(context.remote("directory").exists(), || {
        "the directory is gone".into()
    })?;
    Ok(observed(context, &(removed.output() + &refused.output())))
}

fn remove_tree(context: &Context<'_>) -> Result<Observation, Failure> {
    for directory in ["tree", "tree/a", "tree/a/b c", "tree/empty"] {
        context.remote_directory(directory)?;
    }
    for file in ["tree/one", "tree/a/two", "tree/a/b c/three words"] {
        context.remote_sample(file, 10)?;
    }
    gfal("gfal-rm", ["-r", &context.to("tree")], context)
        .run()?
        .succeeded()?;
    check(!context.remote("tree").exists(), || {
        "something is left".into()
    })?;
    Ok(Observation::none())
}

fn rename(context: &Context<'_>) -> Result<Observation, Failure> {
    let old = context.remote_sample("old", 1000)?;
    context.remote_directory("directory")?;
    let kept = context.local("kept");
    fs::copy(&old, &kept)?;
    gfal(
        "gfal-rename",
        [context.to("old"), context.to("directory/new name")],
        context,
    )
    .run()?
    .succeeded()?;
    content::same(&kept, &context.remote("directory/new name"))?;
    check(!old.exists(), || "the old name is there".into())?;
    Ok(Observation::none())
}

/// The client sends RNTO after a failed RNFR, and shows the reply to RNTO.
fn rename_missing(context: &Context<'_>) -> Result<Observation, Failure> {
    let finished = gfal(
        "gfal-rename",
        [context.to("nosuch"), context.to("new")],
        context,
    )
    .run()?;
    check(!finished.status.success(), || {
        format!("it should fail\n{finished}")
    })?;
    check(!context.remote("new").exists(), || "a file was made".into())?;
    Ok(Observation::none())
}

fn chmod(context: &Context<'_>) -> Result<Observation, Failure> {
    let file = context.remote_sample("file", 1)?;
    // Other tests cover set-user-ID, which is refused.
    for mode in [0o600, 0o755, 0o711] {
        gfal(
            "gfal-chmod",
            [format!("{mode:o}"), context.to("file")],
            context,
        )
        .run()?
        .succeeded()?;
        let found = fs::metadata(&file)?.permissions().mode() & 0o7777;
        check(found == mode, || {
            format!("mode {found:o} instead of {mode:o}")
        })?;
    }
    gfal("gfal-chmod", ["600", &context.to("nosuch")], context)
        .run()?
        .failed_with(2, &[NOT_FOUND])?;
    Ok(Observation::none())
}

fn cat(context: &Context<'_>) -> Result<Observation, Failure> {
    let file = context.remote_sample("file", 700_001)?;
    let output = gfal("gfal-cat", ["-b", &context.from("file")], context)
        .run()?
        .succeeded()?;
    fs::write(context.local("copy"), &output.stdout)?;
    content::same(&file, &context.local("copy"))?;
    gfal("gfal-cat", [context.from("nosuch")], context)
        .run()?
        .failed_with(2, &[NOT_FOUND])?;
    Ok(Observation::none())
}

/// Overwrites a longer file. The program can only save text.
fn save(context: &Context<'_>) -> Result<Observation, Failure> {
    context.remote_sample("file", 800_000)?;
    let text: String = (0..50_000).map(|line| format!("line {line}\n")).collect();
    gfal("gfal-save", [context.to("file")], context)
        .input(text.as_str())
        .run()?
        .succeeded()?;
    content::holds(&context.remote("file"), text.as_bytes())?;
    Ok(Observation::none())
}
