//! Listings, over data channels and on the control channel.

use std::collections::BTreeSet;

use crate::served::Served;

fn tree() -> Served {
    let served = Served::new();
    served.directory("d/sub/deeper");
    served.write("d/a.dat", "1");
    served.write("d/b.dat", "22");
    served.write("d/.hidden", "");
    served.write("d/sub/c", "333");
    served
}

fn lines(listing: Vec<u8>) -> BTreeSet<String> {
    let text = String::from_utf8(listing).expect("UTF-8");
    assert!(text.is_empty() || text.ends_with("\r\n"), "{text:?}");
    assert!(!text.contains("\r\r"), "{text:?}");
    text.split_terminator("\r\n").map(str::to_owned).collect()
}

/// The last word of each line.
fn names(listing: Vec<u8>) -> Vec<String> {
    let name = |line: String| line.rsplit(' ').next().map(str::to_owned);
    lines(listing)
        .into_iter()
        .filter_map(name)
        .collect::<BTreeSet<_>>()
        .into_iter()
        .collect()
}

#[test]
fn mlsd_tells_facts_of_every_entry() {
    let served = tree();
    let mut client = served.anonymous();
    let listing = lines(client.get("MLSD d"));
    assert_eq!(listing.len(), 4);
    let of = |name: &str| {
        let found = listing
            .iter()
            .find(|line| line.ends_with(&format!("; {name}")));
        found.unwrap_or_else(|| panic!("no {name}"))
    };
    assert!(of("sub").contains("Type=dir;") && of("sub").contains("Perm=cfmpel;"));
    assert!(
        of("b.dat").contains("Type=file;") && of("b.dat").contains("Size=2;Perm=awr;UNIX.mode=")
    );
    assert_eq!(names(client.get("MLSD d/a.dat")), ["a.dat"]);
}

#[test]
fn mlst_repeats_the_name_as_it_was_given() {
    let served = tree();
    let mut client = served.anonymous();
    let text = client.expect("MLST d//a.dat", 250);
    assert!(
        text.starts_with("250-status of d//a.dat\r\n Type=file;"),
        "{text}"
    );
    assert!(text.ends_with("; d//a.dat\r\n250 End.\r\n"), "{text}");
    client.expect("CWD d", 250);
    assert!(client.expect("MLST", 250).contains("; /d\r\n"));
    let text = client.expect("MLST nothing", 550);
    assert!(
        text.contains("GridFTP-Reason: System error in stat\r\n"),
        "{text}"
    );
    client.expect("OPTS MLST Size;Nonsense;", 200);
    assert_eq!(
        client.expect("MLST a.dat", 250),
        "250-status of a.dat\r\n Size=1; a.dat\r\n250 End.\r\n"
    );
    assert!(
        client
            .expect("FEAT", 211)
            .contains("Type;Modify;Charset;Size*;")
    );
}

#[test]
fn links_are_followed_and_marked() {
    let served = tree();
    std::os::unix::fs::symlink("sub", served.path("d/link")).expect("linked");
    std::os::unix::fs::symlink("nowhere", served.path("d/dangling")).expect("linked");
    let mut client = served.anonymous();
    let text = client.expect("MLST d/link", 250);
    assert!(
        text.contains(" Type=dir;") && text.contains("UNIX.slink=/d/sub; d/link\r\n"),
        "{text}"
    );
    client.expect("MLST d/dangling", 550);
    let listing = lines(client.get("MLSD d"));
    assert!(
        listing
            .iter()
            .any(|line| line.ends_with("UNIX.slink=/d/sub; link"))
    );
    assert!(!listing.iter().any(|line| line.contains("dangling")));
}

#[test]
fn nlst_tells_names_and_understands_patterns() {
    let served = tree();
    let mut client = served.anonymous();
    let all = [".hidden", "a.dat", "b.dat", "sub"];
    assert_eq!(names(client.get("NLST d")), all);
    assert_eq!(names(client.get("NLST -la d")), all);
    assert_eq!(names(client.get("NLST d/*.dat")), ["d/a.dat", "d/b.dat"]);
    assert_eq!(names(client.get("NLST d/[ab].d?t")), ["d/a.dat", "d/b.dat"]);
    client.expect("CWD d", 250);
    assert_eq!(names(client.get("NLST *.dat")), ["a.dat", "b.dat"]);
    assert_eq!(names(client.get("NLST *")), ["a.dat", "b.dat", "sub"]);
    assert_eq!(names(client.get("NLST b.dat")), ["b.dat"]);
    let _data = client.passive();
    let text = client.expect("NLST *.nothing", 550);
    assert!(text.contains("No such file or directory"), "{text}");
}

#[test]
fn a_name_that_looks_like_a_pattern_is_a_name() {
    let served = Served::new();
    served.write("[ab]", "x");
    served.write("a", "x");
    let mut client = served.anonymous();
    assert_eq!(names(client.get("NLST [ab]")), ["[ab]"]);
}

#[test]
fn list_looks_like_ls() {
    let served = tree();
    let mut client = served.anonymous();
    client.expect("TYPE A", 200);
    let listing = lines(client.get("LIST d"));
    assert_eq!(listing.len(), 6);
    let line = listing
        .iter()
        .find(|line| line.ends_with(" b.dat"))
        .expect("listed");
    let words: Vec<_> = line.split_whitespace().collect();
    assert!(words[0].starts_with("-rw"), "{line}");
    assert_eq!((words.len(), words[4]), (9, "2"), "{line}");
    let text = client.expect("STAT d/b.dat", 213);
    assert!(text.starts_with("213-status of d/b.dat\r\n -rw"), "{text}");
    assert!(text.ends_with(" d/b.dat\r\n213 End.\r\n"), "{text}");
    assert_eq!(client.expect("STAT", 212), "212 GridFTP server status.\r\n");
}

#[test]
fn mlsr_tells_of_the_whole_tree() {
    let served = tree();
    let mut client = served.anonymous();
    assert_eq!(
        names(client.get("MLSR d")),
        [
            ".",
            "..",
            ".hidden",
            "a.dat",
            "b.dat",
            "sub",
            "sub/c",
            "sub/deeper"
        ]
    );
}

#[test]
fn mlsc_uses_the_control_channel() {
    let served = tree();
    let mut client = served.anonymous();
    let text = client.expect("MLSC d", 250);
    assert!(
        text.starts_with("250-Contents of /d\r\n Type=cdir;"),
        "{text}"
    );
    assert_eq!(text.lines().count(), 8);
    assert!(text.ends_with("\r\n250 End.\r\n"), "{text}");
    client.expect("MLSC nothing", 550);
    client.expect("NOOP", 200);
}

#[test]
fn a_missing_directory_is_told_before_anything_is_sent() {
    let served = Served::new();
    let mut client = served.anonymous();
    for command in ["MLSD", "LIST", "NLST", "MLSR"] {
        let _data = client.passive();
        let text = client.expect(&format!("{command} nothing"), 550);
        assert!(
            text.starts_with("550-GlobusError: v=1 c=PATH_NOT_FOUND\r\n"),
            "{command}: {text}"
        );
    }
}

/// Names that other programs of the machine made, each of which would be two lines for some client: Python's
/// ftplib ends lines at every CR and LF, `str.splitlines` at the rest.
const FORGING: [&str; 6] = [
    "a\r\nType=file;Size=1; forged",
    "b\nforged",
    "c\r-rw-r--r-- 1 root root 1 Nov 20 09:23 forged",
    "d\u{85}forged",
    "e\u{2028}forged",
    "f\u{1c}forged",
];

#[test]
fn no_name_makes_another_line_in_any_form_of_listing() {
    let served = Served::new();
    served.directory("d/sub");
    for name in FORGING {
        served.write(&format!("d/{name}"), "");
        std::os::unix::fs::symlink(name, served.path(&format!("d/sub/{}", &name[..1])))
            .expect("linked");
    }
    std::fs::create_dir(served.path("2\n226 forged")).expect("made");
    let mut client = served.anonymous();
    let one_line_each = |command: &str, text: &str| {
        let ends = |c: char| c.is_control() && !"\t\r\n".contains(c) || c == '\u{2028}';
        assert!(!text.contains(ends), "{command}: {text:?}");
        let whole = text.replace("\r\n", "");
        assert!(!whole.contains(['\r', '\n']), "{command}: {text:?}");
        // It is seen that they are there.
        assert_eq!(
            text.lines().count(),
            text.matches("\r\n").count(),
            "{text:?}"
        );
    };
    for command in [
        "LIST d",
        "NLST d",
        "MLSD d",
        "MLSR d",
        "LIST d/sub",
        "MLSD d/sub",
        "NLST d/*",
    ] {
        let text = String::from_utf8(client.get(command)).expect("UTF-8");
        one_line_each(command, &text);
        if !command.contains("sub") {
            assert_eq!(text.matches("?forged").count(), 4, "{command}: {text}");
        }
    }
    let text = client.expect("MLSC d", 250);
    one_line_each("MLSC", &text);
    for name in FORGING.iter().filter(|name| !name.contains("\r\n")) {
        for command in ["MLST", "STAT"] {
            client.send(&format!("{command} d/{name}"));
            let text = crate::client::text(&client.reply());
            one_line_each(command, &text);
            assert_eq!(text.lines().count(), 3, "{text}");
        }
    }
    client.expect("CWD 2\n226 forged", 250);
    assert_eq!(
        client.expect("PWD", 257),
        "257 \"/2?226 forged\" is current directory.\r\n"
    );
}

#[test]
fn patterns_that_are_hostile_are_names() {
    let served = Served::new();
    served.write("file", "");
    let mut client = served.anonymous();
    for pattern in [
        "{".repeat(300),
        ["{".repeat(300), "a".to_owned(), "}".repeat(300)].concat(),
        "{a,".repeat(1000),
        "*".repeat(1000),
    ] {
        for verb in ["NLST", "LIST"] {
            let _data = client.passive();
            let text = client.expect(&format!("{verb} {pattern}"), 550);
            // No name is so long.
            assert!(text.contains("File name too long"), "{text}");
        }
    }
    assert_eq!(names(client.get("NLST {f,g}*")), ["file"]);
}

#[test]
fn a_large_directory_is_listed_completely() {
    let served = Served::new();
    for number in 0..2000 {
        served.write(&format!("file-{number}"), "");
    }
    let mut client = served.anonymous();
    assert_eq!(lines(client.get("NLST")).len(), 2000);
    assert_eq!(client.expect("MLSC", 250).lines().count(), 2004);
}
