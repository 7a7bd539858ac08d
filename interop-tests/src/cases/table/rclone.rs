//! rclone: a client that copies and compares trees, with several connections at a time.

use std::fs;

use crate::cases::{Case, Context, Observation};
use crate::support::{Client, Failure, Finished, check, content};

type Check = fn(&Context<'_>) -> Result<Observation, Failure>;

const CASES: [(&str, Check); 5] = [
    ("copy keeps times", copy),
    (
        "copy --transfers 8 to new directories",
        copy_to_new_directories,
    ),
    ("sync of an unchanged tree", sync_again),
    ("copy back", copy_back),
    ("purge", purge),
];

pub(super) fn cases() -> Vec<Case> {
    CASES
        .into_iter()
        .map(|(name, run)| {
            Case::new(format!("rclone/{name}"), run)
                .deviation("it answers OPTS UTF8 ON with 500, after which rclone gives up")
        })
        .collect()
}

/// Runs rclone without retries: the first error ends the run.
fn rclone(context: &Context<'_>, arguments: &[&str]) -> Result<Finished, Failure> {
    let address = context.source().address();
    let obscured = Client::new("rclone")
        .args(["obscure", "me@example.org"])
        .run()?;
    let password = obscured.succeeded()?.output();
    let finished = Client::new("rclone")
        .args(["--config", "/dev/null", "--retries", "1"])
        .args(["--low-level-retries", "1", "--verbose"])
        .args(["--ftp-host", &address.ip().to_string()])
        .args(["--ftp-port", &address.port().to_string()])
        .args(["--ftp-user", "anonymous", "--ftp-pass", password.trim_end()])
        .args(arguments)
        .directory(context.local(""))
        .run()?
        .succeeded()?;
    check(!finished.output().contains("ERROR"), || {
        format!("rclone complains\n{finished}")
    })?;
    Ok(finished)
}

fn remote(context: &Context<'_>, name: &str) -> String {
    format!(":ftp:{}", context.path(name))
}

/// A local tree with modification times in the past.
fn tree(context: &Context<'_>) -> Result<(), Failure> {
    for directory in ["a", "a/b", "c d"] {
        fs::create_dir_all(context.local("tree").join(directory))?;
    }
    for (name, size) in [
        ("tree/a/one", 1),
        ("tree/a/b/two words", 100_001),
        ("tree/c d/ü", 0),
    ] {
        let path = context.local_sample(name, size)?;
        let file = fs::File::options().write(true).open(path)?;
        file.set_modified(content::long_ago())?;
    }
    Ok(())
}

fn copy(context: &Context<'_>) -> Result<Observation, Failure> {
    tree(context)?;
    rclone(context, &["copy", "tree", &remote(context, "tree")])?;
    content::same_tree(&context.local("tree"), &context.remote("tree"))?;
    for name in ["a/one", "a/b/two words", "c d/ü"] {
        let modified = fs::metadata(context.remote("tree").join(name))?.modified()?;
        check(modified == content::long_ago(), || {
            format!("{name} was modified {modified:?}")
        })?;
    }
    Ok(Observation::none())
}

/// All connections create the parent directories of their files at once.
fn copy_to_new_directories(context: &Context<'_>) -> Result<Observation, Failure> {
    let top = context.local("tree/new/deep");
    fs::create_dir_all(&top)?;
    for number in 0..32 {
        context.local_sample(&format!("tree/new/deep/file{number}"), 1000 + number)?;
    }
    rclone(
        context,
        &["copy", "--transfers", "8", "tree", &remote(context, "tree")],
    )?;
    content::same_tree(&context.local("tree"), &context.remote("tree"))?;
    Ok(Observation::none())
}

fn sync_again(context: &Context<'_>) -> Result<Observation, Failure> {
    tree(context)?;
    let to = remote(context, "tree");
    rclone(context, &["sync", "tree", &to])?;
    rclone(context, &["sync", "tree", &to])?.prints(&["There was nothing to transfer"])?;
    rclone(context, &["check", "--download", "tree", &to])?.prints(&["0 differences found"])?;
    Ok(Observation::none())
}

fn copy_back(context: &Context<'_>) -> Result<Observation, Failure> {
    context.remote_directory("tree/a b")?;
    context.remote_sample("tree/one", 3_000_001)?;
    context.remote_sample("tree/a b/.two", 5)?;
    rclone(context, &["copy", &remote(context, "tree"), "copy"])?;
    content::same_tree(&context.remote("tree"), &context.local("copy"))?;
    Ok(Observation::none())
}

fn purge(context: &Context<'_>) -> Result<Observation, Failure> {
    tree(context)?;
    let to = remote(context, "tree");
    rclone(context, &["copy", "tree", &to])?;
    rclone(context, &["purge", &to])?;
    check(!context.remote("tree").exists(), || {
        "the tree is there".into()
    })?;
    Ok(Observation::none())
}
