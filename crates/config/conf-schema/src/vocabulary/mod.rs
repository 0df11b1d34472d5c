//! All directives of nginx 1.31 and Tidegate with their contexts and numbers of arguments. The features' tables define
//! which of them this version supports; for others the error is "not supported by this version".

pub mod foreign;
mod nginx;
mod ours;
pub mod variables;

use crate::context::Contexts;
use std::collections::HashMap;
use std::sync::OnceLock;

/// Area of a context. A directive may exist in several areas (`server`, `listen`, `access_log`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ContextArea {
    Main,
    Http,
    HttpUpstream,
    Stream,
    StreamUpstream,
    Mail,
}

impl ContextArea {
    pub const fn of(contexts: Contexts) -> ContextArea {
        if contexts.0 == Contexts::upstream.0 {
            ContextArea::HttpUpstream
        } else if contexts.0 == Contexts::stream_upstream.0 {
            ContextArea::StreamUpstream
        } else if contexts.has(Contexts::HTTP_ALL) {
            ContextArea::Http
        } else if contexts.0 >= Contexts::mail.0 {
            ContextArea::Mail
        } else if contexts.0 >= Contexts::stream.0 {
            ContextArea::Stream
        } else {
            ContextArea::Main
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arity {
    /// Permitted numbers of arguments: bit N for N arguments.
    Counts(u16),
    AtLeast(usize),
}

impl Arity {
    pub const fn exact(n: usize) -> Arity {
        Arity::Counts(1 << n)
    }
    /// Returns the numbers with their noun: `1 argument`, `2 or more arguments`.
    pub fn words(self) -> String {
        let text = self.to_string();
        let one = text == "1" || text == "no";
        format!("{text} argument{}", if one { "" } else { "s" })
    }
    pub const fn takes(self, n: usize) -> bool {
        match self {
            Arity::Counts(mask) => n < 16 && mask & (1 << n) != 0,
            Arity::AtLeast(least) => n >= least,
        }
    }
}

impl std::fmt::Display for Arity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Arity::AtLeast(n) => write!(f, "{n} or more"),
            Arity::Counts(mask) => {
                let counts: Vec<String> = (0..16).filter(|n| mask & (1 << n) != 0).map(|n| n.to_string()).collect();
                match counts.as_slice() {
                    [] => f.write_str("no"),
                    [one] if one == "0" => f.write_str("no"),
                    [many @ .., last] if !many.is_empty() => {
                        write!(f, "{} or {last}", many.join(", "))
                    }
                    [one, ..] => f.write_str(one),
                }
            }
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub struct KnownDirective {
    pub name: &'static str,
    /// nginx's module, `tidegate`, or the third-party module of origin.
    pub module: &'static str,
    pub contexts: Contexts,
    pub arity: Arity,
    pub block: bool,
    /// As documented by nginx; empty without one.
    pub default: &'static str,
    /// First nginx version, where known.
    pub since: &'static str,
}

impl KnownDirective {
    /// Tells whether a directive with a block is written without one, as `cors off;` is.
    pub fn may_lack_block(&self, d: &conf_syntax::Directive) -> bool {
        self.name == "cors" && matches!(d.args.as_slice(), [word] if word.bytes == b"off")
    }
    pub const fn area(&self) -> ContextArea {
        ContextArea::of(self.contexts)
    }
}

const fn k(
    name: &'static str,
    module: &'static str,
    contexts: u32,
    arity: Arity,
    block: bool,
    default: &'static str,
    since: &'static str,
) -> KnownDirective {
    KnownDirective { name, module, contexts: Contexts(contexts), arity, block, default, since }
}

pub fn all() -> impl Iterator<Item = &'static KnownDirective> {
    nginx::ROWS.iter().chain(ours::ROWS)
}

pub fn find_directives(name: &str) -> &'static [&'static KnownDirective] {
    static INDEX: OnceLock<HashMap<&'static str, Vec<&'static KnownDirective>>> = OnceLock::new();
    let index = INDEX.get_or_init(|| {
        let mut index: HashMap<&'static str, Vec<&'static KnownDirective>> = HashMap::new();
        for row in all() {
            index.entry(row.name).or_default().push(row);
        }
        index
    });
    index.get(name).map_or(&[], Vec::as_slice)
}
