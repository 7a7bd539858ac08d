//! `chroot_path` and `restrict_paths`: what users see.

use super::super::given::words;
use super::super::translation::{Weight, quoted};

/// What users see.
#[derive(Debug, PartialEq)]
pub(super) struct View {
    /// The root of the server.
    pub(super) root: String,
    /// The only rule for users with certificates.
    pub(super) rule: Option<Vec<(&'static str, String)>>,
    /// Nothing may be changed.
    pub(super) read_only: bool,
    /// The root is also right for anonymous users, who have no rule.
    pub(super) is_for_all: bool,
    pub(super) remark: String,
    pub(super) weight: Weight,
}

/// A path of the list, with what clients may do there.
struct Restricted<'a> {
    path: &'a str,
    read: bool,
    write: bool,
}

impl<'a> Restricted<'a> {
    /// `RW/path`, `R~`, `/path`: without a letter, everything is allowed.
    fn parse(text: &'a str) -> Option<Self> {
        let path = text.trim_start_matches(['R', 'r', 'W', 'w', 'N', 'n']);
        let letters = text.strip_suffix(path)?.to_ascii_uppercase();
        let may = |letter| letters.is_empty() || letters.contains(letter);
        let is_path = path.starts_with(['/', '~']) && !path.split('/').any(|part| part == "..");
        is_path.then(|| Self {
            path: match path.trim_end_matches('/') {
                "" => "/",
                path => path,
            },
            read: may('R'),
            write: may('W'),
        })
    }
}

/// `chroot` is absolute; `home` is the value of `home_dir`.
pub(super) fn view(chroot: Option<String>, restrict: Option<&str>, home: Option<&str>) -> View {
    let top = chroot.unwrap_or_else(|| "/".to_owned());
    let everything = View {
        root: top.clone(),
        rule: None,
        read_only: false,
        is_for_all: true,
        remark: "the whole file system, with the rights of each user's account".to_owned(),
        weight: Weight::Carried,
    };
    let Some(restrict) = restrict else {
        return match top.as_str() {
            "/" => everything,
            _ => View {
                remark: "users see only what is beneath this directory".to_owned(),
                ..everything
            },
        };
    };
    let items = words(restrict);
    let parsed: Vec<_> = items
        .iter()
        .filter_map(|text| Restricted::parse(text))
        .collect();
    match parsed.as_slice() {
        [only] if items.len() == 1 && only.read => one(only, &top, home, everything),
        _ => none(everything),
    }
}

/// The only path of the list becomes the root.
fn one(only: &Restricted<'_>, top: &str, home: Option<&str>, everything: View) -> View {
    let read_only = !only.write;
    let mut rule = vec![("identity", quoted("*")), ("map", true.to_string())];
    let mut remark = "this directory is the root: paths of clients begin there".to_owned();
    let mut view = View {
        read_only,
        ..everything
    };
    if let Some(rest) = only.path.strip_prefix('~') {
        let home = home.unwrap_or("$HOME").trim_end_matches('/');
        let is_root = home.starts_with('/') || home.starts_with("$HOME");
        if top != "/" || !(rest.is_empty() || rest.starts_with('/')) || !is_root {
            return none(view);
        }
        rule.push(("root", quoted(&format!("{home}{rest}"))));
        view.is_for_all = false;
        remark = "users see their home directory as the root, so paths of clients begin there"
            .to_owned();
    } else if only.path == "/" {
        remark = "the whole file system".to_owned();
    } else {
        view.root = format!("{}{}", top.trim_end_matches('/'), only.path);
    }
    if read_only {
        rule.push(("read-only", true.to_string()));
    }
    View {
        rule: (read_only || !view.is_for_all).then_some(rule),
        remark,
        ..view
    }
}

/// What cannot be carried over closes the server to users, until the administrator has decided.
fn none(everything: View) -> View {
    View {
        rule: Some(vec![
            ("identity", quoted("*")),
            ("deny", true.to_string()),
        ]),
        is_for_all: false,
        remark: "a server has one root, and users read there, or read and write. No user may log in until you decide: choose root, \
                 and delete the rule that denies, or give users roots of their own with rules"
            .to_owned(),
        weight: Weight::Guard,
        ..everything
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(chroot: Option<&str>, restrict: &str, home: Option<&str>) -> View {
        view(chroot.map(str::to_owned), Some(restrict), home)
    }

    #[test]
    fn one_directory_becomes_the_root() {
        for (chroot, restrict, root) in [
            (None, "/data", "/data"),
            (None, "RW/data/", "/data"),
            (Some("/jail"), "/data", "/jail/data"),
            (Some("/jail"), "/", "/jail"),
        ] {
            let view = seen(chroot, restrict, None);
            assert_eq!((view.root.as_str(), view.weight), (root, Weight::Carried));
            assert_eq!((view.rule, view.read_only), (None, false));
        }
        let view = seen(None, "R/data", None);
        assert!(view.read_only && view.is_for_all);
        assert!(
            view.rule
                .is_some_and(|rule| rule.contains(&("read-only", "true".to_owned())))
        );
        assert_eq!(super::view(None, None, None).root, "/");
    }

    #[test]
    fn a_home_directory_is_a_rule() {
        for (restrict, home, root) in [
            ("~", None, "\"$HOME\""),
            ("RW~/data", None, "\"$HOME/data\""),
            ("~", Some("/data/$USER"), "\"/data/$USER\""),
        ] {
            let view = seen(None, restrict, home);
            let rule = view.rule.expect("a rule");
            assert!(rule.contains(&("root", root.to_owned())), "{rule:?}");
            assert!(!view.is_for_all);
        }
    }

    #[test]
    fn what_has_no_counterpart_admits_no_users() {
        for (chroot, restrict) in [
            (None, "/data,/scratch"),
            (None, "W/incoming"),
            (None, "N/data"),
            (None, "/data/../etc"),
            (None, "data"),
            (None, "~bob"),
            (Some("/jail"), "~"),
            (None, ","),
        ] {
            let view = seen(chroot, restrict, None);
            assert_eq!(view.weight, Weight::Guard, "{restrict}");
            let rule = view.rule.expect("a rule");
            assert!(rule.contains(&("deny", "true".to_owned())), "{restrict}");
            assert!(!view.is_for_all);
        }
    }
}
