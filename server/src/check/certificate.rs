//! The server's own certificate.

use std::cell::Cell;
use std::time::{Duration, SystemTime};

use gridhaul_security::certificate::{Certificate, Validity};
use gridhaul_security::credential::Credential;
use gridhaul_security::files::{OwnRights, open_file, read_encrypted_credential};
use gridhaul_security::trust::TrustStore;
use jiff::Timestamp;

use super::files::check_read_again;
use super::report::{Report, Verdict, counted};
use crate::config::HostFiles;
use crate::security::Passphrase;

const ABOUT: &str = "certificate";

/// How long before the end of the validity a warning is due: enough time to get a new certificate.
const SOON: Duration = Duration::from_secs(30 * 24 * 3600);

/// Checks whether clients will accept the certificate, and returns it. It assumes that clients trust the same authorities as `trust`.
/// A certificate whose key has a passphrase that must be asked for is examined only if `may_ask`.
pub(super) fn check(
    report: &mut Report,
    (files, may_ask): (&HostFiles, bool),
    trust: Option<&TrustStore>,
    (host, user): (&str, &str),
    now: SystemTime,
) -> Option<Credential> {
    let passphrase = Passphrase::new(files.passphrase.as_deref(), None);
    let is_encrypted = Cell::new(false);
    let unlock = || {
        is_encrypted.set(true);
        passphrase.of(&files.key, &OwnRights, may_ask)
    };
    let credential =
        match read_encrypted_credential(&files.certificates, &files.key, open_file, unlock) {
            Ok(credential) => credential,
            Err(_) if is_encrypted.get() && files.passphrase.is_none() && !may_ask => return None,
            Err(error) => {
                report.error(ABOUT, error);
                return None;
            }
        };
    let leaf = credential.leaf();
    report.ok(
        ABOUT,
        format!(
            "{} is {}, with its key",
            files.certificates.display(),
            leaf.subject().one_line()
        ),
    );
    if is_encrypted.get() {
        check_passphrase(report, files, user);
    }
    let (verdict, text) = lifetime(leaf.validity(), now);
    report.add(verdict, ABOUT, format!("it {text}"));
    if verdict == Verdict::Error {
        return Some(credential);
    }
    if let Some(trust) = trust {
        match trust.validate(credential.chain(), now) {
            Ok(peer) => {
                let anchor = peer.chain.last().unwrap_or(leaf).subject();
                report.ok(ABOUT, format!("its chain leads to {}", anchor.one_line()));
            }
            Err(error) => report.error(
                ABOUT,
                format!("its chain does not hold against the trust directory: {error}"),
            ),
        }
    }
    check_names(report, leaf, host);
    Some(credential)
}

fn check_passphrase(report: &mut Report, files: &HostFiles, user: &str) {
    match &files.passphrase {
        Some(file) => {
            report.ok(ABOUT, format!("the passphrase of its key is in {}", file.display()));
            check_read_again(report, "key-passphrase", file, user);
        }
        None => report.warning(
            ABOUT,
            "its key is encrypted, so the server asks for the passphrase at the terminal when it starts, and cannot start without \
             one: set key-passphrase",
        ),
    }
}

/// Clients compare the name in the URL with the DNS names, or with the CN if there are none.
pub(crate) fn check_names(report: &mut Report, leaf: &Certificate, host: &str) {
    let names = leaf.dns_names();
    if names.is_empty() {
        let name = leaf.subject().first_common_name().unwrap_or_default();
        return report.warning(
            ABOUT,
            format!(
                "it has no DNS name (subjectAltName): clients may connect to '{name}', its CN, and \
                 many accept none without; get one with the host's name"
            ),
        );
    }
    let listed = names.join(", ");
    if names.iter().any(|name| covers(name, host)) {
        report.ok(ABOUT, format!("clients may connect to {listed}"));
    } else {
        report.warning(
            ABOUT,
            format!(
                "this host is called {host}, and the certificate is for {listed}: clients must connect \
                 to one of these names"
            ),
        );
    }
}

/// Whether a name in a certificate matches this host, whose own name may lack its domain.
fn covers(name: &str, host: &str) -> bool {
    let Some((first, domain)) = name.split_once('.') else {
        return name.eq_ignore_ascii_case(host);
    };
    match host.split_once('.') {
        None => first == "*" || first.eq_ignore_ascii_case(host),
        Some((_, own)) if first == "*" => domain.eq_ignore_ascii_case(own),
        Some(_) => name.eq_ignore_ascii_case(host),
    }
}

/// The verdict on a validity period, with a text that follows a subject (`the certificate ...`).
pub(crate) fn lifetime(validity: Validity, now: SystemTime) -> (Verdict, String) {
    let Validity {
        not_before,
        not_after,
    } = validity;
    if now < not_before {
        let text = format!(
            "is not valid before {}, and the clock says {}: set the clock, or wait",
            time(not_before),
            time(now)
        );
        return (Verdict::Error, text);
    }
    match not_after.duration_since(now) {
        Err(_) => {
            let text = format!(
                "has expired on {}: get a new one, or set the clock, which says {}",
                time(not_after),
                time(now)
            );
            (Verdict::Error, text)
        }
        Ok(left) if left < SOON => {
            let days = usize::try_from(left.as_secs() / (24 * 3600)).unwrap_or(usize::MAX);
            let text = format!(
                "expires in {}, on {}: renew it",
                counted(days, "day"),
                time(not_after)
            );
            (Verdict::Warning, text)
        }
        Ok(_) => (Verdict::Ok, format!("is valid until {}", time(not_after))),
    }
}

/// A time in UTC, to the second.
pub(crate) fn time(time: SystemTime) -> String {
    Timestamp::try_from(time).map_or_else(
        |_| "a time beyond the calendar".to_owned(),
        |time| time.strftime("%Y-%m-%d %H:%M:%S UTC").to_string(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_secs(24 * 3600);

    #[test]
    fn a_name_covers_a_host_with_or_without_its_domain() {
        for (name, host, covered) in [
            ("ftp.example.org", "ftp.example.org", true),
            ("FTP.example.org", "ftp.Example.org", true),
            ("ftp.example.org", "ftp", true),
            ("ftp.example.org", "ftp.example.com", false),
            ("ftp.example.org", "example.org", false),
            ("*.example.org", "ftp.example.org", true),
            ("*.example.org", "a.ftp.example.org", false),
            ("*.example.org", "ftp", true),
            ("localhost", "localhost", true),
            ("localhost", "ftp.example.org", false),
        ] {
            assert_eq!(covers(name, host), covered, "{name} {host}");
        }
    }

    #[test]
    fn the_end_of_a_validity_is_announced() {
        let not_before = SystemTime::UNIX_EPOCH + 1000 * DAY;
        let validity = Validity {
            not_before,
            not_after: not_before + 365 * DAY,
        };
        for (day, verdict, words) in [
            (0, Verdict::Ok, "is valid until 1973-09-27 00:00:00 UTC"),
            (340, Verdict::Warning, "expires in 25 days, on 1973-09-27"),
            (364, Verdict::Warning, "expires in 1 day, on"),
            (366, Verdict::Error, "has expired on 1973-09-27"),
        ] {
            let (found, text) = lifetime(validity, not_before + day * DAY);
            assert_eq!(found, verdict, "{text}");
            assert!(text.starts_with(words), "{text}");
        }
        let (found, text) = lifetime(validity, not_before - DAY);
        assert_eq!(found, Verdict::Error);
        assert!(text.contains("the clock says 1972-09-26"), "{text}");
    }
}
