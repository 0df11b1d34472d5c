//! `cargo xtask chain`: the longest chain of crates that compile one after the other, in lines of source.
//!
//! A crate waits for the crates in its `[dependencies]`; the lines below their `src` folders stand for the time. The rest of the
//! workspace compiles beside the chain.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

pub const HELP: &str = "\
Usage: cargo xtask chain

Prints the chain of crates, each a dependency of the next, whose sources have most lines: no number of
cores builds the product faster than this chain. \"cargo xtask tidy\" refuses a longer one.

  cargo xtask chain
";

/// Lines of the longest chain.
const LINES_MAX: usize = 75_000;

struct CrateSource {
    lines: usize,
    /// Names of the workspace's crates.
    needs: Vec<String>,
}

/// From the first crate to the last one, with their lines.
type Chain = Vec<(String, usize)>;

pub fn print_chain(_: &[String]) -> Result<(), String> {
    let chain = longest_chain(&all_sources());
    for (name, lines) in &chain {
        println!("{name:<20} {lines:>6}");
    }
    println!("{:<20} {:>6}, at most {LINES_MAX}", "lines", total_lines(&chain));
    Ok(())
}

pub fn chain_complaint() -> Option<String> {
    let chain = longest_chain(&all_sources());
    let total = total_lines(&chain);
    let names: Vec<&str> = chain.iter().map(|(name, _)| name.as_str()).collect();
    (total > LINES_MAX).then(|| {
        format!(
            "crates: {total} lines compile one after the other, more than {LINES_MAX}: {}; see cargo xtask chain",
            names.join(" < ")
        )
    })
}

fn total_lines(chain: &Chain) -> usize {
    chain.iter().map(|(_, lines)| lines).sum()
}

/// By the folder's name, which is the crate's name of dependencies.
fn all_sources() -> BTreeMap<String, CrateSource> {
    let source = |(name, folder): (String, std::path::PathBuf)| {
        let manifest = fs::read_to_string(folder.join("Cargo.toml")).unwrap_or_default();
        (name, CrateSource { lines: source_lines(&folder.join("src")), needs: dependency_names(&manifest) })
    };
    crate::crates::all_crates().into_iter().map(source).collect()
}

fn source_lines(folder: &Path) -> usize {
    let paths = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let lines = |path: std::path::PathBuf| match path.is_dir() {
        true => source_lines(&path),
        false if path.extension().is_some_and(|e| e == "rs") => {
            fs::read_to_string(&path).map_or(0, |text| text.lines().count())
        }
        false => 0,
    };
    paths.map(lines).sum()
}

/// Names below `[dependencies]`; those below `[dev-dependencies]` wait for no library.
fn dependency_names(manifest: &str) -> Vec<String> {
    let section = manifest.split("\n[dependencies]\n").nth(1).unwrap_or_default();
    let section = section.split("\n[").next().unwrap_or_default();
    let names = section.lines().filter(|line| !line.starts_with('#'));
    names.map(|line| line.split(['.', '=', ' ']).next().unwrap_or_default().to_string()).collect()
}

fn longest_chain(sources: &BTreeMap<String, CrateSource>) -> Chain {
    let mut known = BTreeMap::new();
    let chains = sources.keys().map(|name| chain_to(name, sources, &mut known));
    chains.max_by_key(total_lines).unwrap_or_default()
}

/// The longest chain that ends with a crate. Cargo has refused circles.
fn chain_to(name: &str, sources: &BTreeMap<String, CrateSource>, known: &mut BTreeMap<String, Chain>) -> Chain {
    if let Some(chain) = known.get(name) {
        return chain.clone();
    }
    let Some(source) = sources.get(name) else { return Chain::new() };
    let before = source.needs.iter().map(|need| chain_to(need, sources, known));
    let mut chain = before.max_by_key(total_lines).unwrap_or_default();
    chain.push((name.to_string(), source.lines));
    known.insert(name.to_string(), chain.clone());
    chain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chain_follows_the_most_lines() {
        let source = |lines, needs: &str| CrateSource {
            lines,
            needs: needs.split_whitespace().map(ToString::to_string).collect(),
        };
        let sources = BTreeMap::from([
            ("base".to_string(), source(10, "libc")),
            ("short".to_string(), source(5, "base")),
            ("long".to_string(), source(30, "base")),
            ("top".to_string(), source(7, "short long")),
            ("beside".to_string(), source(40, "")),
        ]);
        let chain = longest_chain(&sources);
        let names: Vec<&str> = chain.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!((names, total_lines(&chain)), (vec!["base", "long", "top"], 47));
    }

    #[test]
    fn development_needs_are_no_part_of_the_chain() {
        let manifest = "[package]\nname = \"a\"\n\n[dependencies]\n# Why.\nbase.workspace = true\nlibc = \"1\"\n\n\
                        [dev-dependencies]\ntestkit.workspace = true\n";
        let names: Vec<String> = dependency_names(manifest).into_iter().filter(|name| !name.is_empty()).collect();
        assert_eq!(names, ["base", "libc"]);
    }
}
