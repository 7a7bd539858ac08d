//! Retries and resumed copies where the destination has files of other copies, or the source changes.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use gridhaul_interop::{Kind, chown_to_nobody, content};

use crate::site::{Site, assert_same};

const MIB: u64 = 1 << 20;

/// Sees each line of a client before the server. `false`: the connection is closed instead.
pub(crate) type Passes = dyn Fn(&str) -> bool + Send + Sync;

/// A relay of control connections.
pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    commands: Arc<Mutex<Vec<String>>>,
}

impl Proxy {
    pub(crate) fn start(server: SocketAddr, passes: Box<Passes>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let commands = Arc::<Mutex<Vec<String>>>::default();
        let (said, passes) = (Arc::clone(&commands), Arc::<Passes>::from(passes));
        thread::spawn(move || {
            for client in listener.incoming() {
                let (said, passes) = (Arc::clone(&said), Arc::clone(&passes));
                thread::spawn(move || relay(&client.unwrap(), server, &*passes, &said));
            }
        });
        Self { address, commands }
    }

    /// Closes the first connection on which a client says one of these words, before the server hears it.
    fn drops_at(server: SocketAddr, words: &'static [&'static str]) -> Self {
        let has_dropped = AtomicBool::new(false);
        let passes = move |line: &str| {
            let is_one = words.iter().any(|word| line.starts_with(word));
            !is_one || has_dropped.swap(true, Ordering::Relaxed)
        };
        Self::start(server, Box::new(passes))
    }

    /// The URL of a file of this site through the relay.
    fn url(&self, site: &Site, name: &str) -> String {
        let server = site.server.address().to_string();
        site.server
            .url(name)
            .replace(&server, &self.address.to_string())
    }

    fn has_heard(&self, verb: &str) -> bool {
        let commands = self.commands.lock().unwrap();
        commands.iter().any(|line| line.starts_with(verb))
    }
}

fn relay(
    client: &TcpStream,
    address: SocketAddr,
    passes: &Passes,
    said: &Mutex<Vec<String>>,
) -> std::io::Result<()> {
    let server = TcpStream::connect(address)?;
    thread::scope(|scope| {
        scope.spawn(|| {
            let _ = std::io::copy(&mut &server, &mut &*client);
            let _ = client.shutdown(Shutdown::Both);
        });
        for line in BufReader::new(client).lines() {
            let Ok(line) = line else { break };
            if !passes(&line) {
                break;
            }
            said.lock().unwrap().push(line.clone());
            if (&server)
                .write_all(format!("{line}\r\n").as_bytes())
                .is_err()
            {
                break;
            }
        }
        let _ = client.shutdown(Shutdown::Both);
        let _ = server.shutdown(Shutdown::Both);
    });
    Ok(())
}

/// The words that open a data port.
const PORT: &[&str] = &["PASV", "EPSV", "SPAS", "PORT", "EPRT", "SPOR"];

/// Copies a file through a relay that closes the first connection at these words.
fn is_tried_again(site: &Site, words: &'static [&'static str], mode: &str, from: &str, to: &str) {
    let proxy = Proxy::drops_at(site.server.address(), words);
    let at = |name: &str| {
        name.strip_prefix("there:")
            .map(|name| proxy.url(site, name))
    };
    let (from, to) = (
        at(from).unwrap_or_else(|| from.to_owned()),
        at(to).unwrap_or_else(|| to.to_owned()),
    );
    let lines = site.must(&["copy", "--json", "--mode", mode, &from, &to]);
    assert!(lines.contains(r#""event":"retry""#), "{lines}");
}

/// A file with the content of another one, and more.
fn longer(path: &Path, than: &Path) {
    fs::copy(than, path).unwrap();
    let file = File::options().append(true).open(path).unwrap();
    (&file).write_all(&[7; 4 << 20]).unwrap();
}

#[test]
fn a_retry_leaves_nothing_of_a_longer_file() {
    for kind in [Kind::Gridhaul, Kind::Globus] {
        let site = Site::anonymous(kind, &[]);
        content::write(&site.local("new"), 8 * MIB).unwrap();
        longer(&site.local("longer"), &site.local("new"));
        site.must(&["copy", "longer", &site.server.url("old")]);
        site.must(&["copy", "longer", &site.server.url("resumed")]);
        is_tried_again(&site, PORT, "extended", "new", "there:old");
        assert_same(&site.local("new"), &site.served("old"), &[]);

        let proxy = Proxy::drops_at(site.server.address(), PORT);
        let url = proxy.url(&site, "resumed");
        let put = ["copy", "--mode", "extended", "--retry", "0", "new", &url];
        site.fails(&put);
        site.must(&[&put[..], &["--resume"]].concat());
        assert_same(&site.local("new"), &site.served("resumed"), &[]);

        longer(&site.local(".got.gridhaul-blocks"), &site.local("new"));
        is_tried_again(&site, PORT, "extended", "there:old", "got");
        assert_same(&site.local("new"), &site.local("got"), &[]);
    }
}

#[test]
fn a_retry_does_not_take_the_stream_of_another_copy() {
    let site = Site::anonymous(Kind::Gridhaul, &[]);
    content::write(&site.served("file"), 8 * MIB).unwrap();
    for mode in ["auto", "extended", "stream"] {
        let other = vec![7; 6 << 20];
        fs::write(site.local(&format!(".{mode}.gridhaul-part")), &other).unwrap();
        is_tried_again(&site, &["RETR"], mode, "there:file", mode);
        assert_same(&site.served("file"), &site.local(mode), &[mode]);

        // The journal has begun the file, and has nothing of it.
        let proxy = Proxy::drops_at(site.server.address(), &["RETR"]);
        let (url, name) = (proxy.url(&site, "file"), format!("{mode}-resumed"));
        let copy = ["copy", "--mode", mode, "--retry", "0", &url, &name];
        site.fails(&copy);
        fs::write(site.local(&format!(".{name}.gridhaul-part")), &other).unwrap();
        site.must(&[&copy[..], &["--resume"]].concat());
        assert_same(&site.served("file"), &site.local(&name), &[mode]);
    }
}

/// A server that limits the rate, so that there is time for a kill.
fn slow_site() -> Site {
    slow_site_with("")
}

fn slow_site_with(more: &str) -> Site {
    let place = tempfile::tempdir().unwrap();
    let config = place.path().join("gridhaul.toml");
    let limit = "[[limit]]\nname = 'all'\nnetwork = '127.0.0.0/8'\nbandwidth = '8M'\n";
    fs::write(&config, format!("{more}{limit}")).unwrap();
    Site::anonymous(Kind::Gridhaul, &["--config", config.to_str().unwrap()])
}

/// The last record of a file in the journal, if it has ranges.
fn recorded(site: &Site) -> Option<u64> {
    let entries = fs::read_dir(site.local("state/gridhaul")).ok()?;
    let mut journals = entries.map(|entry| fs::read_to_string(entry.unwrap().path()).unwrap());
    let text = journals.next()?;
    let last = text.lines().last()?;
    let (_, end) = last.rsplit_once('-')?;
    end.parse().ok()
}

/// Starts a copy, and kills it when the journal knows so many bytes.
fn killed(site: &Site, arguments: &[&str], bytes: u64) {
    let mut command = site.command(arguments);
    let mut child = command.stdout(Stdio::null()).spawn().unwrap();
    while recorded(site) < Some(bytes) {
        assert_eq!(child.try_wait().unwrap(), None, "{arguments:?}");
        thread::sleep(Duration::from_millis(5));
    }
    child.kill().unwrap();
    child.wait().unwrap();
}

/// Replaces a file. The server may still end the upload to the old one, whose room behind its end it gives back then.
fn replace(path: &Path, content: &[u8]) {
    let new = path.with_extension("new");
    fs::write(&new, content).unwrap();
    // A server acts as another account.
    fs::set_permissions(&new, fs::metadata(path).unwrap().permissions()).unwrap();
    chown_to_nobody(&new).unwrap();
    fs::rename(&new, path).unwrap();
}

#[test]
fn a_file_that_is_not_that_of_the_copy_is_not_continued() {
    let site = slow_site();
    content::write(&site.local("file"), 16 * MIB).unwrap();
    let url = site.server.url("file");
    let other = vec![7; 16 << 20];

    let put = ["copy", "--mode", "extended", "file", &url];
    killed(&site, &put, 4 * MIB);
    replace(&site.served("file"), &other);
    site.must(&[&put[..], &["--resume"]].concat());
    assert_same(&site.local("file"), &site.served("file"), &[]);

    // An unfinished file that the server does not continue.
    killed(&site, &put, 4 * MIB);
    fs::copy(site.local("file"), site.served(".file.gridhaul-blocks")).unwrap();
    replace(&site.served("file"), &other);
    let lines = site.must(&[&put[..], &["--resume", "--json"]].concat());
    assert!(lines.contains("continued another file"), "{lines}");
    assert_same(&site.local("file"), &site.served("file"), &[]);

    for mode in ["extended", "stream"] {
        let suffix = match mode {
            "stream" => "part",
            _ => "blocks",
        };
        fs::write(site.local(mode), &other).unwrap();
        let get = ["copy", "--mode", mode, &url, mode];
        killed(&site, &get, 4 * MIB);
        fs::remove_file(site.local(&format!(".{mode}.gridhaul-{suffix}"))).unwrap();
        site.must(&[&get[..], &["--resume"]].concat());
        assert_same(&site.served("file"), &site.local(mode), &[mode]);
    }
}

#[test]
fn an_upload_with_a_temporary_name_is_continued_beside_an_older_file() {
    let site = slow_site_with("atomic-uploads = ['*']\n");
    content::write(&site.local("file"), 16 * MIB).unwrap();
    let url = site.server.url("file");
    site.must(&["copy", "source", &url]);
    let put = ["copy", "--mode", "extended", "--json", "file", &url];
    killed(&site, &put, 8 * MIB);
    let lines = site.must(&[&put[..], &["--resume"]].concat());
    assert!(!lines.contains("retry"), "{lines}");
    let bytes = lines.split("\"bytes\":").last().unwrap();
    let bytes: u64 = bytes.split(',').next().unwrap().parse().unwrap();
    assert!(bytes <= 8 * MIB, "{lines}");
    assert_same(&site.local("file"), &site.served("file"), &[]);
}

#[test]
fn a_change_of_the_source_is_noticed_before_the_rest_is_quick() {
    let site = slow_site();
    content::write(&site.served("file"), 16 * MIB).unwrap();
    let served = site.served("file");
    let change = AtomicBool::new(true);
    let changes = move |line: &str| {
        if line.starts_with("REST") && change.swap(false, Ordering::Relaxed) {
            fs::write(&served, vec![7; 16 << 20]).unwrap();
            let file = File::options().write(true).open(&served).unwrap();
            file.set_modified(SystemTime::UNIX_EPOCH).unwrap();
        }
        true
    };
    let proxy = Proxy::start(site.server.address(), Box::new(changes));
    let url = proxy.url(&site, "file");
    let get = ["copy", "--mode", "extended", &url, "got"];
    killed(&site, &get, 12 * MIB);
    assert!(!proxy.has_heard("REST"));
    site.must(&[&get[..], &["--resume"]].concat());
    assert!(proxy.has_heard("REST"));
    assert_same(&site.served("file"), &site.local("got"), &[]);
}

#[test]
fn a_server_without_a_checksum_does_not_hold_a_file() {
    let site = slow_site();
    content::write(&site.served("file"), 16 * MIB).unwrap();
    // Until the end of the test.
    let (ends, end) = channel::<()>();
    let end = Mutex::new(end);
    let answers = move |line: &str| !line.starts_with("CKSM") || end.lock().unwrap().recv().is_ok();
    let proxy = Proxy::start(site.server.address(), Box::new(answers));
    let url = proxy.url(&site, "file");
    let get = ["copy", "--mode", "extended", &url, "got"];
    killed(&site, &get, 8 * MIB);
    // There is something to compare.
    let unfinished = site.local(".got.gridhaul-blocks");
    let unfinished = File::options().write(true).open(unfinished).unwrap();
    unfinished.set_len(16 * MIB).unwrap();
    let started = Instant::now();
    site.must(&[&get[..], &["--resume", "--stall-timeout", "3"]].concat());
    drop(ends);
    // A reply to a command has a minute.
    assert!(started.elapsed() < Duration::from_secs(40));
    assert_same(&site.served("file"), &site.local("got"), &[]);
}

#[test]
fn a_journal_does_not_trust_a_copy_with_wrong_content() {
    let site = slow_site();
    content::write(&site.local("file"), 16 * MIB).unwrap();
    let url = site.server.url("file");
    let put = ["copy", "--mode", "extended", "--retry", "0", "file", &url];
    let mut command = site.command(&put);
    let mut child = command.stderr(Stdio::null()).spawn().unwrap();
    while recorded(&site).is_none() {
        assert_eq!(child.try_wait().unwrap(), None);
        thread::sleep(Duration::from_millis(5));
    }
    let file = File::options()
        .write(true)
        .open(site.local("file"))
        .unwrap();
    file.set_modified(SystemTime::UNIX_EPOCH).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(1));
    assert_eq!(recorded(&site), None);
}
