//! The files of a server, and what its commands print about them.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::table::Mistake;

/// What a command printed, and whether it listened.
pub(crate) struct Printed {
    pub(crate) status: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// Runs a command until it ends, or prints that it listens.
pub(crate) fn run(command: &str, arguments: &[String], directory: &Path) -> Printed {
    let mut child = Command::new(env!("CARGO_BIN_EXE_gridhaul-server"))
        .arg(command)
        .args(arguments)
        .current_dir(directory)
        .env_clear()
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("started");
    let mut stdout = String::new();
    let mut lines = BufReader::new(child.stdout.take().expect("piped"));
    while lines.read_line(&mut stdout).expect("UTF-8") > 0 {
        if stdout.contains("Server listening") {
            child.kill().expect("running");
        }
    }
    let mut stderr = String::new();
    let mut errors = child.stderr.take().expect("piped");
    errors.read_to_string(&mut stderr).expect("UTF-8");
    let status = child.wait().expect("ended").code().unwrap_or(-1);
    Printed {
        status,
        stdout,
        stderr,
    }
}

pub(crate) struct Site(pub(crate) tempfile::TempDir);

impl Site {
    pub(crate) fn new() -> Self {
        let site = Self(tempfile::tempdir().expect("a directory"));
        let mode = |name: &str, mode| {
            let permissions = fs::Permissions::from_mode(mode);
            fs::set_permissions(site.path(name), permissions).expect("set");
        };
        mode("", 0o755);
        for (name, bits) in [
            ("root", 0o755),
            ("private", 0o700),
            ("open", 0o777),
            ("trust", 0o755),
        ] {
            fs::create_dir(site.path(name)).expect("made");
            mode(name, bits);
        }
        fs::write(site.path("broken-users"), "ann\n").expect("written");
        fs::write(site.path("open-key"), [7; 32]).expect("written");
        mode("open-key", 0o644);
        fs::write(site.path("map"), "\"/O=Grid/CN=Alice\" nobody\n").expect("written");
        fs::write(site.path("bad-map"), "/O=Grid/CN=Al Smith nobody\n").expect("written");
        for name in ["host", "other"] {
            site.certificate(name);
            mode(&format!("{name}.key"), 0o600);
        }
        fs::copy(site.path("host.pem"), site.path("trust/ca.pem")).expect("copied");
        fs::copy(site.path("host.key"), site.path("open-host.key")).expect("copied");
        mode("open-host.key", 0o644);
        site
    }

    /// Makes `NAME.pem` and `NAME.key`.
    pub(crate) fn certificate(&self, name: &str) {
        let done = Command::new("openssl")
            .args(["req", "-x509", "-nodes", "-newkey", "ec", "-days", "2"])
            .args([
                "-pkeyopt",
                "ec_paramgen_curve:P-256",
                "-subj",
                "/CN=localhost",
            ])
            .args([
                "-keyout",
                &format!("{name}.key"),
                "-out",
                &format!("{name}.pem"),
            ])
            .current_dir(self.0.path())
            .output()
            .expect("openssl is installed");
        assert!(
            done.status.success(),
            "{}",
            String::from_utf8_lossy(&done.stderr)
        );
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Writes a configuration file; returns it, and the number of the marked line.
    pub(crate) fn file(&self, text: &str) -> (String, usize) {
        let here = self.0.path().to_str().expect("UTF-8");
        let is_set = |key: &str| {
            let mut lines = text.lines();
            lines.any(|line| line.split(' ').next() == Some(key))
        };
        let mut whole = String::new();
        for (key, value) in [
            ("root", format!("'{here}/root'")),
            ("listen", "'127.0.0.1:0'".to_owned()),
            ("anonymous", "true".to_owned()),
        ] {
            if !is_set(key) {
                whole.push_str(&format!("{key} = {value}\n"));
            }
        }
        whole.push_str(&text.replace("HERE", here));
        whole.push('\n');
        let marked = whole.lines().position(|line| line.ends_with("#!"));
        let path = self.path("gridhaul.toml");
        fs::write(&path, whole).expect("written");
        let line = marked.map_or(0, |index| index + 1);
        (path.to_str().expect("UTF-8").to_owned(), line)
    }

    /// Makes the mistake, and checks what is said of it. Returns a row of a table: mistake, `check`, `serve`.
    pub(crate) fn make(&self, mistake: &Mistake) -> String {
        let Mistake {
            file,
            flags,
            key,
            remedy,
        } = mistake;
        let (arguments, place) = if flags.is_empty() {
            let (path, line) = self.file(file);
            let place = format!("gridhaul.toml, line {line}:");
            (vec!["--config".to_owned(), path], place)
        } else {
            let (path, _) = self.file("");
            let mut all = vec!["--config".to_owned(), path];
            all.extend(flags.iter().map(|flag| (*flag).to_owned()));
            (all, format!("--{key}"))
        };
        let name = if flags.is_empty() {
            file.replace(" #!", "").replace('\n', "; ")
        } else {
            flags.join(" ")
        };
        let check = run("check", &arguments, self.0.path());
        let serve = run("serve", &arguments, self.0.path());
        let about = |text: &str| {
            let mut lines = text.lines();
            let found = lines.find(|line| line.contains(&place) && line.contains(key));
            found.unwrap_or_default().trim().to_owned()
        };
        for (command, printed, text) in [
            ("check", &check, &check.stdout),
            ("serve", &serve, &serve.stderr),
        ] {
            assert!(printed.status > 0, "{command}, {name}: {text}");
            assert!(!about(text).is_empty(), "{command}, {name}: {text}");
            assert!(text.contains(remedy), "{command}, {name}: {text}");
        }
        assert!(!serve.stdout.contains("listening"), "{name}");
        let here = self.0.path().to_str().expect("UTF-8");
        let shown = |text: String| text.replace(here, "/etc").replace('|', "\\|");
        format!(
            "| `{}` | {} | {} |",
            name.replace('|', "\\|"),
            shown(about(&check.stdout)),
            shown(about(&serve.stderr))
        )
    }
}
