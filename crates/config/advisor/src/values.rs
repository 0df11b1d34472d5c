//! Words with variables, and the origins of variables' values.

use crate::scope::Scopes;
use conf_schema::Contexts;
use std::collections::{HashMap, HashSet};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    Text(String),
    /// Name without `$`; a group of the last match is its number.
    Variable(String),
}

/// Splits a word as nginx's scripts do.
pub fn split_pieces(text: &str) -> Vec<Piece> {
    let mut out = Vec::new();
    let mut plain = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        let (before, after) = (&rest[..at], &rest[at + 1..]);
        plain.push_str(before);
        let (name, length) = match after.strip_prefix('{') {
            Some(braced) => match braced.find('}') {
                Some(end) => (&braced[..end], end + 2),
                None => ("", 0),
            },
            None if after.starts_with(|c: char| c.is_ascii_digit()) => (&after[..1], 1),
            None => {
                let end = after.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(after.len());
                (&after[..end], end)
            }
        };
        if name.is_empty() {
            plain.push('$');
            rest = after;
            continue;
        }
        if !plain.is_empty() {
            out.push(Piece::Text(std::mem::take(&mut plain)));
        }
        out.push(Piece::Variable(name.to_ascii_lowercase()));
        rest = &after[length..];
    }
    plain.push_str(rest);
    if !plain.is_empty() {
        out.push(Piece::Text(plain));
    }
    out
}

pub fn variable_names(text: &str) -> Vec<String> {
    let named = |piece| match piece {
        Piece::Variable(name) => Some(name),
        Piece::Text(_) => None,
    };
    split_pieces(text).into_iter().filter_map(named).collect()
}

#[derive(Default)]
pub struct Sources {
    words: HashMap<String, Vec<String>>,
}

impl Sources {
    pub fn of(scopes: &Scopes<'_>) -> Sources {
        let mut words: HashMap<String, Vec<String>> = HashMap::new();
        for scope in &scopes.all {
            for d in &scope.own {
                let args: Vec<String> = d.args.iter().map(|word| word.text().into_owned()).collect();
                match (&*d.name.text(), args.as_slice()) {
                    ("set", [name, value]) => words.entry(plain(name)).or_default().push(value.clone()),
                    ("map" | "num_map" | "geo" | "split_clients", [.., name]) if scope.context == Contexts::http => {
                        let inner = d.block.as_deref().map(conf_syntax::list_directives).unwrap_or_default();
                        let values = inner.iter().filter(|line| line.args.len() == 1);
                        let values = values.filter_map(|line| line.args.first()).map(|word| word.text().into_owned());
                        words.entry(plain(name)).or_default().extend(values);
                    }
                    _ => {}
                }
            }
        }
        Sources { words }
    }
    pub fn words(&self, name: &str) -> &[String] {
        self.words.get(name).map_or(&[], Vec::as_slice)
    }
    /// Directly or through its values.
    pub fn sent_by_clients(&self, name: &str) -> bool {
        self.any(name, &mut HashSet::new(), &|name| {
            ["arg_", "http_", "cookie_"].iter().any(|family| name.starts_with(family))
                || matches!(name, "args" | "query_string" | "request_uri" | "uri" | "document_uri" | "request_body")
        })
    }
    /// Tests a variable and, recursively, the variables in its values.
    pub fn any(&self, name: &str, seen: &mut HashSet<String>, test: &dyn Fn(&str) -> bool) -> bool {
        if !seen.insert(name.to_string()) {
            return false;
        }
        match self.words.get(name) {
            Some(words) => words.iter().flat_map(|word| variable_names(word)).any(|inner| self.any(&inner, seen, test)),
            None => test(name),
        }
    }
}

fn plain(name: &str) -> String {
    name.trim_start_matches('$').to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_taken_apart() {
        let shown = |text: &str| {
            let show = |piece: &Piece| match piece {
                Piece::Text(text) => text.clone(),
                Piece::Variable(name) => format!("<{name}>"),
            };
            split_pieces(text).iter().map(show).collect::<String>()
        };
        assert_eq!(shown("http://$host$request_uri"), "http://<host><request_uri>");
        assert_eq!(shown("a${b}c$1x$"), "a<b>c<1>x$");
        assert_eq!(shown("$http_X_Y/"), "<http_x_y>/");
    }
}
