//! The modules of a crate do not depend on each other in circles.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use syn::visit::{self, Visit};
use syn::{Attribute, ItemMod, ItemUse, UseTree, Visibility};

use super::{files, has_extension, read};

/// A module, by its path within the crate; the root is empty.
type Module = Vec<String>;

/// The imports and paths in a file.
#[derive(Default)]
struct File {
    /// The names that it imports: the last part, and the whole path.
    imports: BTreeMap<String, Vec<String>>,
    /// The paths that it uses, except those that it only re-exports.
    used: Vec<Vec<String>>,
}

/// Collects the paths of a file.
struct Reader {
    /// The module of the current code: below the file's module within `mod name { … }`.
    module: Module,
    file: File,
}

impl Reader {
    /// The path from the crate's root, if it may belong to this crate.
    fn absolute(&self, path: &[String]) -> Option<Vec<String>> {
        let mut parts = path.iter().peekable();
        let mut base = match parts.peek()?.as_str() {
            "crate" => {
                parts.next();
                Vec::new()
            }
            _ => self.module.clone(),
        };
        while let Some(part) = parts.peek() {
            match part.as_str() {
                "self" => {}
                "super" => drop(base.pop()),
                _ => break,
            }
            parts.next();
        }
        base.extend(parts.cloned());
        Some(base)
    }

    fn take(&mut self, tree: &UseTree, before: &[String], passes_on: bool) {
        let with = |name: &syn::Ident| [before, &[name.to_string()]].concat();
        match tree {
            UseTree::Path(path) => self.take(&path.tree, &with(&path.ident), passes_on),
            UseTree::Group(group) => group.items.iter().for_each(|tree| self.take(tree, before, passes_on)),
            UseTree::Glob(_) => self.import(before, None, passes_on),
            UseTree::Name(name) if name.ident == "self" => {
                self.import(before, before.last().cloned(), passes_on);
            }
            UseTree::Name(name) => self.import(&with(&name.ident), Some(name.ident.to_string()), passes_on),
            UseTree::Rename(name) => {
                self.import(&with(&name.ident), Some(name.rename.to_string()), passes_on);
            }
        }
    }

    fn import(&mut self, path: &[String], name: Option<String>, passes_on: bool) {
        let Some(path) = self.absolute(path) else { return };
        if let Some(name) = name {
            self.file.imports.insert(name, path.clone());
        }
        if !passes_on {
            self.file.used.push(path);
        }
    }
}

fn is_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && attribute.meta.require_list().is_ok_and(|list| list.tokens.to_string() == "test")
    })
}

impl<'ast> Visit<'ast> for Reader {
    fn visit_item_mod(&mut self, item: &'ast ItemMod) {
        if is_for_tests(&item.attrs) || item.content.is_none() {
            return;
        }
        self.module.push(item.ident.to_string());
        visit::visit_item_mod(self, item);
        self.module.pop();
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        if !is_for_tests(&item.attrs) {
            self.take(&item.tree, &[], !matches!(item.vis, Visibility::Inherited));
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if path.leading_colon.is_none() && path.segments.len() > 1 {
            let path: Vec<_> = path.segments.iter().map(|part| part.ident.to_string()).collect();
            self.file.used.extend(self.absolute(&path));
        }
        visit::visit_path(self, path);
    }
}

/// The files of a crate, by module.
fn modules(folder: &Path) -> BTreeMap<Module, File> {
    let mut modules = BTreeMap::new();
    for path in files().into_iter().filter(|path| path.starts_with(folder) && has_extension(path, "rs")) {
        let module = module(path.strip_prefix(folder).expect("below it"));
        let syntax =
            syn::parse_file(&read(&path)).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        if is_for_tests(&syntax.attrs) {
            continue;
        }
        let mut reader = Reader { module: module.clone(), file: File::default() };
        reader.visit_file(&syntax);
        modules.insert(module, reader.file);
    }
    modules
}

/// The module of a file, by its path below `src`.
fn module(path: &Path) -> Module {
    let mut parts: Module =
        path.with_extension("").iter().map(|part| part.to_string_lossy().into_owned()).collect();
    if parts.last().is_some_and(|last| matches!(last.as_str(), "mod" | "lib" | "main")) {
        parts.pop();
    }
    parts
}

/// The module that defines the item at this path, and then those that re-export it.
fn homes(modules: &BTreeMap<Module, File>, path: &[String], depth: usize) -> Vec<Module> {
    let Some(length) = (0..=path.len()).rev().find(|length| modules.contains_key(&path[..*length])) else {
        return Vec::new();
    };
    let (module, rest) = path.split_at(length);
    let mut found = match rest.first().and_then(|name| modules[module].imports.get(name)) {
        Some(next) if next != path && depth > 0 => homes(modules, next, depth - 1),
        _ => Vec::new(),
    };
    found.push(module.to_vec());
    found
}

/// Which modules use which. A module above the user is not counted for what it only re-exports: a path such as `super::Name`
/// leads through it to every neighbour.
fn arrows(modules: &BTreeMap<Module, File>) -> BTreeMap<&Module, BTreeSet<Module>> {
    let used = |module: &Module, file: &File| -> BTreeSet<Module> {
        // A path that begins with the name of another crate resolves to the module that contains it.
        let homes = file.used.iter().flat_map(|path| {
            let mut homes = homes(modules, path, 8).into_iter();
            homes.next().into_iter().chain(homes.filter(|home| !module.starts_with(home)))
        });
        homes.filter(|home| home != module).collect()
    };
    modules.iter().map(|(module, file)| (module, used(module, file))).collect()
}

/// The groups of modules that depend on themselves.
fn circles(arrows: &BTreeMap<&Module, BTreeSet<Module>>) -> Vec<BTreeSet<Module>> {
    let reached: BTreeMap<&Module, BTreeSet<Module>> = arrows
        .keys()
        .map(|from| {
            let (mut reached, mut open) = (BTreeSet::new(), vec![(*from).clone()]);
            while let Some(module) = open.pop() {
                for next in arrows.get(&module).into_iter().flatten() {
                    if reached.insert(next.clone()) {
                        open.push(next.clone());
                    }
                }
            }
            (*from, reached)
        })
        .collect();
    let mut circles: Vec<BTreeSet<Module>> = Vec::new();
    for (module, reachable) in &reached {
        let circle: BTreeSet<Module> = reached
            .iter()
            .filter(|(other, theirs)| reachable.contains(**other) && theirs.contains(*module))
            .map(|(other, _)| (*other).clone())
            .collect();
        if circle.len() > 1 && !circles.contains(&circle) {
            circles.push(circle);
        }
    }
    circles
}

fn folders() -> BTreeSet<PathBuf> {
    let is_root = |path: &PathBuf| path.ends_with("src/lib.rs") || path.ends_with("src/main.rs");
    files().into_iter().filter(is_root).filter_map(|path| path.parent().map(Path::to_owned)).collect()
}

#[test]
fn no_modules_depend_on_each_other_in_a_circle() {
    let mut found = Vec::new();
    for folder in folders() {
        let modules = modules(&folder);
        let arrows = arrows(&modules);
        for circle in circles(&arrows) {
            found.push(format!("in {}:", folder.display()));
            for from in &circle {
                for to in arrows[from].intersection(&circle) {
                    found.push(format!("    {} -> {}", from.join("::"), to.join("::")));
                }
            }
        }
    }
    assert!(found.is_empty(), "these depend on each other:\n{}", found.join("\n"));
}
