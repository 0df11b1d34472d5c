//! The effective configuration: every value with the file and line that set it.

use advisor::scope::{inner_context, render_line, same_area};
use conf_schema::{Contexts, KnownDirective, Schema, vocabulary};
use conf_syntax::{Directive, SourceFiles, TreeItem, list_directives};
use std::fmt::Write;
use std::path::Path;

/// The blocks around it are outermost first.
struct BlockLevel<'a> {
    name: String,
    context: Contexts,
    own: Vec<&'a Directive>,
}

pub struct PlanLine {
    /// Blocks around it.
    pub depth: usize,
    pub text: String,
    /// `FILE:LINE`, with the block that it is inherited from; `default`; empty for the end of a block.
    pub place: String,
}

struct Printer<'a> {
    schema: &'a Schema,
    files: &'a SourceFiles,
    shown: &'a dyn Fn(&Path) -> String,
    out: Vec<PlanLine>,
}

pub fn plan_text(schema: &Schema, files: &SourceFiles, items: &[TreeItem]) -> String {
    let mut out = String::new();
    for PlanLine { depth, text, place } in plan_lines(schema, files, items, &|path| path.display().to_string()) {
        let text = format!("{}{text}", "    ".repeat(depth));
        let _ = match place.is_empty() {
            true => writeln!(out, "{text}"),
            false => writeln!(out, "{text:<56} # {place}"),
        };
    }
    out
}

pub fn plan_lines(
    schema: &Schema,
    files: &SourceFiles,
    items: &[TreeItem],
    shown: &dyn Fn(&Path) -> String,
) -> Vec<PlanLine> {
    let mut printer = Printer { schema, files, shown, out: Vec::new() };
    let main = BlockLevel { name: "main".into(), context: Contexts::main, own: list_directives(items) };
    printer.level(&mut vec![main]);
    printer.out
}

impl Printer<'_> {
    /// Returns all effective directives of the innermost block of `path`.
    fn level(&mut self, path: &mut Vec<BlockLevel<'_>>) {
        let Some(here) = path.last() else { return };
        let context = here.context;
        let own = here.own.clone();
        for d in own.iter().filter(|d| inner_context(d, context).is_none()) {
            let place = self.place(d);
            self.line(path.len(), &render_line(d), &place);
            if let Some(block) = &d.block {
                for item in list_directives(block) {
                    let place = self.place(item);
                    self.line(path.len() + 1, &render_line(item), &place);
                }
                self.line(path.len(), "}", "");
            }
        }
        for known in vocabulary::all().filter(|known| known.contexts.has(context)) {
            self.not_written(known, path);
        }
        for d in own {
            let Some(inner) = inner_context(d, context) else { continue };
            let place = self.place(d);
            self.line(path.len(), &render_line(d), &place);
            let own = d.block.as_deref().map(list_directives).unwrap_or_default();
            path.push(BlockLevel { name: d.name.text().into_owned(), context: inner, own });
            self.level(path);
            path.pop();
            self.line(path.len(), "}", "");
        }
    }

    /// Returns a directive that this block lacks: inherited, or (in an outermost block) its default.
    fn not_written(&mut self, known: &KnownDirective, path: &[BlockLevel<'_>]) {
        let Some((here, outer)) = path.split_last() else { return };
        let Some(row) = self.schema.row(known) else { return };
        if known.block || here.own.iter().any(|d| d.name.bytes == known.name.as_bytes()) {
            return;
        }
        for level in outer.iter().rev().filter(|level| row.inherits && same_area(level.context, here.context)) {
            let lines: Vec<_> = level.own.iter().filter(|d| d.name.bytes == known.name.as_bytes()).collect();
            if !known.contexts.has(level.context) || lines.is_empty() {
                continue;
            }
            for d in lines {
                let place = format!("{}, from {}", self.place(d), level.name);
                self.line(path.len(), &render_line(d), &place);
            }
            return;
        }
        let outermost = outer.last().is_none_or(|level| !same_area(level.context, here.context));
        if outermost && let Some(default) = row.default.filter(|text| !text.is_empty()) {
            self.line(path.len(), &format!("{} {default};", known.name), "default");
        }
    }

    fn place(&self, d: &Directive) -> String {
        format!("{}:{}", (self.shown)(self.files.path(d.span.file)), d.line)
    }

    fn line(&mut self, depth: usize, text: &str, place: &str) {
        self.out.push(PlanLine { depth: depth - 1, text: text.into(), place: place.into() });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use conf_schema::value::{Flag, Own, Size, Text};
    use conf_schema::{ContextArea, directives as table};
    use conf_syntax::{Memory, load_text};

    table! {
        /// For the test.
        pub struct Some from SomeInput {
            /// One.
            gzip: Flag = "off",
            /// Two.
            root: Text,
            /// Three.
            client_max_body_size: Size = "1m",
            /// Four.
            proxy_pass: Own<Text>,
        }
    }

    #[test]
    fn every_value_has_its_place() {
        let schema = Schema::new(vec![Some::table("some", ContextArea::Http)], "tidegate 0");
        let read = load_text(
            &Memory::default(),
            Path::new("/n.conf"),
            "http {\n gzip on;\n server {\n root \"/a b\";\n location / {\n gzip off;\n proxy_pass x;\n location /i { } } } }"
                .into(),
        );
        let want = [
            ("http {", "/n.conf:1"),
            ("    gzip on;", "/n.conf:2"),
            ("    client_max_body_size 1m;", "default"),
            ("    server {", "/n.conf:3"),
            ("        root \"/a b\";", "/n.conf:4"),
            ("        gzip on;", "/n.conf:2, from http"),
            ("        location / {", "/n.conf:5"),
            ("            gzip off;", "/n.conf:6"),
            ("            proxy_pass x;", "/n.conf:7"),
            ("            root \"/a b\";", "/n.conf:4, from server"),
            ("            location /i {", "/n.conf:8"),
            ("                gzip off;", "/n.conf:6, from location"),
            ("                root \"/a b\";", "/n.conf:4, from server"),
            ("            }", ""),
            ("        }", ""),
            ("    }", ""),
            ("}", ""),
        ];
        let text = plan_text(&schema, &read.files, &read.items);
        let got: Vec<(&str, &str)> = text.lines().map(|l| l.split_once(" # ").unwrap_or((l, ""))).collect();
        let got: Vec<(&str, &str)> = got.iter().map(|(a, b)| (a.trim_end(), *b)).collect();
        assert_eq!(got, want, "{text}");
    }
}
