//! Reads a crate's source files: its tree of modules, and the paths that each module uses.
//!
//! Code for tests (`#[cfg(test)]`) is left out: tests may look at everything.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use proc_macro2::{TokenStream, TokenTree};
use syn::{Attribute, Item, UseTree, Visibility, visit::Visit};

use crate::workspace::{LintError, read};

/// A path of names, such as `crate::error::Error`.
pub(crate) type Names = Vec<String>;

/// One module: the items that it defines and the paths that it uses.
#[derive(Debug, Default)]
pub(crate) struct Module {
    /// Its file.
    pub(crate) file: PathBuf,
    /// Its submodules.
    pub(crate) children: BTreeMap<String, Self>,
    /// The names of its own items.
    pub(crate) items: Vec<String>,
    /// The names that it imports, with the path of each.
    pub(crate) imports: Vec<(String, Names)>,
    /// The paths before `::*`.
    pub(crate) globs: Vec<Names>,
    /// The paths that it uses, each with its line.
    pub(crate) uses: Vec<(Names, usize)>,
    /// The paths that it re-exports, each with its line.
    pub(crate) exports: Vec<(Names, usize)>,
}

/// Reads the library of the crate in `directory`, or its program when it has no library.
///
/// # Errors
///
/// If a file is missing or is not Rust.
pub(crate) fn read_crate(directory: &Path) -> Result<Module, LintError> {
    let library = directory.join("src/lib.rs");
    let root = if library.exists() {
        library
    } else {
        directory.join("src/main.rs")
    };
    let children = directory.join("src");
    read_file(&root, &children)
}

fn read_file(file: &Path, children: &Path) -> Result<Module, LintError> {
    let text = read(file)?;
    let parsed = syn::parse_file(&text).map_err(|source| LintError::Rust {
        path: file.to_owned(),
        source,
    })?;
    let mut module = Module {
        file: file.to_owned(),
        ..Module::default()
    };
    read_items(&parsed.items, file, children, &mut module)?;
    Ok(module)
}

fn read_items(
    items: &[Item],
    file: &Path,
    children: &Path,
    module: &mut Module,
) -> Result<(), LintError> {
    for item in items {
        if is_for_tests(attributes(item)) {
            continue;
        }
        if let Item::Mod(declared) = item {
            let name = declared.ident.to_string();
            let below = children.join(&name);
            let child = match &declared.content {
                Some((_, items)) => {
                    let mut child = Module {
                        file: file.to_owned(),
                        ..Module::default()
                    };
                    read_items(items, file, &below, &mut child)?;
                    child
                }
                None => read_file(&module_file(file, children, &name)?, &below)?,
            };
            module.children.insert(name, child);
        } else {
            if let Some(name) = defined_name(item) {
                module.items.push(name);
            }
            Uses { module }.visit_item(item);
        }
    }
    Ok(())
}

fn module_file(declared_in: &Path, children: &Path, name: &str) -> Result<PathBuf, LintError> {
    let candidates = [
        children.join(format!("{name}.rs")),
        children.join(name).join("mod.rs"),
    ];
    candidates
        .into_iter()
        .find(|file| file.exists())
        .ok_or_else(|| LintError::MissingModule {
            declared_in: declared_in.to_owned(),
            module: name.to_owned(),
        })
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

fn defined_name(item: &Item) -> Option<String> {
    let name = match item {
        Item::Const(item) => &item.ident,
        Item::Enum(item) => &item.ident,
        Item::Fn(item) => &item.sig.ident,
        Item::Macro(item) => item.ident.as_ref()?,
        Item::Static(item) => &item.ident,
        Item::Struct(item) => &item.ident,
        Item::Trait(item) => &item.ident,
        Item::Type(item) => &item.ident,
        Item::Union(item) => &item.ident,
        _ => return None,
    };
    Some(name.to_string())
}

/// Whether an item is compiled for tests only: `#[test]`, `#[cfg(test)]` or `#[cfg(all(test, ...))]`.
fn is_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        syn::Meta::Path(path) => path.is_ident("test"),
        syn::Meta::List(list) => {
            let words: String = list
                .tokens
                .to_string()
                .chars()
                .filter(|c| !c.is_whitespace())
                .collect();
            list.path.is_ident("cfg") && (words == "test" || words.starts_with("all(test,"))
        }
        syn::Meta::NameValue(_) => false,
    })
}

/// Collects the paths of one item.
struct Uses<'a> {
    module: &'a mut Module,
}

impl Uses<'_> {
    fn add_tree(&mut self, tree: &UseTree, prefix: &Names, exported: bool) {
        match tree {
            UseTree::Path(path) => {
                let prefix = joined(prefix, &path.ident.to_string());
                self.add_tree(&path.tree, &prefix, exported);
            }
            UseTree::Group(group) => {
                for tree in &group.items {
                    self.add_tree(tree, prefix, exported);
                }
            }
            UseTree::Name(name) => {
                let line = name.ident.span().start().line;
                self.import(prefix, &name.ident.to_string(), None, line, exported);
            }
            UseTree::Rename(renamed) => {
                let line = renamed.ident.span().start().line;
                let name = renamed.rename.to_string();
                self.import(
                    prefix,
                    &renamed.ident.to_string(),
                    Some(name),
                    line,
                    exported,
                );
            }
            UseTree::Glob(glob) => {
                self.module.globs.push(prefix.clone());
                let line = glob.star_token.spans[0].start().line;
                self.note(prefix.clone(), line, exported);
            }
        }
    }

    fn import(
        &mut self,
        prefix: &Names,
        name: &str,
        renamed: Option<String>,
        line: usize,
        exported: bool,
    ) {
        // `use a::{self, B}` imports `a` itself.
        let path = if name == "self" {
            prefix.clone()
        } else {
            joined(prefix, name)
        };
        let name = renamed.or_else(|| path.last().cloned()).unwrap_or_default();
        self.module.imports.push((name, path.clone()));
        self.note(path, line, exported);
    }

    fn note(&mut self, path: Names, line: usize, exported: bool) {
        let paths = match exported {
            true => &mut self.module.exports,
            false => &mut self.module.uses,
        };
        paths.push((path, line));
    }

    /// Paths in the arguments of a macro, which are tokens without a grammar: names joined by `::`.
    fn add_tokens(&mut self, tokens: TokenStream) {
        let mut path = Names::new();
        let mut colons = 0;
        let mut line = 0;
        for token in tokens {
            match token {
                TokenTree::Ident(name) => {
                    if colons != 2 {
                        self.end_path(&mut path, line);
                        line = name.span().start().line;
                    }
                    path.push(name.to_string());
                    colons = 0;
                }
                TokenTree::Punct(mark) if mark.as_char() == ':' => colons += 1,
                TokenTree::Group(group) => {
                    self.end_path(&mut path, line);
                    colons = 0;
                    self.add_tokens(group.stream());
                }
                _ => {
                    self.end_path(&mut path, line);
                    colons = 0;
                }
            }
        }
        self.end_path(&mut path, line);
    }

    fn end_path(&mut self, path: &mut Names, line: usize) {
        let path = std::mem::take(path);
        if path.len() > 1 {
            self.module.uses.push((path, line));
        }
    }
}

impl<'ast> Visit<'ast> for Uses<'_> {
    fn visit_item(&mut self, item: &'ast Item) {
        if !is_for_tests(attributes(item)) {
            syn::visit::visit_item(self, item);
        }
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        if !is_for_tests(&function.attrs) {
            syn::visit::visit_impl_item_fn(self, function);
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        let exported = !matches!(item.vis, Visibility::Inherited);
        self.add_tree(&item.tree, &Names::new(), exported);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let names: Names = path
            .segments
            .iter()
            .map(|part| part.ident.to_string())
            .collect();
        let line = path
            .segments
            .first()
            .map_or(0, |part| part.ident.span().start().line);
        self.module.uses.push((names, line));
        syn::visit::visit_path(self, path);
    }

    fn visit_visibility(&mut self, _: &'ast Visibility) {
        // `pub(in crate::session)` restricts and uses nothing.
    }

    fn visit_attribute(&mut self, _: &'ast Attribute) {}

    fn visit_macro(&mut self, called: &'ast syn::Macro) {
        self.visit_path(&called.path);
        self.add_tokens(called.tokens.clone());
    }
}

fn joined(prefix: &Names, name: &str) -> Names {
    prefix.iter().cloned().chain([name.to_owned()]).collect()
}
