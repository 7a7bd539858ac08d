//! What a walk takes for files and for directories, and makes of them.

use std::fs;

use gridhaul_interop::Kind;

use crate::site::Site;

#[test]
fn a_directory_is_not_taken_for_the_file() {
    let site = Site::anonymous(Kind::Gridhaul, &[]);
    let (url, tree) = (site.server.url("new"), site.server.url("tree"));
    for root in [site.local("tree"), site.served("tree")] {
        fs::create_dir(&root).unwrap();
        fs::write(root.join("name"), "content").unwrap();
    }
    for root in [site.local("new"), site.served("new")] {
        fs::create_dir_all(root.join("name")).unwrap();
    }
    for (from, to) in [("tree", url.as_str()), (&tree, "new")] {
        let error = site.fails(&["copy", "-r", "--sync=exists", from, to]);
        assert!(error.contains("new/name"), "{error}");
        // A file by itself.
        let (from, to) = (format!("{from}/name"), format!("{to}/name"));
        site.fails(&["copy", "-T", "--sync=exists", &from, &to]);
    }
}

#[test]
fn a_file_does_not_become_a_directory_in_a_recursive_copy() {
    let site = Site::anonymous(Kind::Gridhaul, &[]);
    fs::write(site.served("file"), "content").unwrap();
    let url = site.server.url("file");
    let content = |name: &str| fs::read(site.local(name)).unwrap();
    site.must(&["copy", "-r", &url, "new"]);
    assert_eq!(content("new"), b"content");
    fs::write(site.local("old"), "old").unwrap();
    site.must(&["copy", "-r", &url, "old"]);
    assert_eq!(content("old"), b"content");
    fs::create_dir(site.local("directory")).unwrap();
    site.must(&["copy", "-r", &url, "directory"]);
    assert_eq!(content("directory/file"), b"content");
    fs::write(site.local("list"), format!("{url} listed\n")).unwrap();
    site.must(&["copy", "-r", "--from-file", "list"]);
    assert_eq!(content("listed"), b"content");
    let to = format!("file://{}", site.local("globus").display());
    site.must(&["guc", "-r", &url, &to]);
    assert_eq!(content("globus"), b"content");
    site.fails(&["copy", "-r", &site.server.url("missing"), "nothing"]);
    assert!(!site.local("nothing").exists());
    // Several ones need a directory.
    fs::write(site.served("other"), "other").unwrap();
    site.must(&["copy", "-r", &url, &site.server.url("other"), "several"]);
    assert_eq!(content("several/other"), b"other");
}

#[test]
fn unfinished_copies_in_a_source_are_skipped() {
    let site = Site::anonymous(Kind::Gridhaul, &[]);
    let (url, tree) = (site.server.url("new"), site.server.url("tree"));
    for root in [site.local("tree"), site.served("tree")] {
        fs::create_dir(&root).unwrap();
        for name in ["file", ".a.gridhaul-part", ".b.gridhaul-blocks"] {
            fs::write(root.join(name), "content").unwrap();
        }
    }
    let copies = [
        ("tree", url.as_str(), site.served("new")),
        (&tree, "new", site.local("new")),
    ];
    for (from, to, copy) in copies {
        let output = site.gridhaul(&["copy", "-r", from, to]);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{stderr}");
        for name in [".a.gridhaul-part", ".b.gridhaul-blocks"] {
            assert!(
                stderr.contains(&format!("{from}/{name}: skipped")),
                "{stderr}"
            );
        }
        let names: Vec<_> = fs::read_dir(&copy)
            .unwrap()
            .map(|one| one.unwrap().file_name())
            .collect();
        assert_eq!(names, ["file"]);
    }
}
