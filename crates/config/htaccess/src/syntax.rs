//! Reads text into lines and sections (Apache: `ap_cfg_getline`, `ap_getword_conf`, `ap_build_config`).

/// In bytes.
pub const FILE_BYTES_MAX: usize = 1 << 20;
/// Maximum number of lines per file.
pub const LINES_MAX: usize = 20_000;
/// Nested sections at most.
pub const DEPTH_MAX: usize = 32;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError {
    pub line: u32,
    pub text: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SyntaxLine {
    /// Line number, from 1; the first line of a continued one.
    pub number: u32,
    /// As written; Apache ignores case.
    pub name: String,
    pub args: Vec<String>,
    pub rest: String,
    pub section: Option<Vec<SyntaxLine>>,
}

impl SyntaxLine {
    pub fn is(&self, name: &str) -> bool {
        self.name.eq_ignore_ascii_case(name)
    }
    pub fn arg(&self, index: usize) -> &str {
        self.args.get(index).map_or("", String::as_str)
    }
}

/// Parses a file. Fails on unclosed sections or quotes, and beyond the limits.
pub fn parse_lines(text: &str) -> Result<Vec<SyntaxLine>, ParseError> {
    if text.len() > FILE_BYTES_MAX {
        return Err(ParseError { line: 1, text: format!("the file is longer than {FILE_BYTES_MAX} bytes") });
    }
    let mut open: Vec<(SyntaxLine, Vec<SyntaxLine>)> = Vec::new();
    let mut top = Vec::new();
    let mut count = 0;
    for (number, text) in logical(text) {
        let fail = |text: String| ParseError { line: number, text };
        let text = text.trim();
        if text.is_empty() || text.starts_with('#') {
            continue;
        }
        count += 1;
        if count > LINES_MAX {
            return Err(fail(format!("there are more than {LINES_MAX} lines")));
        }
        if let Some(closing) = text.strip_prefix("</") {
            let name = closing.trim_end().trim_end_matches('>').trim();
            let Some((mut line, inner)) = open.pop() else {
                return Err(fail(format!("</{name}> without matching <{name}> section")));
            };
            if !line.is(name) {
                return Err(fail(format!("Expected </{}> but saw </{name}>", line.name)));
            }
            line.section = Some(inner);
            open.last_mut().map_or(&mut top, |(_, inner)| inner).push(line);
        } else if let Some(opening) = text.strip_prefix('<') {
            let Some(inner) = opening.trim_end().strip_suffix('>') else {
                let name = opening.split_whitespace().next().unwrap_or_default();
                return Err(fail(format!("<{name}> directive missing closing '>'")));
            };
            if open.len() >= DEPTH_MAX {
                return Err(fail(format!("sections are more than {DEPTH_MAX} deep")));
            }
            open.push((line(number, inner).map_err(fail)?, Vec::new()));
        } else {
            let line = line(number, text).map_err(fail)?;
            open.last_mut().map_or(&mut top, |(_, inner)| inner).push(line);
        }
    }
    match open.pop() {
        Some((line, _)) => Err(ParseError { line: line.number, text: format!("<{}> was not closed.", line.name) }),
        None => Ok(top),
    }
}

/// Logical lines with their first number; a final backslash continues a line.
fn logical(text: &str) -> impl Iterator<Item = (u32, String)> + '_ {
    let mut lines = text.lines().enumerate();
    std::iter::from_fn(move || {
        let (index, first) = lines.next()?;
        let mut joined = first.to_string();
        while let Some(head) = joined.strip_suffix('\\') {
            joined.truncate(head.len());
            let Some((_, next)) = lines.next() else { break };
            joined.push_str(next);
        }
        Some((index as u32 + 1, joined))
    })
}

fn line(number: u32, text: &str) -> Result<SyntaxLine, String> {
    let text = text.trim();
    let end = text.find(char::is_whitespace).unwrap_or(text.len());
    let (name, rest) = text.split_at(end);
    let rest = rest.trim();
    Ok(SyntaxLine { number, name: name.to_string(), args: split_words(rest), rest: rest.to_string(), section: None })
}

/// Words of a line; quotes keep spaces, and a backslash escapes the quote.
pub fn split_words(text: &str) -> Vec<String> {
    let mut out = Vec::new();
    let mut chars = text.chars().peekable();
    loop {
        while chars.next_if(|c| c.is_whitespace()).is_some() {}
        let Some(first) = chars.next() else { return out };
        let mut word = String::new();
        if matches!(first, '"' | '\'') {
            while let Some(c) = chars.next() {
                match c {
                    '\\' if chars.peek() == Some(&first) || chars.peek() == Some(&'\\') => {
                        // Only the quote and the backslash are unescaped.
                        word.extend(chars.next());
                    }
                    c if c == first => break,
                    c => word.push(c),
                }
            }
        } else {
            word.push(first);
            while let Some(c) = chars.next_if(|c| !c.is_whitespace()) {
                if !(c == '\\' && word.ends_with('\\') && chars.peek().is_some()) {
                    word.push(c);
                }
            }
        }
        out.push(word);
    }
}

/// Words of a rewrite line as mod_rewrite reads them (`parseargline`): quotes or a backslash keep spaces, and every
/// backslash stays.
pub fn raw_words(text: &str) -> Vec<String> {
    let mut out = Vec::new();
    let mut chars = text.chars().peekable();
    loop {
        while chars.next_if(|c| c.is_whitespace()).is_some() {}
        let Some(first) = chars.peek().copied() else { return out };
        let quote = matches!(first, '"' | '\'').then_some(first);
        if quote.is_some() {
            chars.next();
        }
        let mut word = String::new();
        while let Some(c) = chars.next() {
            match c {
                '\\' => {
                    let keeps = chars.peek().is_some_and(|next| next.is_whitespace() || Some(*next) == quote);
                    word.push(c);
                    if keeps {
                        word.extend(chars.next());
                    }
                }
                c if Some(c) == quote => break,
                c if quote.is_none() && c.is_whitespace() => break,
                c => word.push(c),
            }
        }
        out.push(word);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_sections_and_words() {
        let text =
            "# c\nRewriteEngine On\n<IfModule mod_x.c>\n  RewriteRule \"^a b$\" \\\n   'c\\'d' [L]\n</IfModule>\n";
        let lines = parse_lines(text).expect("reads");
        assert_eq!((lines[0].name.as_str(), lines[0].arg(0)), ("RewriteEngine", "On"));
        let inner = lines[1].section.as_ref().expect("a section");
        assert_eq!((inner[0].number, inner[0].args.clone()), (4, vec!["^a b$".into(), "c'd".into(), "[L]".into()]));
    }

    #[test]
    fn unclosed_sections_are_refused() {
        let error = |text: &str| parse_lines(text).map_err(|e| (e.line, e.text)).expect_err("refused");
        assert_eq!(error("\n<Files x>\nA b"), (2, "<Files> was not closed.".into()));
        assert_eq!(error("</Files>"), (1, "</Files> without matching <Files> section".into()));
        assert_eq!(error("<A>\n</B>"), (2, "Expected </A> but saw </B>".into()));
        assert_eq!(error("<A x"), (1, "<A> directive missing closing '>'".into()));
    }
}
