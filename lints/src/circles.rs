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
        let root = read_crate(&package.directory)?;
        let uses = uses(&root);
        for parent in parents(&root) {
            let label = label(&package.name, &parent);
            for circle in circles(&graph(&root, &uses, &parent)) {
                let circle: BTreeSet<String> = circle.into_iter().collect();
                let is_allowed = allowed
                    .circle
                    .iter()
                    .any(|a| a.parent == label && a.modules == circle);
                if !is_allowed {
                    findings += 1;
                    println!("{label}: modules in a circle: {}", list(&circle));
                }
                found.push((label.clone(), circle));
            }
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

fn uses(root: &Module) -> Vec<Use> {
    let scope = Scope::new(root);
    let mut found = Vec::new();
    each_module(root, &mut Names::new(), &mut |place, module| {
        for (path, line) in &module.uses {
            if let Some(to) = scope.resolve(place, path) {
                let position = format!("{}:{line}", module.file.display());
                found.push(Use {
                    from: place.to_vec(),
                    to,
                    place: position,
                });
            }
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
