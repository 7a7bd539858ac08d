//! What decides about identities beside the maps and rules: ban lists, pools of accounts, and callouts.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Read as _;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;

use gridhaul_accounts::count_pool;
use gridhaul_security::files::{BanListFile, OwnRights};

use super::files::{check_exposed, check_read_again};
use super::report::{Report, counted};
use crate::config::{Callout, Config, Gsi};
use crate::privileges;
use crate::security::{GsiAuthz, read_gsi_authz};
use crate::validate::Validated;

pub(super) fn check(report: &mut Report, validated: &Validated, gsi: &Gsi) {
    let config = &validated.config;
    check_gsi_authz(report, config, gsi);
    if !validated.is_wrong("ban-list") {
        for path in &gsi.ban_lists {
            check_ban_list(report, config, gsi, path);
        }
    }
    if let Some(callout) = &config.authz_callout
        && !validated.is_wrong("authz-callout")
    {
        check_callout(report, config, callout);
    }
}

fn check_gsi_authz(report: &mut Report, config: &Config, gsi: &Gsi) {
    const ABOUT: &str = "gsi-authz";
    match read_gsi_authz(gsi, config.authz_callout.is_some(), &OwnRights) {
        Err(error) => report.error(ABOUT, error),
        Ok(GsiAuthz::NoCallouts) => {}
        Ok(GsiAuthz::Replaced(line)) => report.ok(
            ABOUT,
            format!(
                "authz-callout takes the place of the callout in {}, line {}",
                line.path.display(),
                line.number
            ),
        ),
        Ok(GsiAuthz::Ignored(line)) => report.warning(
            ABOUT,
            format!(
                "the callout in {}, line {}, is ignored (ignore-gsi-authz): users whom it bans may get in",
                line.path.display(),
                line.number
            ),
        ),
    }
}

fn check_ban_list(report: &mut Report, config: &Config, gsi: &Gsi, path: &Path) {
    const ABOUT: &str = "ban-list";
    let shown = path.display();
    let list = match BanListFile::open_with(path, Arc::new(OwnRights)) {
        Ok(file) => file.current(),
        Err(error) => {
            let text = format!("{error}. Until it is repaired, no user logs in with a certificate");
            return report.error(ABOUT, text);
        }
    };
    report.ok(
        ABOUT,
        format!("{shown} has {}", counted(list.len(), "line")),
    );
    if list.has_attributes() && gsi.vomsdir.is_none() {
        let text = format!(
            "{shown} bans by attribute or virtual organization, and there is no vomsdir, so these lines refuse no user: set \
             vomsdir"
        );
        report.error(ABOUT, text);
    }
    check_exposed(report, ABOUT, path, "remove their bans");
    check_read_again(report, ABOUT, path, &config.user);
}

/// Takes the pools out of the accounts that the map and the rules name, and checks that they have accounts.
pub(super) fn check_pools(
    report: &mut Report,
    config: &Config,
    accounts: &mut BTreeMap<String, String>,
) {
    const ABOUT: &str = "gridmapdir";
    let is_pool = |account: &String| account.starts_with('.');
    let named: BTreeSet<String> = accounts
        .keys()
        .filter(|one| is_pool(one))
        .cloned()
        .collect();
    accounts.retain(|account, _| !is_pool(account));
    if named.is_empty() {
        return;
    }
    let Some(directory) = &config.accounts.monitor.gridmapdir else {
        let pools = Vec::from_iter(named).join(", ");
        let text = format!("there is none, so no user gets an account of {pools}: set gridmapdir");
        return report.error(ABOUT, text);
    };
    if !rustix::process::geteuid().is_root() {
        let text =
            "pools of accounts need a server that is started as root: run this check as root";
        return report.warning(ABOUT, text);
    }
    let shown = directory.display();
    for pool in named {
        match count_pool(directory, pool.trim_start_matches('.')) {
            Err(error) => return report.error(ABOUT, format!("{shown}: {error}")),
            Ok((0, _)) => {
                let text =
                    format!("{shown} has no account of {pool}: create an empty file for each");
                report.error(ABOUT, text);
            }
            Ok((all, 0)) => {
                let text = format!(
                    "all {} of {pool} in {shown} are leased: new users are refused",
                    counted(all, "account")
                );
                report.warning(ABOUT, text);
            }
            Ok((all, free)) => {
                let text = format!(
                    "{free} of {} of {pool} in {shown} are free",
                    counted(all, "account")
                );
                report.ok(ABOUT, text);
            }
        }
    }
}

/// The interpreter of a script, if it cannot be run. The kernel reads it up to a space, so a carriage return is a part of it.
fn missing_interpreter(script: &Path) -> Option<String> {
    /// The kernel reads this much (`BINPRM_BUF_SIZE`).
    const MOST: u64 = 256;

    let mut first = Vec::new();
    let file = fs::File::open(script).ok()?;
    file.take(MOST).read_to_end(&mut first).ok()?;
    let line = first.strip_prefix(b"#!")?;
    let line = line.split(|byte| *byte == b'\n').next()?;
    let line = String::from_utf8_lossy(line);
    let mut words = line.split([' ', '\t']).filter(|word| !word.is_empty());
    let interpreter = words.next().unwrap_or_default();
    let can_run = fs::metadata(interpreter)
        .is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0);
    (!can_run).then(|| interpreter.to_owned())
}

fn check_callout(report: &mut Report, config: &Config, callout: &Callout) {
    const ABOUT: &str = "authz-callout";
    let path = callout.path();
    let shown = path.display();
    let metadata = match fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(error) => {
            let text =
                format!("{shown}: {error}. Until it is there, no user logs in with a certificate");
            return report.error(ABOUT, text);
        }
    };
    let mode = metadata.permissions().mode();
    match callout {
        Callout::Program(_) if !metadata.is_file() || mode & 0o111 == 0 => {
            return report.error(ABOUT, format!("{shown} is not an executable program"));
        }
        Callout::Program(_) => {
            check_exposed(report, ABOUT, path, "permit themselves");
            if let Some(interpreter) = missing_interpreter(path) {
                let text = format!(
                    "{shown}: its interpreter in line 1, {interpreter}, is not an executable program, so no user logs in with \
                     a certificate: correct the line, or install it"
                );
                return report.error(ABOUT, text);
            }
        }
        Callout::Socket(_) if !metadata.file_type().is_socket() => {
            return report.error(ABOUT, format!("{shown} is not a UNIX socket"));
        }
        Callout::Socket(_) => {}
    }
    let is_root = rustix::process::geteuid().is_root();
    if is_root && !privileges::may_reach(&config.user, path) {
        let text = format!(
            "{} may not reach {shown}, and asks it: correct the permissions",
            config.user
        );
        return report.error(ABOUT, text);
    }
    report.ok(
        ABOUT,
        format!("{shown} is asked about each login with a certificate"),
    );
}
