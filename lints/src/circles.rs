//! Finds circles between modules: sets of modules of one parent that depend on each other.

use std::{collections::BTreeSet, path::Path};

use serde::Deserialize;

use crate::{
    graph::{Graph, circles},
    modules::{Module, Names, read_crate},
    scope::Scope,
    workspace::{LintError, packages, toml_file},
};

const ALLOWED: &str = "lints/modules.toml";

/// The items of a parent module itself, as a node beside its children.
const PARENT: &str = "(root)";

/// The circles that may exist, each with its reason.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Allowed {
    #[serde(default)]
    circle: Vec<AllowedCircle>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct AllowedCircle {
    /// The parent module: `PACKAGE` or `PACKAGE::module::...`.
    parent: String,
    modules: BTreeSet<String>,
    reason: String,
}

/// One use of an item of another module.
#[derive(Debug)]
struct Use {
    /// The module with the code, and the module that defines the item, from the crate's root.
    from: Names,
    to: Names,
    /// File and line.
    place: String,
}

/// Prints each circle that is not allowed, and each allowance without a circle, and returns their number.
///
/// # Errors
///
/// If a source file cannot be read.
pub(crate) fn check() -> Result<usize, LintError> {
    let allowed: Allowed = toml_file(Path::new(ALLOWED))?;
    let mut findings = 0;
    let mut found = Vec::new();
    for package in packages()? {
        for (label, circle) in circles_of(&package.name, &read_crate(&package.directory)?) {
            let is_allowed = allowed
                .circle
                .iter()
                .any(|a| a.parent == label && a.modules == circle);
            if !is_allowed {
                findings += 1;
                println!("{label}: modules in a circle: {}", list(&circle));
            }
            found.push((label, circle));
        }
    }
    for allowance in allowed.circle {
        if !found.contains(&(allowance.parent.clone(), allowance.modules.clone())) {
            findings += 1;
            let (parent, modules) = (&allowance.parent, list(&allowance.modules));
            println!(
                "{ALLOWED}: {parent} has no circle {modules} ({})",
                allowance.reason
            );
        }
    }
    if findings > 0 {
        println!("`gridhaul-lints modules edges PACKAGE FROM TO` shows why FROM depends on TO");
    }
    Ok(findings)
}

/// The circles of a crate, each with its parent module.
fn circles_of(package: &str, root: &Module) -> Vec<(String, BTreeSet<String>)> {
    let uses = uses(root);
    let mut found = Vec::new();
    for parent in parents(root) {
        let label = label(package, &parent);
        let circles = circles(&graph(root, &uses, &parent));
        let circles = circles.into_iter().map(BTreeSet::from_iter);
        found.extend(circles.map(|circle| (label.clone(), circle)));
    }
    found
}

/// Prints the uses that make module `from` of `package` depend on module `to`, both by path from the crate's root.
///
/// # Errors
///
/// If the package does not exist or a source file cannot be read.
pub(crate) fn edges(package: &str, from: &str, to: &str) -> Result<usize, LintError> {
    let package = packages()?
        .into_iter()
        .find(|known| known.name == package)
        .ok_or_else(|| LintError::UnknownPackage(package.to_owned()))?;
    let root = read_crate(&package.directory)?;
    for used in uses(&root) {
        if is_within(&used.from, from) && is_within(&used.to, to) {
            println!("{}: uses {}", used.place, used.to.join("::"));
        }
    }
    Ok(0)
}

/// Whether a module is the one that the command line names, or one below. `(root)` names the items of a module without its children.
fn is_within(module: &Names, named: &str) -> bool {
    let mut names: Vec<&str> = named.split("::").collect();
    if names.last() == Some(&PARENT) {
        names.pop();
        return module.iter().eq(names.iter());
    }
    module.len() >= names.len() && module.iter().zip(&names).all(|(a, b)| a == b)
}

/// The uses of a crate. A module that re-exports items of its own children only names them; a module that re-exports
/// others' items depends on these.
fn uses(root: &Module) -> Vec<Use> {
    let scope = Scope::new(root);
    let mut found = Vec::new();
    each_module(root, &mut Names::new(), &mut |place, module| {
        let mut add = |path: &[String], line, exported: bool| {
            let Some(to) = scope.resolve(place, path) else {
                return;
            };
            if exported && to.starts_with(place) {
                return;
            }
            found.push(Use {
                from: place.to_vec(),
                to,
                place: format!("{}:{line}", module.file.display()),
            });
        };
        for (path, line) in &module.uses {
            add(path, line, false);
        }
        for (path, line) in &module.exports {
            add(path, line, true);
        }
    });
    found
}

fn each_module(module: &Module, place: &mut Names, visit: &mut impl FnMut(&[String], &Module)) {
    visit(place, module);
    for (name, child) in &module.children {
        place.push(name.clone());
        each_module(child, place, visit);
        place.pop();
    }
}

/// The modules that have children.
fn parents(root: &Module) -> Vec<Names> {
    let mut parents = Vec::new();
    each_module(root, &mut Names::new(), &mut |place, module| {
        if !module.children.is_empty() {
            parents.push(place.to_vec());
        }
    });
    parents
}

/// The graph of the children of one module. The crate's root is a node of its own graph. Further down, a module and its children
/// are one part in several files, in which the children add methods to the parent's types, so only the children are nodes.
fn graph(root: &Module, uses: &[Use], parent: &Names) -> Graph {
    let mut graph = Graph::new();
    each_module(root, &mut Names::new(), &mut |place, _| {
        if place.len() == parent.len() + 1 && place.starts_with(parent) {
            graph.entry(place[parent.len()].clone()).or_default();
        }
    });
    for used in uses {
        if let (Some(from), Some(to)) = (node(&used.from, parent), node(&used.to, parent))
            && from != to
            && (parent.is_empty() || (from != PARENT && to != PARENT))
        {
            graph.entry(from).or_default().insert(to);
        }
    }
    graph
}

/// The child of `parent` that a module belongs to.
fn node(module: &Names, parent: &Names) -> Option<String> {
    let below = module.strip_prefix(parent.as_slice())?;
    Some(below.first().cloned().unwrap_or_else(|| PARENT.to_owned()))
}

fn label(package: &str, parent: &Names) -> String {
    let names: Vec<&str> = std::iter::once(package)
        .chain(parent.iter().map(String::as_str))
        .collect();
    names.join("::")
}

fn list(modules: &BTreeSet<String>) -> String {
    modules
        .iter()
        .map(String::as_str)
        .collect::<Vec<_>>()
        .join(", ")
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// The circles of a crate with these files below `src/`.
    fn of(files: &[(&str, &str)]) -> Vec<String> {
        let directory = tempfile::tempdir().expect("a directory");
        for (name, content) in files {
            let path = directory.path().join("src").join(name);
            fs::create_dir_all(path.parent().expect("a file in a directory")).expect("made");
            fs::write(path, content).expect("written");
        }
        let root = read_crate(directory.path()).expect("Rust source");
        let circles = circles_of("x", &root);
        circles
            .iter()
            .map(|(label, circle)| format!("{label}: {}", list(circle)))
            .collect()
    }

    const ROOT: (&str, &str) = ("lib.rs", "mod a; mod b; pub use a::A;");

    #[test]
    fn uses_in_one_direction_are_no_circle() {
        let a = ("a.rs", "pub struct A;");
        let b = ("b.rs", "use crate::a::A; pub struct B(A);");
        assert!(of(&[ROOT, a, b]).is_empty());
        // The root only names what it re-exports, and `crate::A` is the item of `a`.
        let b = ("b.rs", "pub struct B(crate::A);");
        assert!(of(&[ROOT, a, b]).is_empty());
    }

    #[test]
    fn every_kind_of_use_closes_a_circle() {
        let b = (
            "b.rs",
            "pub struct B(super::a::A); pub fn f() {} macro_rules! m { () => {} }",
        );
        for a in [
            "pub struct A; use crate::b::B;",
            "pub struct A; use crate::{b::B as C};",
            "pub struct A; use super::b::*;",
            "pub struct A; fn g() { crate::b::f(); }",
            "pub struct A; fn g() { println!(\"{}\", crate::b::f()); }",
            "pub struct A; fn g() { crate::b::m!(); }",
            "pub struct A; pub(crate) use crate::b::B;",
            "pub struct A; mod inner { impl super::super::b::B {} }",
        ] {
            assert_eq!(of(&[ROOT, ("a.rs", a), b]), ["x: a, b"], "{a}");
        }
    }

    #[test]
    fn uses_in_tests_do_not_count() {
        let b = ("b.rs", "pub struct B(super::a::A);");
        for a in [
            "pub struct A; #[cfg(test)] mod tests { use crate::b::B; }",
            "pub struct A; #[cfg(test)] use crate::b::B;",
            "pub struct A; impl A { #[cfg(test)] fn f() -> crate::b::B { todo!() } }",
        ] {
            assert!(of(&[ROOT, ("a.rs", a), b]).is_empty(), "{a}");
        }
    }

    #[test]
    fn items_of_the_root_are_a_module_of_their_own() {
        let root = ("lib.rs", "mod a; pub struct R(a::A);");
        let a = ("a.rs", "pub struct A; fn f(_: crate::R) {}");
        assert_eq!(of(&[root, a]), ["x: (root), a"]);
    }

    #[test]
    fn children_of_a_module_are_checked_and_may_use_it() {
        let root = ("lib.rs", "mod p;");
        let p = ("p/mod.rs", "mod a; mod b; pub struct P(a::A);");
        let a = ("p/a.rs", "pub struct A; use super::P; use super::b::B;");
        let b = ("p/b.rs", "pub struct B(super::a::A);");
        assert_eq!(of(&[root, p, a, b]), ["x::p: a, b"]);
    }
}
