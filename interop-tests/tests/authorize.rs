//! Authorization by virtual organization: rules of the configuration file, and attributes that
//! voms-proxy-fake signs.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use gridhaul_interop::{Client, Finished, Kind, Launch, Pki, Server, UserKind, chown_to_nobody};

/// Copies as a user.
fn copy(user: UserKind, source: &str, destination: &str) -> Finished {
    Client::new("globus-url-copy")
        .args([source, destination])
        .envs(Pki::shared().unwrap().environment(user))
        .run()
        .unwrap()
}

/// The content of the file that is in every root, as this user reads it.
fn get(server: &Server, user: UserKind, local: &Path) -> String {
    let copied = copy(
        user,
        &server.url("whose"),
        &format!("file://{}", local.display()),
    );
    assert!(copied.status.success(), "{copied}\n{}", server.log());
    fs::read_to_string(local).unwrap()
}

#[test]
fn attributes_decide_which_rule_applies() {
    let pki = Pki::shared().unwrap();
    let place = tempfile::tempdir().unwrap();
    fs::set_permissions(place.path(), Permissions::from_mode(0o755)).unwrap();
    for name in ["production", "default"] {
        let root = place.path().join(name);
        fs::create_dir(&root).unwrap();
        fs::write(root.join("whose"), name).unwrap();
        chown_to_nobody(&root).unwrap();
    }
    let account = &pki.accounts().first;
    let rules = format!(
        "[[authorize]]\nvo = \"testvo\"\nfqan = \"/testvo/production\"\naccount = \"{account}\"\n\
         root = \"{place}/production\"\n\n\
         [[authorize]]\nidentity = \"*\"\nmap = true\nroot = \"{place}/default\"\nread-only = true\n",
        place = place.path().display()
    );
    let config = place.path().join("config.toml");
    fs::write(&config, rules).unwrap();
    let server = Launch::new(Kind::Gridhaul, place.path())
        .gsi(pki)
        .arg("--config")
        .arg(&config)
        .start()
        .unwrap();

    let local = place.path().join("local");
    assert_eq!(get(&server, UserKind::Voms, &local), "production");
    assert_eq!(get(&server, UserKind::Plain, &local), "default");
    let source = format!("file://{}", local.display());
    let put = |user| copy(user, &source, &server.url("new"));
    let stored = put(UserKind::Voms);
    assert!(stored.status.success(), "{stored}\n{}", server.log());
    assert!(place.path().join("production/new").exists());
    let refused = put(UserKind::Plain);
    assert!(!refused.status.success(), "{refused}");
    assert!(!place.path().join("default/new").exists());
}
