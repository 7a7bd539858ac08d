//! The confinement of each process on this kernel.

use gridhaul_sandbox::{has_seccomp_filters, landlock_abi};

use super::report::Report;
use crate::config::Config;

pub(super) fn check(report: &mut Report, config: &Config) {
    let kernel = Kernel {
        has_filters: has_seccomp_filters(),
        landlock: landlock_abi(),
    };
    kernel.judge(report);
    kernel.tell(report, "front", Files::Confined);
    kernel.tell(report, "server", Files::Confined);
    kernel.tell(report, "login", Files::Confined);
    if config.logs().next().is_some() {
        kernel.tell(report, "log", Files::Confined);
    }
    if config.security.gsi.is_some() {
        kernel.tell(report, "monitor", Files::OfChildren);
        kernel.tell(report, "broker", Files::Confined);
    }
    report.ok(
        ABOUT,
        "a systemd unit may add ProtectSystem=strict with ReadWritePaths= for what is written, PrivateTmp=yes, \
         ProtectKernelTunables=yes, ProtectKernelModules=yes, ProtectControlGroups=yes, ProtectClock=yes, \
         RestrictNamespaces=yes and LockPersonality=yes",
    );
}

const ABOUT: &str = "sandbox";

struct Kernel {
    has_filters: bool,
    landlock: Option<i32>,
}

#[derive(Clone, Copy)]
enum Files {
    /// By Landlock.
    Confined,
    /// Children of the process open any directory, and would lack the rights that it gave up.
    OfChildren,
}

impl Kernel {
    fn judge(&self, report: &mut Report) {
        if !self.has_filters {
            report.warning(
                ABOUT,
                "the kernel has no seccomp filters: processes may make any system call, and those of local \
                 accounts do not start; it needs CONFIG_SECCOMP_FILTER",
            );
        }
        if self.landlock.is_none() {
            report.warning(
                ABOUT,
                "the kernel has no Landlock, or it is off: accounts are kept in their directories by path \
                 resolution alone, and the server may open what its account may; Linux 5.19 and later have \
                 it, with landlock in the lsm= list",
            );
        }
    }

    /// The confinement of one process.
    fn tell(&self, report: &mut Report, process: &str, files: Files) {
        let calls = if self.has_filters {
            "seccomp"
        } else {
            "no seccomp"
        };
        let files = match (files, self.landlock) {
            (Files::OfChildren, _) => {
                "no Landlock, as its children open directories of any account".to_owned()
            }
            (Files::Confined, Some(version)) => format!("Landlock (ABI {version})"),
            (Files::Confined, None) => "no Landlock".to_owned(),
        };
        report.ok(ABOUT, format!("{process}: no_new_privs, {calls}, {files}"));
    }
}

#[cfg(test)]
mod tests {
    use super::super::report::Verdict;
    use super::*;

    fn lines(kernel: &Kernel, process: &str, files: Files) -> (usize, String) {
        let mut report = Report::default();
        kernel.judge(&mut report);
        kernel.tell(&mut report, process, files);
        let mut text = Vec::new();
        report.write(&mut text).expect("written");
        let text = String::from_utf8(text).expect("UTF-8");
        (report.count(Verdict::Warning), text)
    }

    #[test]
    fn a_kernel_that_has_everything_is_told_by_process() {
        let kernel = Kernel {
            has_filters: true,
            landlock: Some(7),
        };
        let (warnings, text) = lines(&kernel, "server", Files::Confined);
        assert_eq!(warnings, 0, "{text}");
        assert!(
            text.contains("sandbox: server: no_new_privs, seccomp, Landlock (ABI 7)\n"),
            "{text}"
        );
        let (_, text) = lines(&kernel, "monitor", Files::OfChildren);
        assert!(
            text.contains("monitor: no_new_privs, seccomp, no Landlock, as"),
            "{text}"
        );
    }

    #[test]
    fn what_a_kernel_lacks_is_a_warning() {
        let kernel = Kernel {
            has_filters: false,
            landlock: None,
        };
        let (warnings, text) = lines(&kernel, "server", Files::Confined);
        assert_eq!(warnings, 2, "{text}");
        assert!(text.contains("CONFIG_SECCOMP_FILTER"), "{text}");
        assert!(
            text.contains("no_new_privs, no seccomp, no Landlock\n"),
            "{text}"
        );
    }
}
