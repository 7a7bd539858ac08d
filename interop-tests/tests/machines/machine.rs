//! Machines in namespaces, on a network of their own.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use gridhaul_interop::{Client, Finished, gridhaul_program};
use tempfile::TempDir;

const DOMAIN: &str = "example.org";

/// Directories that each machine has for itself.
const OWN: [&str; 5] = ["etc", "home", "root", "run", "var"];

/// Directories that programs expect.
const EXPECTED: [&str; 5] = ["var/log", "var/mail", "var/tmp", "var/lib", "etc/gridhaul"];

/// Mounts the files of a machine over those of this one, and waits for processes whose parents have ended. When the pipe closes, the machine
/// ends with all its processes.
const BOOT: &str = "hostname \"$NAME\"
ip link set lo up
for directory in etc home root run var; do
    mount --bind \"$MACHINES/$NAME/$directory\" \"/$directory\"
done
mount --bind \"$MACHINES/srv\" /srv
echo ready
exec 3<&0
cat <&3 &
wait $!";

/// What the package of the server brings.
const INSTALL: &str = "useradd --system --no-create-home gridhaul";

/// Machines with a network. They end when this is dropped, or when the test ends in any way.
pub(crate) struct Machines {
    place: TempDir,
    machines: Vec<Machine>,
}

struct Machine {
    name: String,
    /// `unshare`, whose child is the first process of the machine.
    holder: Child,
}

impl Machines {
    /// Starts machines of these host names, with the server installed. Needs root.
    pub(crate) fn start(hosts: &[&str]) -> Self {
        assert!(
            rustix::process::geteuid().is_root(),
            "only root can make network namespaces"
        );
        let place = tempfile::tempdir().unwrap();
        let public = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(place.path(), public).unwrap();
        fs::create_dir_all(place.path().join("srv/data")).unwrap();
        fs::create_dir(place.path().join("bin")).unwrap();
        let program = gridhaul_program().unwrap();
        symlink(program, place.path().join("bin/gridhaul-server")).unwrap();
        let names: Vec<_> = hosts
            .iter()
            .map(|host| format!("{host}.{DOMAIN}"))
            .collect();
        let machines = names.iter().map(|name| {
            lay_out(place.path(), name, &names);
            Machine::boot(place.path(), name)
        });
        let machines = Self {
            machines: machines.collect(),
            place,
        };
        machines.connect();
        for name in &names {
            machines.run(name, INSTALL);
        }
        machines
    }

    /// Runs commands of a shell as root on a machine, until one fails. Returns the output.
    pub(crate) fn run(&self, name: &str, commands: &str) -> String {
        let finished = self.shell(name, commands);
        assert!(
            finished.status.success(),
            "{name}: {commands}\n{finished}\n{}",
            self.logs()
        );
        finished.output()
    }

    /// Runs commands again and again, until their output is complete.
    pub(crate) fn until(
        &self,
        name: &str,
        commands: &str,
        is_complete: fn(&str) -> bool,
    ) -> String {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let finished = self.shell(name, commands);
            if finished.status.success() && is_complete(&finished.output()) {
                return finished.output();
            }
            assert!(
                Instant::now() < deadline,
                "{name}: {commands}\n{finished}\n{}",
                self.logs()
            );
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// The logs of all services.
    fn logs(&self) -> String {
        let show = "tail -n 50 /run/services/*.log";
        let logs = self.machines.iter();
        let logs = logs.map(|machine| self.shell(&machine.name, show).output());
        logs.collect()
    }

    fn shell(&self, name: &str, commands: &str) -> Finished {
        let machine = self.machines.iter().find(|machine| machine.name == name);
        let machine = machine.unwrap_or_else(|| panic!("no machine {name}"));
        let stand_ins = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/machines/stand-ins");
        let path = [
            stand_ins,
            self.place.path().join("bin"),
            "/usr/sbin:/usr/bin:/sbin:/bin".into(),
        ];
        let path = path.map(|part| part.display().to_string()).join(":");
        Client::new("nsenter")
            .args(["--target", &machine.init().to_string(), "--all"])
            .args(["sh", "-e"])
            .env("PATH", path)
            .env("HOME", "/root")
            .env("MACHINES", self.place.path())
            .input(commands)
            .time_limit(Duration::from_secs(120))
            .run()
            .unwrap()
    }

    /// Connects all machines to a bridge on the first one.
    fn connect(&self) {
        let [first, others @ ..] = self.machines.as_slice() else {
            return;
        };
        first.network("ip link add bridge0 type bridge");
        first.network("ip address add 10.81.0.1/24 dev bridge0");
        first.network("ip link set bridge0 up");
        for (number, other) in (2..).zip(others) {
            let [port, init] = [format!("port{number}"), other.init().to_string()];
            first.network(&format!(
                "ip link add {port} type veth peer name eth0 netns {init}"
            ));
            first.network(&format!("ip link set {port} master bridge0 up"));
            other.network(&format!("ip address add 10.81.0.{number}/24 dev eth0"));
            other.network("ip link set eth0 up");
        }
    }
}

/// The files of a machine: those of this one, its name, and what the package brings.
fn lay_out(place: &Path, name: &str, names: &[String]) {
    let top = place.join(name);
    for directory in OWN.into_iter().filter(|own| *own != "etc") {
        fs::create_dir_all(top.join(directory)).unwrap();
    }
    let copied = Client::new("cp").args(["-a", "/etc"]).arg(&top).run();
    let copied = copied.unwrap();
    assert!(copied.status.success(), "{copied}");
    for directory in EXPECTED {
        fs::create_dir_all(top.join(directory)).unwrap();
    }
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o1777);
    fs::set_permissions(top.join("var/tmp"), open).unwrap();
    // A machine of the tests may have a grid of its own.
    let _ = fs::remove_dir_all(top.join("etc/grid-security"));
    fs::create_dir(top.join("etc/grid-security")).unwrap();
    let hosts = (1..).zip(names);
    let hosts = hosts.map(|(number, name)| format!("10.81.0.{number} {name}\n"));
    let hosts: String = hosts.collect();
    write(
        top.join("etc/hosts"),
        &format!("127.0.0.1 localhost\n{hosts}"),
    );
    let node = Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging/node/node.toml");
    fs::copy(node, top.join("etc/gridhaul/node.toml")).unwrap();
    // The keys that packaging/generate sets, except for the transfer log.
    let server = "root = \"/\"\nlisten = \"2811\"\nuser = \"gridhaul\"\ngsi = true\nport-range = \"50000-51000\"\n";
    write(top.join("etc/gridhaul/gridhaul.toml"), server);
}

fn write(path: PathBuf, text: &str) {
    // A link may lead out of the copy.
    let _ = fs::remove_file(&path);
    fs::write(path, text).unwrap();
}

impl Machine {
    fn boot(place: &Path, name: &str) -> Self {
        let mut holder = Command::new("unshare")
            .args([
                "--net",
                "--mount",
                "--uts",
                "--pid",
                "--fork",
                "--kill-child",
            ])
            .args(["--mount-proc", "sh", "-ec", BOOT])
            .env("MACHINES", place)
            .env("NAME", name)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut output = BufReader::new(holder.stdout.take().unwrap());
        output.read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n", "{name} does not start");
        Self {
            name: name.to_owned(),
            holder,
        }
    }

    /// The first process of the machine, as this machine numbers it.
    fn init(&self) -> u32 {
        let holder = self.holder.id();
        let children = format!("/proc/{holder}/task/{holder}/children");
        let children = fs::read_to_string(children).unwrap();
        children.trim().parse().unwrap()
    }

    /// Runs a command in the network of the machine.
    fn network(&self, command: &str) {
        let finished = Client::new("nsenter")
            .args(["--target", &self.init().to_string(), "--net"])
            .args(command.split(' '))
            .run()
            .unwrap();
        assert!(finished.status.success(), "{finished}");
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // The first process reads the pipe to its end.
        drop(self.holder.stdin.take());
        let _ = self.holder.wait();
    }
}
