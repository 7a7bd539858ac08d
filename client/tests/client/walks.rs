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
