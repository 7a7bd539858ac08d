//! Tests with directories whose files change.

use std::os::unix::fs::symlink;
use std::time::Duration;

use super::*;
use crate::test_pki::{Issued, Pki, USER, now};
use crate::trust::{ChainError, TrustExpiryKind};

struct World {
    pki: Pki,
    root: Issued,
    user: Issued,
    directory: tempfile::TempDir,
}

impl World {
    /// A directory in the layout of the IGTF: hashed names are links to plain ones.
    fn new() -> Self {
        let pki = Pki::new();
        let root = pki.root("/DC=test/CN=Root");
        let user = pki.issue(&root, "/DC=test/CN=Alice", USER);
        let directory = tempfile::tempdir().expect("a directory");
        let world = Self {
            pki,
            root,
            user,
            directory,
        };
        world.write("root.pem", &world.root.pem());
        let policy = "access_id_CA X509 '/DC=test/CN=Root' pos_rights globus CA:sign";
        world.write("root.signing_policy", policy.as_bytes());
        world.write("root.info", b"alias = root");
        world.link("root.pem", "5ca1ab1e.0");
        world.link("root.signing_policy", "5ca1ab1e.signing_policy");
        world
    }

    fn write(&self, name: &str, content: &[u8]) {
        // Renamed as by fetch-crl, so that no reader sees a partial file.
        let new = self.directory.path().join("new");
        fs::write(&new, content).expect("written");
        fs::rename(&new, self.directory.path().join(name)).expect("renamed");
    }

    fn link(&self, to: &str, name: &str) {
        symlink(to, self.directory.path().join(name)).expect("linked");
    }

    fn open(&self) -> TrustDirectory {
        TrustDirectory::open(self.directory.path()).expect("readable")
    }

    /// Validates the user when the `count`th check is due.
    fn validate_later(&self, trust: &TrustDirectory, count: u64) -> Result<(), ChainError> {
        let later = Instant::now() + Duration::from_secs(count * 2);
        let store = Arc::clone(&trust.look(later).store);
        let chain = [self.user.certificate.clone()];
        store.validate(&chain, now()).map(drop)
    }
}

#[test]
fn a_directory_with_links_is_read() {
    let world = World::new();
    let trust = world.open();
    assert_eq!(trust.problems(), []);
    assert_eq!(trust.current().authorities().count(), 1);
    assert_eq!(world.validate_later(&trust, 0), Ok(()));
}

#[test]
fn a_change_is_noticed() {
    let world = World::new();
    let trust = world.open();
    let list = world.pki.revocation_list(&world.root, &[&world.user]);
    world.write("root.r0", &list);
    world.link("root.r0", "5ca1ab1e.r0");
    let error = world.validate_later(&trust, 1).expect_err("revoked");
    assert!(matches!(error, ChainError::Revoked { .. }), "{error}");
    let list = world.pki.revocation_list(&world.root, &[]);
    world.write("root.r0", &list);
    assert_eq!(world.validate_later(&trust, 2), Ok(()));
}

#[test]
fn only_what_has_changed_is_parsed_again() {
    let world = World::new();
    world.write("root.r0", &world.pki.revocation_list(&world.root, &[]));
    world.link("root.r0", "5ca1ab1e.r0");
    let list = |files: &Files, name: &str| {
        let mut entries = files.entries.iter();
        let entry = entries
            .find(|entry| entry.name == name)
            .expect("it is there");
        let stamp = *entry.stamp.as_ref().expect("it has one");
        match &files.parsed[&(entry.kind, stamp)] {
            Ok(TrustFile::RevocationLists(lists)) => Arc::clone(lists),
            other => panic!("{other:?}"),
        }
    };
    let entries = || super::list(world.directory.path()).expect("readable");
    let path = world.directory.path();
    let (first, _) = read_all(path, entries(), &Files::default(), Instant::now());
    assert!(Arc::ptr_eq(
        &list(&first, "root.r0"),
        &list(&first, "5ca1ab1e.r0")
    ));
    world.write("other.pem", &world.user.pem());
    let (second, content) = read_all(path, entries(), &first, Instant::now());
    assert!(Arc::ptr_eq(
        &list(&first, "root.r0"),
        &list(&second, "root.r0")
    ));
    assert_eq!(content.store.authorities().count(), 2);
}

#[test]
fn an_expired_list_is_read_again() {
    let world = World::new();
    let past = [
        "-crl_lastupdate",
        "20200101000000Z",
        "-crl_nextupdate",
        "20200201000000Z",
    ];
    let list = world.pki.revocation_list_of(&world.root, &[], &past);
    world.write("5ca1ab1e.r0", &list);
    let trust = world.open();
    let error = world.validate_later(&trust, 1).expect_err("too old");
    assert!(matches!(error, ChainError::RevocationListExpired { .. }));
    world.write("5ca1ab1e.r0", &world.pki.revocation_list(&world.root, &[]));
    assert_eq!(world.validate_later(&trust, 2), Ok(()));
}

#[test]
fn unusable_files_are_reported() {
    let world = World::new();
    world.write("broken.pem", b"words");
    world.link("missing.pem", "deadbeef.0");
    let trust = world.open();
    let files: Vec<_> = trust.problems().into_iter().map(|one| one.file).collect();
    assert_eq!(files, ["broken.pem", "deadbeef.0"]);
    assert_eq!(world.validate_later(&trust, 1), Ok(()));
    fs::remove_file(world.directory.path().join("broken.pem")).expect("it is there");
    world.write("missing.pem", &world.root.pem());
    assert_eq!(world.validate_later(&trust, 2), Ok(()));
    assert_eq!(trust.problems(), []);
}

/// Replaces a given list by unusable content.
type Spoiler = Box<dyn Fn(&World, &[u8])>;

/// Kinds of damage to a file with a list. Each gets the valid list.
fn spoilers() -> Vec<(&'static str, Spoiler)> {
    let at_once = |content: fn(&[u8]) -> Vec<u8>| -> Spoiler {
        Box::new(move |world, list| world.write("root.r0", &content(list)))
    };
    vec![
        ("empty", at_once(|_| Vec::new())),
        ("half", at_once(|list| list[..list.len() / 2].to_vec())),
        ("text", at_once(|_| b"<html>404</html>".to_vec())),
        (
            "forged",
            at_once(|list| {
                let mut forged = list.to_vec();
                let at = forged.len() - 40;
                forged[at] = if forged[at] == b'A' { b'B' } else { b'A' };
                forged
            }),
        ),
        (
            "another's",
            Box::new(|world: &World, _: &[u8]| {
                let other = world.pki.root("/DC=test/CN=Rood");
                world.write("root.r0", &world.pki.revocation_list(&other, &[]));
            }),
        ),
        (
            "an impostor's",
            Box::new(|world: &World, _: &[u8]| {
                let impostor = world.pki.root("/DC=test/CN=Root");
                world.write("root.r0", &world.pki.revocation_list(&impostor, &[]));
            }),
        ),
        (
            "delta",
            Box::new(|world: &World, _: &[u8]| {
                let extensions = "2.5.29.27=critical,ASN1:INTEGER:1";
                let delta = world.pki.revocation_list_with(&world.root, &[], extensions);
                world.write("root.r0", &delta);
            }),
        ),
        (
            "a dangling link",
            Box::new(|world: &World, _: &[u8]| {
                let path = world.directory.path().join("root.r0");
                let _ = fs::remove_file(&path);
                world.link("none", "root.r0");
            }),
        ),
        (
            "a directory",
            Box::new(|world: &World, _: &[u8]| {
                let path = world.directory.path().join("root.r0");
                let _ = fs::remove_file(&path);
                fs::create_dir(&path).expect("made");
            }),
        ),
    ]
}

#[test]
fn at_the_start_an_unusable_list_closes_its_authority() {
    for (what, spoil) in spoilers() {
        let world = World::new();
        spoil(&world, &world.pki.revocation_list(&world.root, &[]));
        let trust = world.open();
        let error = world.validate_later(&trust, 0).expect_err(what);
        let is_named = matches!(&error, ChainError::RevocationListUnusable { file, .. }
            if file == "root.r0");
        assert!(is_named, "{what}: {error}");
        let problems = trust.problems();
        assert_eq!(problems.len(), 1, "{what}: {problems:?}");
        assert!(problems[0].is_grave, "{what}");
        let words = "no certificate of /DC=test/CN=Root is accepted";
        assert!(problems[0].reason.contains(words), "{problems:?}");
    }
}

#[test]
fn a_list_that_becomes_unusable_leaves_the_last_good_one() {
    for (what, spoil) in spoilers() {
        let world = World::new();
        let other = world.pki.issue(&world.root, "/DC=test/CN=Bob", USER);
        let list = world.pki.revocation_list(&world.root, &[&world.user]);
        world.write("root.r0", &list);
        let trust = world.open();
        spoil(&world, &list);
        let error = world.validate_later(&trust, 1).expect_err(what);
        assert!(
            matches!(error, ChainError::Revoked { .. }),
            "{what}: {error}"
        );
        let store = trust.look(Instant::now()).store.clone();
        let chain = [other.certificate.clone()];
        assert!(store.validate(&chain, now()).is_ok(), "{what}");
        let [problem] = &trust.problems()[..] else {
            panic!("{what}: {:?}", trust.problems());
        };
        assert!(
            !problem.is_grave && problem.reason.contains("stays in use"),
            "{problem:?}"
        );
        let _ = fs::remove_dir(world.directory.path().join("root.r0"));
        let list = world.pki.revocation_list(&world.root, &[]);
        world.write("root.r0", &list);
        assert_eq!(world.validate_later(&trust, 2), Ok(()), "{what}");
    }
}

#[test]
fn the_last_good_list_does_not_count_for_longer_than_it_says() {
    let world = World::new();
    let list = world.pki.revocation_list(&world.root, &[]);
    world.write("root.r0", &list);
    let trust = world.open();
    world.write("root.r0", &list[..100]);
    assert_eq!(world.validate_later(&trust, 1), Ok(()));
    let store = trust.look(Instant::now()).store.clone();
    let late = now() + Duration::from_secs(11 * 86400);
    let error = store
        .validate(std::slice::from_ref(&world.user.certificate), late)
        .expect_err("too old");
    assert!(matches!(error, ChainError::RevocationListExpired { .. }));
}

#[test]
fn a_list_that_is_removed_counts_for_a_while() {
    let world = World::new();
    let list = world.pki.revocation_list(&world.root, &[&world.user]);
    world.write("root.r0", &list);
    let trust = world.open();
    fs::remove_file(world.directory.path().join("root.r0")).expect("it is there");
    let revoked = |count| {
        let error = world.validate_later(&trust, count).expect_err("revoked");
        assert!(matches!(error, ChainError::Revoked { .. }), "{error}");
    };
    revoked(1);
    assert!(trust.problems()[0].reason.contains("is gone"));
    revoked(20);
    // The file reappears, and is removed again: the delay begins anew.
    world.write("root.r0", &list);
    revoked(21);
    fs::remove_file(world.directory.path().join("root.r0")).expect("it is there");
    revoked(22);
    revoked(51);
    assert_eq!(world.validate_later(&trust, 53), Ok(()));
    assert_eq!(trust.problems(), []);
}

#[test]
fn an_older_list_does_not_replace_a_newer_one() {
    let world = World::new();
    let dated = |revoked: &[&Issued], from| {
        let dates = [
            "-crl_lastupdate",
            from,
            "-crl_nextupdate",
            "20990101000000Z",
        ];
        world.pki.revocation_list_of(&world.root, revoked, &dates)
    };
    world.write("root.r0", &dated(&[&world.user], "20250201000000Z"));
    let trust = world.open();
    world.write("root.r0", &dated(&[], "20250101000000Z"));
    let error = world.validate_later(&trust, 1).expect_err("revoked");
    assert!(matches!(error, ChainError::Revoked { .. }), "{error}");
    world.write("root.r0", &dated(&[], "20250301000000Z"));
    assert_eq!(world.validate_later(&trust, 2), Ok(()));
    // A list that is dated in the future by mistake is replaced by a correct one.
    world.write("root.r0", &dated(&[], "20980101000000Z"));
    let error = world.validate_later(&trust, 3).expect_err("too early");
    assert!(matches!(
        error,
        ChainError::RevocationListNotYetValid { .. }
    ));
    world.write("root.r0", &dated(&[], "20250401000000Z"));
    assert_eq!(world.validate_later(&trust, 4), Ok(()));
}

#[test]
fn a_list_of_which_nothing_says_whose_it_is_closes_those_without_one() {
    let world = World::new();
    world.write("mystery.crl", b"");
    let trust = world.open();
    let error = world
        .validate_later(&trust, 0)
        .expect_err("it may be the root's");
    assert!(matches!(error, ChainError::RevocationListUnusable { .. }));
    assert!(trust.problems()[0].is_grave);
    world.write("root.r0", &world.pki.revocation_list(&world.root, &[]));
    assert_eq!(world.validate_later(&trust, 1), Ok(()));
}

#[test]
fn unusable_files_of_other_kinds_leave_the_previous_content_in_use() {
    let world = World::new();
    let trust = world.open();
    world.write("root.pem", b"-----BEGIN");
    world.write("root.signing_policy", b"TO Issuer");
    assert_eq!(world.validate_later(&trust, 1), Ok(()));
    assert_eq!(trust.problems().len(), 4, "{:?}", trust.problems());
}

#[test]
fn a_removed_directory_leaves_the_previous_content_in_use() {
    let world = World::new();
    let trust = world.open();
    let aside = world.pki.path().join("aside");
    fs::rename(world.directory.path(), &aside).expect("renamed");
    assert_eq!(world.validate_later(&trust, 1), Ok(()));
    let failure = trust.failure().expect("it is gone");
    assert!(failure.to_string().contains("No such file"), "{failure}");
    fs::rename(&aside, world.directory.path()).expect("renamed back");
    assert_eq!(world.validate_later(&trust, 2), Ok(()));
    assert!(trust.failure().is_none());
    assert!(TrustDirectory::open(&aside).is_err());
}

#[test]
fn authorities_and_lists_end_once_each_however_many_names_they_have() {
    let world = World::new();
    world.write("root.r0", &world.pki.revocation_list(&world.root, &[]));
    world.link("root.r0", "5ca1ab1e.r0");
    let trust = world.open();
    let found: Vec<_> = trust
        .expiries()
        .iter()
        .map(|one| (one.kind, one.name.clone(), one.file.clone()))
        .collect();
    let name = "/DC=test/CN=Root".to_owned();
    assert_eq!(
        found,
        [
            (
                TrustExpiryKind::Authority,
                name.clone(),
                "5ca1ab1e.0".to_owned()
            ),
            (
                TrustExpiryKind::RevocationList,
                name,
                "5ca1ab1e.r0".to_owned()
            )
        ]
    );
    let ends = trust.expiries()[0].expires;
    assert_eq!(ends, world.root.certificate.validity().not_after);
    assert_eq!(
        trust.current().next_update(),
        Some(trust.expiries()[1].expires)
    );
}
