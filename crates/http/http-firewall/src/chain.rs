//! The rules of a block behind those of its parents: read with the configuration, compiled once for each block with rules.

use conf_schema::{At, Complaint, ComplaintLevel, Cx, Directive, Problem, TextStore, ValueKind, value::word_at};
use conf_syntax::{Disk, SourceSpan, TextSource, is_pattern, matches_include};
use std::cell::RefCell;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use waf::{Place, RuleError, RuleFiles, RuleSet, RuleText};

/// Width of an excerpt of a rule in messages, in characters.
const EXCERPT_MAX: usize = 160;

/// A `modsecurity_rules` or `modsecurity_rules_file` line.
#[derive(Debug)]
pub struct RuleLine {
    /// Number of the block, which is above those of its parents, and of the line among all.
    order: (usize, usize),
    at: At,
    directive: &'static str,
    text: RuleText,
    /// Of rules in the configuration.
    inline: Option<InlineRules>,
}

/// Place of rules that are written in the configuration.
#[derive(Clone, Copy, Debug)]
struct InlineRules {
    /// Empty lines in front of the rules, which give them the numbers of the configuration's lines.
    lines_before: usize,
    /// Offset of the rules in their file; `None` with escaped characters, behind which offsets differ.
    start: Option<u32>,
}

/// Lines so far, for their order: two directives add to one chain.
#[derive(Default)]
struct LineCount(usize);

impl RuleLine {
    fn new(
        cx: &mut Cx,
        d: &Directive,
        directive: &'static str,
        text: RuleText,
        inline: Option<InlineRules>,
    ) -> Arc<RuleLine> {
        let count = cx.get::<LineCount>();
        count.0 += 1;
        let order = (cx.get::<LineCount>().0, cx.block);
        Arc::new(RuleLine { order: (order.1, order.0), at: At { span: d.span, line: d.line }, directive, text, inline })
    }

    /// Makes the line of `modsecurity_rules_file`. Fails if the file cannot be read.
    pub fn of_file(cx: &mut Cx, d: &Directive) -> Result<Arc<RuleLine>, Problem> {
        let name = word_at(d, 0)?.text().into_owned();
        let path = cx.conf_full_name(&name);
        let bytes = cx.store.read(&path).map_err(|error| {
            let words = format!("cannot read rules from \"{}\" {}", path.display(), observe::os_error(&error));
            Problem::says(words).at(0)
        })?;
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let name = path.display().to_string().into();
        Ok(RuleLine::new(cx, d, "modsecurity_rules_file", RuleText { name, text }, None))
    }

    fn inline(cx: &mut Cx, d: &Directive) -> Result<Arc<RuleLine>, Problem> {
        let word = word_at(d, 0)?;
        let file = cx.files.get(d.span.file.0 as usize).cloned().unwrap_or_default();
        let rules = word.text();
        let lines = rules.matches('\n').count();
        let lines_before = (d.line as usize).saturating_sub(lines + 1);
        let quotes = if word.quoted { 2 } else { 0 };
        let is_as_written = (word.span.end - word.span.start) as usize == word.bytes.len() + quotes;
        let start = (is_as_written && word.bytes.len() == rules.len()).then(|| word.span.start + quotes as u32 / 2);
        let text = "\n".repeat(lines_before) + &rules;
        let text = RuleText { name: file.display().to_string().into(), text };
        Ok(RuleLine::new(cx, d, "modsecurity_rules", text, Some(InlineRules { lines_before, start })))
    }
    fn has_place(&self, place: &Place) -> bool {
        let line = place.line as usize;
        let lines = || self.text.text.matches('\n').count() + 1;
        self.text.name == place.file && self.inline.is_none_or(|inline| line > inline.lines_before && line <= lines())
    }
    /// The word of the configuration at a place.
    fn word_at(&self, place: &Place, inline: InlineRules) -> Option<At> {
        let start = inline.start?;
        let before = self.text.text.split_inclusive('\n').take((place.line as usize).saturating_sub(1));
        let offset = before.map(str::len).sum::<usize>() + (place.column as usize).saturating_sub(1);
        let word = self.text.text.get(offset..).unwrap_or_default();
        let length = word.find(|c: char| c.is_whitespace() || matches!(c, '"' | ',')).unwrap_or(word.len()).max(1);
        let start = start + offset.saturating_sub(inline.lines_before) as u32;
        Some(At { span: SourceSpan { start, end: start + length as u32, ..self.at.span }, line: place.line })
    }
}

/// `modsecurity_rules` lines, in any order.
#[derive(Clone, Debug, Default)]
pub struct RuleLines(Vec<Arc<RuleLine>>);

impl ValueKind for RuleLines {
    const SYNTAX: &'static str = "rules";
    const REPEATS: bool = true;
    const MERGES: bool = true;
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        RuleLine::inline(cx, d).map(RuleLines::of)
    }
    fn append(&mut self, later: Self) {
        self.0.extend(later.0);
    }
    fn merge(&mut self, outer: &Self) {
        self.0.extend(outer.0.iter().cloned());
    }
}

impl RuleLines {
    /// Makes the lines of a directive from its first line.
    pub fn of(line: Arc<RuleLine>) -> RuleLines {
        RuleLines(vec![line])
    }
    /// Joins lines of several directives in the order of their effect: outer blocks first, then as written.
    pub fn joined<'l>(parts: impl IntoIterator<Item = Option<&'l RuleLines>>) -> RuleLines {
        let mut all: Vec<Arc<RuleLine>> =
            parts.into_iter().flatten().flat_map(|lines| lines.0.iter().cloned()).collect();
        all.sort_by_key(|line| line.order);
        all.dedup_by_key(|line| line.order);
        RuleLines(all)
    }
    /// Tells whether there are no lines.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
    /// Returns the names of the files in their order; lines in the configuration have its name.
    pub fn names(&self) -> Vec<Arc<str>> {
        let mut names: Vec<Arc<str>> = self.0.iter().map(|line| line.text.name.clone()).collect();
        names.dedup();
        names
    }
    /// Adds a warning about the rules, at their last line, once.
    pub fn warn(&self, cx: &mut Cx, text: &str) {
        let at = self.0.last().map(|line| line.at);
        let complaint = Complaint {
            level: ComplaintLevel::Warn,
            text: text.into(),
            span: at.map(|at| at.span),
            line: at.map_or(0, |at| at.line),
            hint: None,
        };
        if !cx.warnings.contains(&complaint) {
            cx.warnings.push(complaint);
        }
    }
    /// Attributes a problem of the rules to their last line.
    pub fn place(&self, problem: Problem) -> Problem {
        match self.0.last() {
            Some(line) => Problem { inner: problem.inner.or(Some(line.at)), ..problem.of(line.directive) },
            None => problem,
        }
    }
}

/// A compiled chain with its texts.
type CompiledChain = (Vec<RuleText>, Result<Arc<RuleSet>, Problem>);

/// Compiled chains: blocks with the same texts share a set, whether they inherit their lines or have lines of their own.
#[derive(Default)]
struct CompiledChains {
    by_lines: HashMap<Vec<(usize, usize)>, Result<Arc<RuleSet>, Problem>>,
    /// By a hash of the texts.
    by_texts: HashMap<u64, Vec<CompiledChain>>,
}

impl CompiledChains {
    fn of_texts(&self, key: u64, texts: &[RuleText]) -> Option<Result<Arc<RuleSet>, Problem>> {
        let same = self.by_texts.get(&key)?.iter().find(|(known, _)| known == texts)?;
        Some(same.1.clone())
    }
}

fn hash_texts(texts: &[RuleText]) -> u64 {
    let mut hasher = DefaultHasher::new();
    for text in texts {
        text.name.hash(&mut hasher);
        text.text.hash(&mut hasher);
    }
    hasher.finish()
}

/// Files of rules, read through the record of the configuration: a worker sees the files that the master has read.
struct StoredFiles<'s>(RefCell<&'s mut TextStore>);

/// A name in a file of rules, relative to the file's folder.
pub(crate) fn beside(from: &str, name: &str) -> PathBuf {
    Path::new(from).parent().unwrap_or(Path::new("/")).join(name)
}

impl StoredFiles<'_> {
    fn read(&self, path: &Path) -> Result<Arc<[u8]>, String> {
        self.0.borrow_mut().read(path).map_err(|error| format!("\"{}\" {}", path.display(), observe::os_error(&error)))
    }
    fn matching(&self, pattern: &Path) -> Vec<PathBuf> {
        let pattern = pattern.to_string_lossy();
        let store = self.0.borrow();
        if !store.replay {
            return Disk.glob(&pattern);
        }
        let known = store.files.iter().filter(|(_, text)| text.is_ok()).map(|(path, _)| path);
        let mut found: Vec<PathBuf> =
            known.filter(|path| matches_include(&pattern, &path.to_string_lossy())).cloned().collect();
        found.sort();
        found
    }
}

impl RuleFiles for StoredFiles<'_> {
    fn include(&self, pattern: &str, from: &str) -> Result<Vec<RuleText>, String> {
        let full = beside(from, pattern);
        let paths = if is_pattern(pattern) { self.matching(&full) } else { vec![full] };
        let texts = paths.into_iter().map(|path| {
            let text = String::from_utf8_lossy(&self.read(&path)?).into_owned();
            Ok(RuleText { name: path.display().to_string().into(), text })
        });
        texts.collect()
    }
    fn data(&self, name: &str, from: &str) -> Result<Vec<u8>, String> {
        self.read(&beside(from, name)).map(|bytes| bytes.to_vec())
    }
}

/// Compiles the rules of a block behind those of its parents, which blocks share. Warnings go to `cx.warnings`, once for
/// each chain. Fails with the first error, at the line of the configuration that brought the rule; the message has the
/// place in the file of rules, too.
pub fn compile_chain(cx: &mut Cx, lines: &RuleLines) -> Result<Arc<RuleSet>, Problem> {
    let key: Vec<(usize, usize)> = lines.0.iter().map(|line| line.order).collect();
    if let Some(known) = cx.get::<CompiledChains>().by_lines.get(&key) {
        return known.clone();
    }
    let texts_of = |lines: &[Arc<RuleLine>]| lines.iter().map(|line| line.text.clone()).collect::<Vec<RuleText>>();
    // Of the parents as well: equal rules behind others are another chain.
    let texts = texts_of(&lines.0);
    let hash = hash_texts(&texts);
    if let Some(known) = cx.get::<CompiledChains>().of_texts(hash, &texts) {
        cx.get::<CompiledChains>().by_lines.insert(key, known.clone());
        return known;
    }
    let (outer, own) = lines.divided();
    // Rules that stand in two blocks, such as a chain, are compiled together.
    let of_parents = if outer.is_empty() { None } else { Some(compile_chain(cx, &outer)) };
    let parent = of_parents.as_ref().and_then(|compiled| compiled.as_ref().ok());
    let mut store = std::mem::take(&mut cx.store);
    let files = StoredFiles(RefCell::new(&mut store));
    let compiled = match parent {
        Some(parent) => RuleSet::compile_behind(parent, &texts_of(own), &files),
        None => RuleSet::compile(&texts, &files),
    };
    let compiled = match compiled {
        Ok((rules, warnings)) => {
            for warning in warnings {
                let line = lines.line_of(&warning.place);
                let inline = lines.inline_place(&warning.place);
                let at = inline.or(line.map(|line| line.at));
                let text = match inline {
                    Some(_) => warning.reason,
                    None => format!("{} in {}:{}", warning.reason, warning.place.file, warning.place.line),
                };
                let complaint = Complaint {
                    level: ComplaintLevel::Warn,
                    text,
                    span: at.map(|at| at.span),
                    line: at.map_or(0, |at| at.line),
                    hint: None,
                };
                // An inner block repeats the rules of its parents.
                if !cx.warnings.contains(&complaint) {
                    cx.warnings.push(complaint);
                }
            }
            Ok(rules)
        }
        // An error of the parents' rules, or of a file that they include, is theirs.
        Err(error) => match of_parents {
            Some(Err(problem)) => Err(problem),
            _ => Err(word_error(&error, lines, &files)),
        },
    };
    cx.store = store;
    let chains = cx.get::<CompiledChains>();
    chains.by_lines.insert(key, compiled.clone());
    chains.by_texts.entry(hash).or_default().push((texts, compiled.clone()));
    compiled
}

impl RuleLines {
    /// The lines of the parents, and those of the innermost block.
    fn divided(&self) -> (RuleLines, &[Arc<RuleLine>]) {
        let block = self.0.last().map(|line| line.order.0);
        let first = self.0.iter().position(|line| Some(line.order.0) == block).unwrap_or(0);
        let (outer, own) = self.0.split_at(first);
        (RuleLines(outer.to_vec()), own)
    }
    /// The line that brought a place in rules: its own, or the last one before an included file. The first of several that end in one
    /// line of the configuration.
    fn line_of(&self, place: &Place) -> Option<&Arc<RuleLine>> {
        self.0.iter().find(|line| line.has_place(place)).or(self.0.last())
    }
    /// Tells whether no other line ends in the same line of the configuration.
    fn is_only(&self, place: &Place) -> bool {
        self.0.iter().filter(|line| line.has_place(place)).count() == 1
    }
    /// Returns where rules of the configuration have a place: its word, or the directive if that is not known. `None` for files of rules.
    fn inline_place(&self, place: &Place) -> Option<At> {
        let line = self.0.iter().find(|line| line.has_place(place))?;
        let word = line.inline.map(|inline| line.word_at(place, inline))?;
        Some(word.filter(|_| self.is_only(place)).unwrap_or(At { line: place.line, ..line.at }))
    }
}

/// Returns the problem of an error in rules that are compiled already, at the line of the configuration that brought it.
pub(crate) fn rule_problem(cx: &mut Cx, error: &RuleError, lines: &RuleLines) -> Problem {
    word_error(error, lines, &StoredFiles(RefCell::new(&mut cx.store)))
}

fn word_error(error: &RuleError, lines: &RuleLines, files: &StoredFiles<'_>) -> Problem {
    let place = &error.place;
    let line = lines.line_of(place);
    let inline = lines.inline_place(place);
    if let Some((line, at)) = line.zip(inline)
        && at.span != line.at.span
    {
        let problem = Problem { hint: error.suggestion.clone(), ..Problem::says(format!("rules: {}", error.reason)) };
        return Problem { inner: Some(at), ..problem.of(line.directive) };
    }
    let own = line.filter(|line| line.text.name == place.file).map(|line| line.text.text.clone());
    let text = own.or_else(|| {
        let bytes = files.read(Path::new(&*place.file)).ok()?;
        Some(String::from_utf8_lossy(&bytes).into_owned())
    });
    let mut hint = match inline {
        Some(_) => format!("--> {}:{}", place.file, place.line),
        None => format!("--> {}:{}:{}", place.file, place.line, place.column),
    };
    let text = text.filter(|_| inline.is_none() || lines.is_only(place));
    let row = text.as_deref().and_then(|text| text.lines().nth((place.line as usize).saturating_sub(1)));
    if let Some(row) = row {
        let before = row.get(..(place.column as usize).saturating_sub(1)).map_or(0, |before| before.chars().count());
        // A long line is shown around the place.
        let skipped = before.saturating_sub(EXCERPT_MAX / 2);
        let shown: String =
            row.chars().skip(skipped).take(EXCERPT_MAX).map(|c| if c == '\t' { ' ' } else { c }).collect();
        hint.push_str(&format!("\n    | {shown}\n    | {}^", " ".repeat(before - skipped)));
    }
    if let Some(suggestion) = &error.suggestion {
        hint.push_str(&format!("\n  = {suggestion}"));
    }
    let words = match inline {
        Some(_) => format!("rules: {}", error.reason),
        None => format!("rules: {} in {}:{}", error.reason, place.file, place.line),
    };
    let problem = Problem::says(words).hint(hint);
    match line {
        Some(line) => Problem { inner: Some(inline.unwrap_or(line.at)), ..problem.of(line.directive) },
        None => problem,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(block: usize, number: usize) -> Arc<RuleLine> {
        let text = RuleText { name: "x".into(), text: String::new() };
        let (order, at, directive) = ((block, number), At::default(), "modsecurity_rules");
        Arc::new(RuleLine { order, at, directive, text, inline: None })
    }

    #[test]
    fn the_innermost_block_is_compiled_behind_its_parents() {
        let lines = RuleLines(vec![line(1, 1), line(1, 2), line(4, 3), line(7, 4), line(7, 9)]);
        let orders = |lines: &[Arc<RuleLine>]| lines.iter().map(|line| line.order).collect::<Vec<_>>();
        let (outer, own) = lines.divided();
        assert_eq!((orders(&outer.0), orders(own)), (vec![(1, 1), (1, 2), (4, 3)], vec![(7, 4), (7, 9)]));
        let (outer, own) = outer.divided();
        assert_eq!((orders(&outer.0), orders(own)), (vec![(1, 1), (1, 2)], vec![(4, 3)]));
        let (outer, own) = outer.divided();
        assert_eq!((orders(&outer.0), orders(own)), (Vec::new(), vec![(1, 1), (1, 2)]));
        assert!(RuleLines::default().divided().0.is_empty());
    }
}
