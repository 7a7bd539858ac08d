//! Accounts and a file system for this test program only: a mount namespace of its own, with another account database and an
//! empty `/mnt`. The kernel removes them when the program ends.

use std::fs::{self, File, Permissions};
use std::io::Write as _;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::Path;

use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_bind, mount_change};

/// The directory of the tests.
pub(crate) const PLACE: &str = "/mnt";

/// An account of the tests. Its uid is also the gid of its group.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TestAccount {
    pub(crate) name: &'static str,
    pub(crate) uid: u32,
    shell: &'static str,
    /// The expiry date, the last field but one of its line in the shadow database.
    expires: &'static str,
}

pub(crate) const ALICE: TestAccount = TestAccount {
    name: "gridhaul-alice",
    uid: 64_001,
    shell: "/bin/sh",
    expires: "",
};
pub(crate) const BOB: TestAccount = TestAccount {
    name: "gridhaul-bob",
    uid: 64_002,
    ..ALICE
};
/// Her shell permits no login, but is executable, so she must not be refused.
pub(crate) const CAROL: TestAccount = TestAccount {
    name: "gridhaul-carol",
    uid: 64_003,
    shell: "/usr/sbin/nologin",
    expires: "99999",
};
pub(crate) const DISABLED: TestAccount = TestAccount {
    name: "gridhaul-disabled",
    uid: 64_004,
    shell: "/nonexistent/shell",
    ..ALICE
};
pub(crate) const EXPIRED: TestAccount = TestAccount {
    name: "gridhaul-expired",
    uid: 64_005,
    expires: "1",
    ..ALICE
};
/// The rules of [`PAM_SERVICE`] refuse him.
pub(crate) const BARRED: TestAccount = TestAccount {
    name: "gridhaul-barred",
    uid: 64_006,
    ..ALICE
};
const ALL: [TestAccount; 6] = [ALICE, BOB, CAROL, DISABLED, EXPIRED, BARRED];

/// A PAM service with a rule of its own in addition to those of the account database.
pub(crate) const PAM_SERVICE: &str = "gridhaul-tests";

/// A supplementary group of Alice and Bob.
pub(crate) const TEAM: (&str, u32) = ("gridhaul-team", 64_010);

/// Must be called before there is a second thread.
pub(crate) fn arrange() -> Result<(), String> {
    let failed = |what: &'static str| {
        move |error: rustix::io::Errno| format!("{what} is not possible here: {error}")
    };
    // SAFETY: no memory safety depends on the mount namespace, and there is one thread.
    unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNS) }
        .map_err(failed("a mount namespace"))?;
    mount_change(
        "/",
        MountPropagationFlags::PRIVATE | MountPropagationFlags::REC,
    )
    .map_err(failed("a private mount"))?;
    mount("none", PLACE, "tmpfs", MountFlags::empty(), None).map_err(failed("a tmpfs"))?;
    extend().map_err(|error| format!("another account database is not possible: {error}"))?;
    describe_service().map_err(|error| format!("another PAM service is not possible: {error}"))?;
    for account in ALL {
        let home = account.home();
        let made = fs::create_dir_all(&home)
            .and_then(|()| chown(&home, Some(account.uid), Some(account.uid)))
            .and_then(|()| fs::set_permissions(&home, Permissions::from_mode(0o700)));
        made.map_err(|error| format!("{home}: {error}"))?;
    }
    Ok(())
}

impl TestAccount {
    pub(crate) fn home(self) -> String {
        format!("{PLACE}/home/{}", self.name)
    }
}

/// Mounts another directory over that of PAM's services.
fn describe_service() -> std::io::Result<()> {
    let services = Path::new(PLACE).join("pam.d");
    fs::create_dir(&services)?;
    let barred = BARRED.name;
    let rules = format!(
        "account required pam_succeed_if.so quiet user != {barred}\naccount required pam_unix.so\n"
    );
    fs::write(services.join(PAM_SERVICE), rules)?;
    mount_bind(&services, "/etc/pam.d")?;
    Ok(())
}

/// Mounts copies with further lines over the files of the account database.
fn extend() -> std::io::Result<()> {
    let mut users = String::new();
    let mut secrets = String::new();
    let mut groups = format!("{}:x:{}:{},{}\n", TEAM.0, TEAM.1, ALICE.name, BOB.name);
    for account in ALL {
        let TestAccount {
            name, uid, shell, ..
        } = account;
        users += &format!("{name}:x:{uid}:{uid}::{}:{shell}\n", account.home());
        secrets += &format!("{name}:!:19000:::::{}:\n", account.expires);
        groups += &format!("{name}:x:{uid}:\n");
    }
    for (file, lines) in [("passwd", users), ("shadow", secrets), ("group", groups)] {
        let original = Path::new("/etc").join(file);
        let copy = Path::new(PLACE).join(file);
        fs::copy(&original, &copy)?;
        File::options()
            .append(true)
            .open(&copy)?
            .write_all(lines.as_bytes())?;
        mount_bind(&copy, &original)?;
    }
    Ok(())
}
