//! `cargo xtask site`: the pages of `docs` as a searchable site.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::links::targets;
use crate::step::{Totals, run as step};
use crate::workspace::{cargo, list, metadata, root, target, text};

/// The version of mdBook that the site is built with.
const VERSION: &str = "0.5.4";

/// The folder with the pages.
const PAGES: &str = "docs";

/// Builds the site into `target/site`. Fetches mdBook if it is not installed.
pub(crate) fn run() -> Result<()> {
    let metadata = metadata(&["--no-deps"])?;
    let repository = list(&metadata["packages"]).first().map(|package| text(&package["repository"]));
    let source = target().join("site-source");
    let _ = fs::remove_dir_all(&source);
    copy(Path::new(PAGES), &source, &repository.unwrap_or_default())?;
    fs::copy(root().join("book.toml"), source.join("book.toml")).context("book.toml")?;
    let mut build = Command::new(mdbook()?);
    build.arg("build").arg(source).arg("--dest-dir").arg(target().join("site"));
    step(&mut build, &mut Totals::default())?;
    println!("{}", target().join("site").join("index.html").display());
    Ok(())
}

/// Copies a folder of the repository into `source`, with pages that link to nothing outside of the site.
fn copy(folder: &Path, source: &Path, repository: &str) -> Result<()> {
    fs::create_dir_all(source.join(folder))?;
    for entry in fs::read_dir(root().join(folder))? {
        let entry = entry?;
        let file = folder.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&file, source, repository)?;
        } else if file.extension().is_some_and(|extension| extension == "md") {
            let page = fs::read_to_string(entry.path()).with_context(|| file.display().to_string())?;
            fs::write(source.join(&file), self_contained(&page, folder, repository))?;
        } else {
            fs::copy(entry.path(), source.join(&file))?;
        }
    }
    Ok(())
}

/// The page with links to files outside of the site replaced: by links to the repository, or by their text if it has no
/// address.
fn self_contained(page: &str, folder: &Path, repository: &str) -> String {
    let mut changed = page.to_owned();
    // Backwards, so that the places of the others stay.
    for place in targets(page).into_iter().rev() {
        let Some(file) = outside(folder, &page[place.clone()]) else { continue };
        let mark = place.start - "](".len();
        match opening(&page[..mark]) {
            Some(opening) if repository.is_empty() => {
                changed.replace_range(mark..=place.end, "");
                changed.remove(opening);
            }
            _ => changed.replace_range(place, &format!("{repository}/blob/HEAD/{file}")),
        }
    }
    changed
}

/// The path in the repository of a file outside of the site that a page in `folder` links to.
fn outside(folder: &Path, link: &str) -> Option<String> {
    if link.starts_with('#') || link.contains("://") || link.starts_with("mailto:") {
        return None;
    }
    let mut path: Vec<&str> = folder.iter().filter_map(|part| part.to_str()).collect();
    for part in link.split('/') {
        match part {
            ".." => _ = path.pop(),
            part => path.push(part),
        }
    }
    (path.first() != Some(&PAGES)).then(|| path.join("/"))
}

/// Where the bracket is that begins the text of a link; the text ends with `before`.
fn opening(before: &str) -> Option<usize> {
    let mut depth = 0_usize;
    for (place, character) in before.char_indices().rev() {
        match character {
            '[' if depth == 0 => return Some(place),
            '[' => depth -= 1,
            ']' => depth += 1,
            _ => {}
        }
    }
    None
}

/// mdBook as installed, or as built by this command.
fn mdbook() -> Result<PathBuf> {
    let is_right = |program: &str| {
        let output = Command::new(program).arg("--version").output();
        output.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains(VERSION))
    };
    if is_right("mdbook") {
        return Ok("mdbook".into());
    }
    let folder = target().join("tools");
    let built = folder.join("bin").join("mdbook");
    if !is_right(&built.to_string_lossy()) {
        println!("building mdBook {VERSION}, which takes a few minutes");
        let mut install = cargo();
        install.args(["install", "mdbook", "--locked", "--version", VERSION, "--root"]).arg(&folder);
        step(&mut install, &mut Totals::default())?;
    }
    Ok(built)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn links_out_of_the_site_become_links_to_the_repository_or_text() {
        let page = "[a](http.md#b), [the `[x]`\n[y]](../../examples/api/src/main.rs#c)! [d](https://e.f)\n";
        let folder = Path::new("docs/migrating");
        assert_eq!(
            self_contained(page, folder, "https://g.h/i"),
            page.replace("../..", "https://g.h/i/blob/HEAD")
        );
        assert_eq!(self_contained(page, folder, ""), "[a](http.md#b), the `[x]`\n[y]! [d](https://e.f)\n");
    }

    /// mdBook makes a page of each document that SUMMARY.md names, and copies the other files.
    #[test]
    fn links_of_the_site_lead_to_its_pages_and_files() {
        let source = target().join("site-source-test");
        let _ = fs::remove_dir_all(&source);
        copy(Path::new(PAGES), &source, "").expect("a copy");
        let summary = fs::read_to_string(source.join(PAGES).join("SUMMARY.md")).expect("SUMMARY.md");
        let links =
            |page: &str| targets(page).into_iter().map(|place| page[place].to_owned()).collect::<Vec<_>>();
        let pages: BTreeSet<PathBuf> = links(&summary)
            .iter()
            .filter(|page| !page.is_empty())
            .map(|page| source.join(PAGES).join(page).canonicalize().expect("a page"))
            .collect();
        assert!(pages.len() > 30, "only {} pages", pages.len());
        let mut dead = Vec::new();
        for page in &pages {
            let folder = page.parent().expect("a folder");
            for link in links(&fs::read_to_string(page).expect("a page")) {
                let file = link.split('#').next().unwrap_or_default();
                let led = folder.join(file).canonicalize();
                let is_alive = link.contains("://")
                    || file.is_empty()
                    || led.is_ok_and(|file| {
                        pages.contains(&file)
                            || file.is_file() && file.extension().is_none_or(|kind| kind != "md")
                    });
                if !is_alive {
                    dead.push(format!("{}: {link}", page.display()));
                }
            }
        }
        assert!(dead.is_empty(), "dead links:\n{}", dead.join("\n"));
    }
}
