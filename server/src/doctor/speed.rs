//! The speeds of the network, of this machine and of its disks, which bound every transfer.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{Advice, fadvise};

use super::findings::Findings;

/// The size of a piece: that of the server.
const PIECE: usize = 256 * 1024;

/// The speed of the fastest interface, in bytes per second.
pub(super) fn link(report: &mut Findings) -> Option<u64> {
    const ABOUT: &str = "network";

    let mut fastest: Option<(u64, String)> = None;
    for entry in fs::read_dir("/sys/class/net")
        .into_iter()
        .flatten()
        .flatten()
    {
        let speed = fs::read_to_string(entry.path().join("speed")).ok();
        // -1 if the driver does not know, and an error for interfaces without a cable.
        let megabits = speed.and_then(|speed| speed.trim().parse::<u64>().ok());
        let name = entry.file_name().to_string_lossy().into_owned();
        if let Some(megabits) = megabits.filter(|megabits| *megabits > 0)
            && fastest.as_ref().is_none_or(|(most, _)| megabits > *most)
        {
            fastest = Some((megabits, name));
        }
    }
    match fastest {
        Some((megabits, name)) => {
            report.ok(
                ABOUT,
                format!("the fastest interface, {name}, has {megabits} Mb/s"),
            );
            megabits.checked_mul(1_000_000 / 8)
        }
        None => {
            report.ok(
                ABOUT,
                "no interface tells its speed, as in virtual machines",
            );
            None
        }
    }
}

/// Sends zeros through the loopback interface for a moment: the kernel's limit for one channel on this machine.
pub(super) fn loopback(report: &mut Findings) {
    const ABOUT: &str = "loopback";

    match measure_loopback() {
        Ok(speed) => report.ok(
            ABOUT,
            format!(
                "one TCP channel within this machine carries {}",
                rate(speed)
            ),
        ),
        Err(error) => report.warning(
            ABOUT,
            format!("it could not be measured: {error}"),
            "bring the interface lo up, and let programs of this machine connect to 127.0.0.1",
        ),
    }
}

fn measure_loopback() -> io::Result<f64> {
    const TIME: Duration = Duration::from_millis(500);

    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let mut sender = TcpStream::connect(listener.local_addr()?)?;
    let (mut receiver, _) = listener.accept()?;
    let reading = thread::spawn(move || io::copy(&mut receiver, &mut io::sink()));
    let piece = vec![0; PIECE];
    let begun = Instant::now();
    let mut sent = 0_u64;
    while begun.elapsed() < TIME {
        sender.write_all(&piece)?;
        sent += piece.len() as u64;
    }
    drop(sender);
    // A panic of the reader cannot happen, and would only make the number too high.
    let _ = reading.join();
    Ok(sent as f64 / begun.elapsed().as_secs_f64())
}

/// Writes and reads a file in a directory, beside the speed of the network.
pub(super) fn disk(report: &mut Findings, directory: &Path, link: Option<u64>) {
    const ABOUT: &str = "disk";

    match measure_disk(directory) {
        Ok((written, read)) => {
            let text = format!(
                "{}: {} written and flushed, {} read",
                directory.display(),
                rate(written),
                rate(read)
            );
            match link.map(|link| link as f64) {
                Some(link) if written.min(read) < link => report.warning(
                    ABOUT,
                    format!(
                        "{text}: one file is slower than the network ({})",
                        rate(link)
                    ),
                    "use several transfers at a time if the storage is faster with more files, or faster storage",
                ),
                _ => report.ok(ABOUT, text),
            }
        }
        Err(error) => report.error(
            ABOUT,
            format!("{} cannot be measured: {error}", directory.display()),
            "name a directory that you may write to",
        ),
    }
}

/// Bytes per second that are written and read, with a file that has no name while it is used.
fn measure_disk(directory: &Path) -> io::Result<(f64, f64)> {
    let mut file = nameless(directory)?;
    let begun = Instant::now();
    let mut bytes = 0_u64;
    // Not zeros, which some file systems do not store.
    let piece: Vec<u8> = (0..=250).cycle().take(PIECE).collect();
    while bytes < MOST && begun.elapsed() < TIME {
        file.write_all(&piece)?;
        bytes += piece.len() as u64;
    }
    file.sync_data()?;
    let written = bytes as f64 / begun.elapsed().as_secs_f64();
    // Reads come from the disk after this, where the file system obeys.
    let _ = fadvise(&file, 0, None, Advice::DontNeed);
    file.rewind()?;
    let begun = Instant::now();
    let mut piece = vec![0; PIECE];
    let mut read = 0_u64;
    while begun.elapsed() < TIME {
        match file.read(&mut piece)? {
            0 => break,
            count => read += count as u64,
        }
    }
    Ok((
        written,
        read as f64 / begun.elapsed().as_secs_f64().max(1e-6),
    ))
}

/// The bounds of the file.
const MOST: u64 = 256 << 20;
const TIME: Duration = Duration::from_secs(5);

/// A new file whose name is removed at once, so that nothing remains if the program is killed.
fn nameless(directory: &Path) -> io::Result<File> {
    let path = directory.join(format!(".gridhaul-doctor-{}", std::process::id()));
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&path)?;
    fs::remove_file(path)?;
    Ok(file)
}

/// A speed in words.
pub(super) fn rate(bytes_per_second: f64) -> String {
    format!(
        "{:.0} MB/s ({:.1} Gb/s)",
        bytes_per_second / 1e6,
        bytes_per_second * 8.0 / 1e9
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_measured_disk_has_no_file_left() {
        let directory = tempfile::tempdir().expect("a directory");
        let (written, read) = measure_disk(directory.path()).expect("measured");
        assert!(written > 0.0 && read > 0.0);
        let left = fs::read_dir(directory.path()).expect("read").count();
        assert_eq!(left, 0);
    }
}
