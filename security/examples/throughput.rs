//! Prints the rate at which one core protects bulk data, compared with plain AES-256-GCM. Each rate is that of the fastest
//! block, so that other load on the machine has little effect.
//!
//!     cargo run --release -p gridhaul-security --example throughput

use std::error::Error;
use std::hint::black_box;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use gridhaul_security::files::read_credential;
use gridhaul_security::tls::{TlsEngine, TlsError, TlsSettings, TlsVersions, record_length};
use gridhaul_security::trust::TrustBuilder;

/// The block size of a worker thread.
const BLOCK: usize = 256 << 10;
const FRAGMENT: usize = 16 << 10;
const TAG: usize = 16;
const TIME: Duration = Duration::from_secs(2);

fn main() -> Result<(), Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    let settings = settings(directory.path())?;
    let (seal, open) = bare()?;
    println!("bare AES-256-GCM          seal {seal:6.0} MB/s   open {open:6.0} MB/s");
    for (name, versions) in [
        ("TLS 1.3", TlsVersions::Only13),
        ("TLS 1.2", TlsVersions::Only12),
    ] {
        let settings = TlsSettings {
            versions,
            ..settings.clone()
        };
        let (wrap, advance, in_place) = engine(&settings)?;
        for (call, rate, bare) in [
            ("wrap", wrap, seal),
            ("advance", advance, open),
            ("open_in_place", in_place, open),
        ] {
            println!(
                "{name} {call:14} {rate:6.0} MB/s   {:3.0} %",
                100.0 * rate / bare
            );
        }
    }
    Ok(())
}

/// The rate in MB/s of an operation on one block.
fn rate(mut work: impl FnMut() -> Result<(), Box<dyn Error>>) -> Result<f64, Box<dyn Error>> {
    let mut fastest = Fastest::default();
    let start = Instant::now();
    while start.elapsed() < TIME {
        fastest.time(&mut work)?;
    }
    Ok(fastest.rate())
}

/// The time for the fastest block.
struct Fastest(Duration);

impl Default for Fastest {
    fn default() -> Self {
        Self(Duration::MAX)
    }
}

impl Fastest {
    fn time<T, E>(&mut self, work: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
        let start = Instant::now();
        let result = work();
        self.0 = self.0.min(start.elapsed());
        result
    }

    /// In MB/s.
    fn rate(&self) -> f64 {
        BLOCK as f64 / self.0.as_secs_f64() / 1e6
    }
}

fn bare() -> Result<(f64, f64), Box<dyn Error>> {
    let key = LessSafeKey::new(UnboundKey::new(&AES_256_GCM, &[7; 32])?);
    let nonce = || Nonce::assume_unique_for_key([7; 12]);
    let plaintext = vec![7; BLOCK];
    let mut sealed = vec![0; BLOCK / FRAGMENT * (FRAGMENT + TAG)];
    let seal = rate(|| {
        for (fragment, record) in plaintext
            .chunks(FRAGMENT)
            .zip(sealed.chunks_mut(FRAGMENT + TAG))
        {
            let (ciphertext, tag) = record.split_at_mut(fragment.len());
            key.seal_out_of_place_scatter(nonce(), Aad::empty(), fragment, ciphertext, &[], tag)?;
        }
        black_box(&mut sealed);
        Ok(())
    })?;
    let mut opened = vec![0; BLOCK];
    let open = rate(|| {
        for (fragment, record) in opened
            .chunks_mut(FRAGMENT)
            .zip(sealed.chunks(FRAGMENT + TAG))
        {
            let (ciphertext, tag) = record.split_at(fragment.len());
            key.open_separate_gather(nonce(), Aad::empty(), ciphertext, tag, fragment)?;
        }
        black_box(&mut opened);
        Ok(())
    })?;
    Ok((seal, open))
}

/// The rates in MB/s of `wrap`, `advance` and `open_in_place`. Records can be opened only once, so both sides alternate.
fn engine(settings: &TlsSettings) -> Result<(f64, f64, f64), Box<dyn Error>> {
    let mut connector = TlsEngine::connector(settings)?;
    let mut acceptor = TlsEngine::acceptor(settings)?;
    let (mut records, mut plaintext) = (Vec::new(), Vec::new());
    let mut answer = Vec::new();
    while connector.is_handshaking() || acceptor.is_handshaking() {
        records.clear();
        connector.advance(&answer, &mut records, &mut plaintext)?;
        answer.clear();
        acceptor.advance(&records, &mut answer, &mut plaintext)?;
    }
    connector.advance(&answer, &mut Vec::new(), &mut plaintext)?;

    let block = vec![7; BLOCK];
    let [mut wrap, mut advance, mut in_place] = [(); 3].map(|()| Fastest::default());
    let start = Instant::now();
    while start.elapsed() < TIME {
        records.clear();
        plaintext.clear();
        wrap.time(|| connector.wrap(&block, &mut records))?;
        advance.time(|| acceptor.advance(&records, &mut answer, &mut plaintext))?;
        black_box(&mut plaintext);
        records.clear();
        connector.wrap(&block, &mut records)?;
        in_place.time(|| -> Result<(), TlsError> {
            let mut rest = records.as_mut_slice();
            while let Some(length) = record_length(rest) {
                let (record, following) = rest.split_at_mut(length);
                black_box(acceptor.open_in_place(record, &mut answer)?);
                rest = following;
            }
            Ok(())
        })?;
    }
    Ok((wrap.rate(), advance.rate(), in_place.rate()))
}

/// Settings with a self-signed certificate, which is its own anchor.
fn settings(directory: &Path) -> Result<TlsSettings, Box<dyn Error>> {
    let certificate = directory.join("cert.pem");
    let key = directory.join("key.pem");
    let status = Command::new("openssl")
        .args(["req", "-x509", "-nodes", "-subj", "/CN=throughput"])
        .args(["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"])
        .args(["-addext", "basicConstraints=critical,CA:FALSE"])
        .arg("-keyout")
        .arg(&key)
        .arg("-out")
        .arg(&certificate)
        .status()?;
    if !status.success() {
        return Err("openssl made no certificate".into());
    }
    let credential = read_credential(&certificate, &key)?;
    let (trust, _) = TrustBuilder::default().build();
    let trust = trust.with_anchors(credential.chain());
    Ok(TlsSettings::new(Arc::new(credential), Arc::new(trust)))
}
