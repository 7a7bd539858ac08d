//! The example of the library.

use std::fs;

use gridhaul_interop::Kind;

use crate::site::{Site, assert_same};

#[expect(dead_code, reason = "its main function is not called")]
#[path = "../../examples/fetch.rs"]
mod fetch;

#[tokio::test]
async fn the_example_fetches_files_and_lists_directories() {
    for kind in [Kind::Gridhaul, Kind::Globus] {
        let site = Site::anonymous(kind, &[]);
        fs::create_dir(site.served("directory")).unwrap();
        fs::copy(site.local("source"), site.served("directory/file")).unwrap();
        let directory = site.server.url("directory/");
        let names = fetch::fetch(&directory, site.place()).await.unwrap();
        assert_eq!(names, "file");
        let file = site.server.url("directory/file");
        let done = fetch::fetch(&file, site.place()).await.unwrap();
        assert_eq!(done, "3456789 bytes");
        assert_same(&site.local("file"), &site.served("directory/file"), &[]);
        let missing = fetch::fetch(&site.server.url("missing"), site.place()).await;
        let error = missing.unwrap_err().to_string();
        assert!(error.contains("No such file"), "{error}");
    }
}
