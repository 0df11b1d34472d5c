//! Prints every directive of a configuration as `line<TAB>word<TAB>word...`, blocks indented by their depth, so that another
//! parser's reading can be compared with ours: `cargo run -p conf-syntax --example words FILE`.

use conf_syntax::{Directive, Disk, TreeItem, list_directives, load_files};
use std::path::Path;

fn print(d: &Directive, depth: usize) {
    let words: Vec<String> = std::iter::once(&d.name).chain(&d.args).map(|w| format!("{:?}", w.text())).collect();
    println!("{depth}\t{}", words.join("\t"));
    for inner in list_directives(d.block.as_deref().unwrap_or_default()) {
        print(inner, depth + 1);
    }
}

fn error(items: &[TreeItem]) -> Option<&str> {
    items.iter().find_map(|item| match item {
        TreeItem::Error(e) => Some(e.text.as_str()),
        TreeItem::Directive(d) => d.block.as_deref().and_then(error),
        TreeItem::Comment(_) => None,
    })
}

fn main() -> std::io::Result<()> {
    for path in std::env::args().skip(1) {
        println!("file {path}");
        let read = load_files(&Disk, Path::new(&path))?;
        if let Some(words) = error(&read.items) {
            println!("error {words}");
        }
        for d in list_directives(&read.items) {
            print(d, 0);
        }
    }
    Ok(())
}
