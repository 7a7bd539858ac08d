//! `gridhaul proxy`: its proxies with both servers, and with the programs of Globus, VOMS and OpenSSL.

mod renewed;
mod user;

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use gridhaul_interop::{BadKind, Kind, UserKind, chown_to_nobody};

use self::user::{User, must, pki, run, text};
use super::scripted::{fails, gridhaul};
use super::site::{Site, assert_same, texts};
use super::terminal::Terminal;

#[test]
fn both_servers_accept_the_proxies_of_both_clients() {
    let user = User::new();
    for kind in [Kind::Gridhaul, Kind::Globus] {
        let site = Site::gsi(kind, &[]);
        let mut kinds = vec![
            ("full", &[][..]),
            ("limited", &["--limited"]),
            ("long", &["--bits", "3072"]),
        ];
        // globus-gridftp-server asks for a delegated RSA key of as many bits as the key of the proxy has, here 256.
        if kind == Kind::Gridhaul {
            kinds.push(("ec", &["--ec", "--hours", "1"]));
        }
        for (name, options) in kinds {
            let (proxy, _) = user.create(name, options);
            let url = site.server.url(name);
            site.must(&["copy", "--proxy", &proxy, "source", &url]);
            assert_same(&site.local("source"), &site.served(name), options);

            let theirs = format!("{name}-theirs");
            let source = format!("file://{}", site.local("source").display());
            let mut command = Command::new("globus-url-copy");
            command
                .args([&source, &site.server.url(&theirs)])
                .envs(pki().environment_of(Path::new(&proxy)));
            must(&mut command);
            assert_same(&site.local("source"), &site.served(&theirs), options);
        }
    }
}

#[test]
fn other_programs_read_the_proxies() {
    let user = User::new();
    let identity = &pki().user(UserKind::Plain).subject;
    for (options, theirs, ours) in [
        (
            &[][..],
            "RFC 3820 compliant impersonation proxy",
            "RFC 3820 proxy",
        ),
        (
            &["--limited"],
            "RFC 3820 compliant limited proxy",
            "RFC 3820 limited proxy",
        ),
    ] {
        let (proxy, said) = user.create("proxy", options);
        assert!(said.contains(identity.as_str()), "{said}");
        let shown = succeeds(&["proxy", "show", &proxy]);
        for line in [
            format!("identity   {identity}\n"),
            format!("type       {ours}\n"),
            "key        RSA, 2048 bits\n".to_owned(),
        ] {
            assert!(shown.contains(&line), "{line}: {shown}");
        }
        let of_globus = run("grid-proxy-info", &["-file", &proxy]);
        assert!(of_globus.contains(theirs), "{of_globus}");
        assert!(
            of_globus.contains(&format!("identity : {identity}\n")),
            "{of_globus}"
        );
        run(
            "grid-proxy-info",
            &["-file", &proxy, "-exists", "-valid", "11:30"],
        );
        let of_voms = run("voms-proxy-info", &["-file", &proxy, "-all"]);
        assert!(of_voms.contains(identity.as_str()), "{of_voms}");
        let authority = text(&pki().authority());
        run(
            "openssl",
            &[
                "verify",
                "-allow_proxy_certs",
                "-CAfile",
                &authority,
                "-untrusted",
                &proxy,
                &proxy,
            ],
        );
    }
}

fn succeeds(arguments: &[&str]) -> String {
    let output = gridhaul(arguments);
    let (stdout, stderr) = texts(&output);
    assert!(output.status.success(), "{arguments:?}: {stdout}{stderr}");
    stdout
}

#[test]
fn keys_may_be_encrypted_in_each_way_of_openssl() {
    let user = User::new();
    let right = user.write("right", "secret word\n");
    let wrong = user.write("wrong", "secret\n");
    let open = user.write("open", "secret word\n");
    fs::set_permissions(&open, Permissions::from_mode(0o644)).unwrap();
    for (name, command) in [
        ("pkcs8", &["pkcs8", "-topk8"][..]),
        ("pkcs8-des", &["pkcs8", "-topk8", "-v2", "des3"]),
        ("traditional", &["rsa", "-aes256", "-traditional"]),
        ("traditional-des", &["rsa", "-des3", "-traditional"]),
    ] {
        let key = user.encrypted(name, command);
        let out = user.file("proxy");
        succeeds(
            &[
                &user.arguments(&key, &out)[..],
                &["--passphrase-file", &right],
            ]
            .concat(),
        );
        succeeds(&["proxy", "show", &out]);
        let error = user.refuses(&key, &["--passphrase-file", &wrong]);
        assert!(
            error.contains("the passphrase of the private key is wrong"),
            "{name}: {error}"
        );
        let error = user.refuses(&key, &["--passphrase-file", &open]);
        assert!(error.contains("chmod 0600"), "{error}");
        let error = user.refuses(&key, &[]);
        assert!(error.contains("--passphrase-file FILE"), "{error}");
    }
}

#[test]
fn a_passphrase_is_typed_without_echo() {
    let user = User::new();
    let key = user.encrypted("key", &["rsa", "-aes128", "-traditional"]);
    let out = user.file("proxy");
    let words = user.arguments(&key, &out).join(" ");
    let command = format!("{} {words}", env!("CARGO_BIN_EXE_gridhaul"));
    let prompt = format!("Passphrase of {key}: ");
    let shown = Terminal::start(&command).answer(&prompt, "secret word\n");
    assert!(!shown.contains("secret word"), "{shown}");
    succeeds(&["proxy", "show", &out]);
}

#[test]
fn a_key_that_others_read_is_refused() {
    let user = User::new();
    let key = user.write("key", fs::read(&user.key).unwrap());
    fs::set_permissions(&key, Permissions::from_mode(0o640)).unwrap();
    let error = user.refuses(&key, &[]);
    assert!(error.contains("chmod 0600"), "{error}");
}

#[test]
fn certificates_that_are_not_valid_make_no_proxies() {
    let user = User::new();
    for (kind, reason) in [
        (BadKind::Expired, "has expired"),
        (BadKind::NotYetValid, "in the future"),
    ] {
        let file = text(&pki().bad(kind).credential);
        let out = user.file("refused");
        let error = fails(&["proxy", "create", "--cert", &file, "--out", &out]);
        assert!(error.contains(reason), "{error}");
        assert!(!Path::new(&out).exists());
    }
}

#[test]
fn a_proxy_ends_with_the_certificate_at_the_latest() {
    let user = User::new();
    let (proxy, said) = user.create("proxy", &["--hours", "8760"]);
    assert!(said.contains("the certificate is valid for"), "{said}");
    succeeds(&["proxy", "show", "--hours", "24", &proxy]);
    let (_, said) = user.create("short", &["--hours", "1"]);
    assert!(!said.contains("the certificate is valid for"), "{said}");
    assert!(said.contains("(1 h 0 min left)"), "{said}");
}

#[test]
fn a_limited_proxy_makes_limited_proxies_only() {
    let user = User::new();
    let (limited, _) = user.create("limited", &["--limited"]);
    let below = user.file("below");
    let create = ["proxy", "create", "--cert", &limited, "--out", &below];
    let error = fails(&create);
    assert!(
        error.contains("a limited proxy cannot issue a full one"),
        "{error}"
    );
    succeeds(&[&create[..], &["--limited"]].concat());
    let shown = succeeds(&["proxy", "show", "--json", &below]);
    assert!(
        shown.contains(r#""type":"RFC 3820 limited proxy""#),
        "{shown}"
    );
    let identity = &pki().user(UserKind::Plain).subject;
    assert!(
        shown.contains(&format!(r#""identity":"{identity}""#)),
        "{shown}"
    );
}

#[test]
fn the_exit_status_says_whether_a_proxy_can_be_used() {
    let user = User::new();
    let error = fails(&["proxy", "show", &user.file("missing")]);
    assert!(error.contains("gridhaul proxy create"), "{error}");
    let expired = text(&pki().bad(BadKind::ProxyExpired).credential);
    let error = fails(&["proxy", "show", &expired]);
    assert!(error.contains("has expired"), "{error}");
    let (proxy, _) = user.create("proxy", &["--hours", "2"]);
    succeeds(&["proxy", "show", "--hours", "1", &proxy]);
    let error = fails(&["proxy", "show", "--hours", "3", &proxy]);
    assert!(error.contains("1 h 59 min only"), "{error}");
}

#[test]
fn a_key_is_not_destroyed_as_a_proxy() {
    let user = User::new();
    let both = [&user.certificate, &user.key].map(|file| fs::read_to_string(file).unwrap());
    let both = user.write("both", both.concat());
    let error = fails(&["proxy", "destroy", &both]);
    assert!(error.contains("no proxy"), "{error}");
    let error = fails(&["proxy", "destroy", &user.key]);
    assert!(error.contains("only proxies are overwritten"), "{error}");
    assert!(fs::read_to_string(&both).unwrap().contains("PRIVATE KEY"));
    assert!(
        fs::read_to_string(&user.key)
            .unwrap()
            .contains("PRIVATE KEY")
    );
    // A pipe is not waited for.
    let pipe = user.file("pipe");
    assert!(
        Command::new("mkfifo")
            .arg(&pipe)
            .status()
            .unwrap()
            .success()
    );
    let (url, null) = ("gsiftp://127.0.0.1:1/a", "file:///dev/null");
    for words in [
        &["proxy", "show", &pipe][..],
        &["sum", "--proxy", &pipe, "md5", url],
        &["guc", "-data-cred", &pipe, url, null],
        &["guc", "-aa", &pipe, url, null],
    ] {
        let error = fails(words);
        assert!(error.contains("no regular file"), "{words:?}: {error}");
    }
}

#[test]
fn files_of_others_and_links_are_kept() {
    let user = User::new();
    let create = |out: &str| fails(&user.arguments(&user.key, out));
    let kept = user.write("kept", "content");
    let link = user.file("link");
    symlink(&kept, &link).unwrap();
    for error in [create(&link), fails(&["proxy", "destroy", &link])] {
        assert!(error.contains("it is a link"), "{error}");
    }
    // Only root can give a file away; for other users that of root is another user's.
    let mut foreign = user.write("foreign", "content");
    chown_to_nobody(Path::new(&foreign)).unwrap();
    if fs::metadata(&foreign).unwrap().uid() == fs::metadata(&kept).unwrap().uid() {
        foreign = "/etc/passwd".to_owned();
    }
    let before = fs::read(&foreign).unwrap();
    for error in [create(&foreign), fails(&["proxy", "destroy", &foreign])] {
        assert!(error.contains("belongs to another user"), "{error}");
    }
    assert_eq!(fs::read_to_string(&kept).unwrap(), "content");
    assert_eq!(fs::read(&foreign).unwrap(), before);
    let own = user.write(
        "own",
        [
            fs::read(&user.certificate).unwrap(),
            fs::read(&user.key).unwrap(),
        ]
        .concat(),
    );
    let error = fails(&["proxy", "create", "--cert", &own, "--out", &own]);
    assert!(error.contains("would replace the certificate"), "{error}");
}

#[test]
fn a_proxy_has_its_usual_place_until_it_is_destroyed() {
    let user = User::new();
    let proxy = PathBuf::from(user.file("usual"));
    let run = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gridhaul"));
        command
            .args(arguments)
            .env_clear()
            .env("X509_USER_PROXY", &proxy)
            .env("X509_USER_CERT", &user.certificate)
            .env("X509_USER_KEY", &user.key);
        command.output().unwrap()
    };
    assert!(run(&["proxy", "create"]).status.success());
    assert_eq!(fs::metadata(&proxy).unwrap().mode() & 0o7777, 0o600);
    assert!(run(&["proxy", "show"]).status.success());
    assert!(run(&["proxy", "destroy"]).status.success());
    assert!(!proxy.exists());
    assert_eq!(run(&["proxy", "show"]).status.code(), Some(1));
    assert_eq!(run(&["proxy", "destroy"]).status.code(), Some(1));
}

#[test]
fn without_a_certificate_the_error_says_where_it_was_looked_for() {
    let place = tempfile::tempdir().unwrap();
    let home = place.path();
    let create = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gridhaul"));
        command
            .args(["proxy", "create"])
            .env_clear()
            .env("HOME", home);
        texts(&command.output().unwrap()).1
    };
    let error = create();
    assert!(error.contains("~/.globus/usercert.pem"), "{error}");
    fs::create_dir(home.join(".globus")).unwrap();
    fs::write(home.join(".globus/usercred.p12"), "").unwrap();
    let error = create();
    assert!(error.contains("openssl pkcs12"), "{error}");
}
