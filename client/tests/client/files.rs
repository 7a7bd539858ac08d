//! `ls`, `stat`, `mkdir`, `rm` and `mv`.

use std::fs;

use gridhaul_interop::Kind;

use crate::site::{Site, texts};

#[test]
fn directories_are_made_listed_renamed_and_removed() {
    for kind in [Kind::Gridhaul, Kind::Globus] {
        let site = Site::anonymous(kind, &[]);
        let url = |name: &str| site.server.url(name);
        site.must(&["mkdir", &url("a")]);
        let error = site.fails(&["mkdir", &url("a")]);
        assert!(error.contains("the server refused MKD"), "{error}");
        let error = site.fails(&["mkdir", &url("x/y/z")]);
        assert!(error.contains("the server refused MKD"), "{error}");
        site.must(&["mkdir", "-p", &url("x/y/z")]);
        site.must(&["mkdir", "-p", &url("x/y/z")]);
        site.must(&["copy", "source", &url("a/b c")]);
        site.must(&["copy", "source", &url("a/a")]);
        assert_eq!(site.must(&["ls", &url("a")]), "a\nb c\n", "{kind:?}");
        assert_eq!(site.must(&["ls", &url("x")]), "y/\n");
        assert_eq!(site.must(&["ls", &url("a/a")]), "a\n");
        let long = site.must(&["ls", "-l", &url("a")]);
        assert!(long.contains("3456789"), "{long}");
        let json = site.must(&["stat", "--json", &url("a/b c")]);
        assert!(json.contains(r#""type":"file","size":3456789"#), "{json}");
        assert!(json.contains("b%20c"), "{json}");
        site.must(&["mv", &url("a/a"), &url("x/moved")]);
        assert!(site.served("x/moved").exists() && !site.served("a/a").exists());
        let error = site.fails(&["rm", &url("x")]);
        assert!(error.contains("say --recursive"), "{error}");
        site.must(&["rm", "-r", &url("x"), &url("a/b c")]);
        assert!(!site.served("x").exists() && !site.served("a/b c").exists());
        let error = site.fails(&["ls", &url("x")]);
        assert!(error.contains("no such file"), "{error}");
        let error = site.fails(&["rm", &url("x")]);
        assert!(error.contains("the server refused DELE"), "{error}");
    }
}

#[test]
fn links_are_removed_and_not_what_they_lead_to() {
    for kind in [Kind::Gridhaul, Kind::Globus] {
        let site = Site::anonymous(kind, &[]);
        fs::create_dir_all(site.served("kept/sub")).unwrap();
        fs::create_dir(site.served("tree")).unwrap();
        fs::write(site.served("kept/sub/file"), "x").unwrap();
        std::os::unix::fs::symlink("../kept", site.served("tree/link")).unwrap();
        let everyone = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        for name in ["kept", "kept/sub", "tree"] {
            fs::set_permissions(site.served(name), fs::Permissions::clone(&everyone)).unwrap();
        }
        let output = site.gridhaul(&["rm", "-r", &site.server.url("tree")]);
        assert!(
            site.served("kept/sub/file").exists(),
            "{kind:?}: {output:?}"
        );
        // As a directory that the source does not have.
        fs::create_dir_all(site.local("source-tree/sub")).unwrap();
        let to = site.server.url("copy");
        site.must(&["copy", "-r", "source-tree", &to]);
        std::os::unix::fs::symlink("../kept", site.served("copy/link")).unwrap();
        std::os::unix::fs::symlink("../../kept", site.served("copy/sub/link")).unwrap();
        let _ = site.gridhaul(&["copy", "-r", "--delete", "source-tree", &to]);
        assert!(site.served("kept/sub/file").exists(), "{kind:?}");
        fs::remove_dir(site.local("source-tree/sub")).unwrap();
        let _ = site.gridhaul(&["copy", "-r", "--delete", "source-tree", &to]);
        assert!(site.served("kept/sub/file").exists(), "{kind:?}");
        if kind == Kind::Gridhaul {
            assert!(!site.served("tree").exists());
            assert!(!site.served("copy/sub").exists());
        }
    }
}

#[test]
fn names_cannot_control_a_terminal() {
    let site = Site::anonymous(Kind::Gridhaul, &[]);
    fs::create_dir(site.served("d")).unwrap();
    fs::write(site.served("d/a\u{1b}[31mred"), "x").unwrap();
    let lines = site.must(&["ls", &site.server.url("d")]);
    assert!(!lines.contains('\u{1b}'), "{lines:?}");
}

#[test]
fn options_without_effect_are_refused_and_ignored_in_the_configuration() {
    let site = Site::anonymous(Kind::Gridhaul, &[]);
    let url = site.server.url("a");
    for wrong in [
        &["ls", "--parallel", "2"][..],
        &["ls", "--mode", "stream"],
        &["tree", "--parallel", "2"],
        &["du", "--mode", "extended"],
        &["stat", "--stack", "tcp"],
        &["stat", "--long"],
        &["cat", "--parallel", "2"],
        &["rm", "--stack", "tcp"],
        &["chmod", "--protect", "0600"],
        &["mkdir", "--dcau", "none"],
        &["sum", "--stall-timeout", "5", "md5"],
    ] {
        let output = site.gridhaul(&[wrong, &[&url]].concat());
        let (_, stderr) = texts(&output);
        assert_eq!(output.status.code(), Some(2), "{wrong:?}: {stderr}");
    }
    let config = site.local("config.toml");
    let all = "[defaults]\nparallel = 4\nmode = \"extended\"\nstack = \"tcp\"\ndcau = \"none\"\nstall-timeout = 5\n";
    fs::write(&config, all).unwrap();
    for right in [
        &["mkdir", "-p"][..],
        &["stat"],
        &["ls"],
        &["tree"],
        &["du"],
        &["chmod", "0777"],
        &["chmod", "-r", "0777"],
        &["rm", "-r"],
    ] {
        let mut command = site.command(&[right, &[&url]].concat());
        let output = command.env("GRIDHAUL_CONFIG", &config).output().unwrap();
        assert!(output.status.success(), "{right:?}: {:?}", texts(&output).1);
    }
    fs::write(site.served("b"), "text").unwrap();
    let mut command = site.command(&["rm", &site.server.url("b")]);
    let output = command.env("GRIDHAUL_CONFIG", &config).output().unwrap();
    assert!(output.status.success(), "{:?}", texts(&output).1);
    // rm lists with these options, too.
    fs::create_dir(site.served("c")).unwrap();
    let error = site.fails(&["rm", "-r", "--stack", "missing", &site.server.url("c")]);
    assert!(error.contains("missing"), "{error}");
}
