//! Resolves the paths of a crate to the modules that define their items.

use crate::modules::{Module, Names};

/// Imports that lead to imports: deeper than this, they lead in a circle.
const MAX_IMPORTS: usize = 8;

/// Resolves paths within one crate.
#[derive(Debug)]
pub(crate) struct Scope<'a> {
    root: &'a Module,
}

impl<'a> Scope<'a> {
    pub(crate) fn new(root: &'a Module) -> Self {
        Self { root }
    }

    /// The module, from the crate's root, that defines the item that `path` names when module `from` uses it. A re-export counts as
    /// the module that it exports from. `None` for other crates, local names and names that a macro makes.
    pub(crate) fn resolve(&self, from: &[String], path: &[String]) -> Option<Names> {
        self.seen_from(from, path, 0)
    }

    fn seen_from(&self, from: &[String], path: &[String], depth: usize) -> Option<Names> {
        if depth > MAX_IMPORTS {
            return None;
        }
        match path.first()?.as_str() {
            "crate" => self.walk(&[], &path[1..], depth),
            "self" => self.walk(from, &path[1..], depth),
            "super" => {
                let parent = &from[..from.len().checked_sub(1)?];
                match path.get(1).map(String::as_str) {
                    Some("super") => self.seen_from(parent, &path[1..], depth),
                    _ => self.walk(parent, &path[1..], depth),
                }
            }
            _ => self.walk_from_name(from, path, depth),
        }
    }

    /// Follows `path` from module `place` down.
    fn walk(&self, place: &[String], path: &[String], depth: usize) -> Option<Names> {
        if path.is_empty() {
            return Some(place.to_vec());
        }
        self.walk_from_name(place, path, depth)
    }

    fn walk_from_name(&self, place: &[String], path: &[String], depth: usize) -> Option<Names> {
        let module = self.module(place)?;
        let (name, rest) = path.split_first()?;
        if module.children.contains_key(name) {
            let mut child = place.to_vec();
            child.push(name.clone());
            return self.walk(&child, rest, depth);
        }
        if module.items.contains(name) {
            return Some(place.to_vec());
        }
        let import = module
            .imports
            .iter()
            .find(|(imported, target)| imported == name && target.as_slice() != [name.clone()]);
        if let Some((_, target)) = import {
            let path: Names = target.iter().chain(rest).cloned().collect();
            return self.seen_from(place, &path, depth + 1);
        }
        module.globs.iter().find_map(|glob| {
            let path: Names = glob.iter().chain(path).cloned().collect();
            self.seen_from(place, &path, depth + 1)
        })
    }

    fn module(&self, place: &[String]) -> Option<&'a Module> {
        place
            .iter()
            .try_fold(self.root, |module, name| module.children.get(name))
    }
}
