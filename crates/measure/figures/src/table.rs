//! Tables as aligned text, as CSV, and as rows of an HTML page (see [`crate::page`]).

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    Left,
    Right,
}

/// Rows of text under a heading; short rows are filled with empty cells.
#[derive(Clone, Debug, Default)]
pub struct TextTable {
    pub heads: Vec<String>,
    pub aligns: Vec<Align>,
    pub rows: Vec<Vec<String>>,
}

impl TextTable {
    /// Starts a table. A head that begins with `<` (cut off) is left-aligned, others right-aligned.
    pub fn new(heads: &[&str]) -> Self {
        let mut table = TextTable::default();
        for head in heads {
            let (text, align) = match head.strip_prefix('<') {
                Some(rest) => (rest, Align::Left),
                None => (*head, Align::Right),
            };
            table.heads.push(text.to_string());
            table.aligns.push(align);
        }
        table
    }

    /// Drops cells beyond the last column.
    pub fn row<S: Into<String>>(&mut self, cells: impl IntoIterator<Item = S>) {
        let mut row: Vec<String> = cells.into_iter().map(Into::into).take(self.heads.len()).collect();
        row.resize(self.heads.len(), String::new());
        self.rows.push(row);
    }

    /// Two spaces between columns, no trailing blanks.
    pub fn text(&self) -> String {
        let width = |s: &str| s.chars().count();
        let mut widths: Vec<usize> = self.heads.iter().map(|h| width(h)).collect();
        for row in &self.rows {
            for (w, cell) in widths.iter_mut().zip(row) {
                *w = (*w).max(width(cell));
            }
        }
        let mut out = String::new();
        for row in std::iter::once(&self.heads).chain(&self.rows) {
            let mut line = String::new();
            for (i, cell) in row.iter().enumerate() {
                let pad = " ".repeat(widths[i] - width(cell));
                if i > 0 {
                    line.push_str("  ");
                }
                match self.aligns[i] {
                    Align::Left => line.extend([cell.as_str(), &pad]),
                    Align::Right => line.extend([&pad, cell.as_str()]),
                }
            }
            out.push_str(line.trim_end());
            out.push('\n');
        }
        out
    }

    /// RFC 4180 quoting, LF line ends.
    pub fn csv(&self) -> String {
        let mut out = String::new();
        for row in std::iter::once(&self.heads).chain(&self.rows) {
            let cells: Vec<String> = row.iter().map(|c| csv_cell(c)).collect();
            out.push_str(&cells.join(","));
            out.push('\n');
        }
        out
    }
}

pub fn csv_cell(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text.to_string() }
}

pub type TableLine = (usize, Vec<Cell>);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cell {
    pub text: String,
    /// Offset in the line and length, in characters, including quotes.
    pub start: usize,
    pub length: usize,
}

/// Reads a CSV or white-space table; `#` starts a comment line, blank lines are skipped, the first line is the heading.
/// A heading with a comma selects commas (RFC 4180 quoting). Rows may differ in length. Fails without a heading.
pub fn parse_table(text: &str) -> Result<(TableLine, Vec<TableLine>), String> {
    let mut lines = text
        .lines()
        .enumerate()
        .map(|(i, l)| (i + 1, l))
        .filter(|(_, l)| !l.trim().is_empty() && !l.trim_start().starts_with('#'));
    let Some((number, head)) = lines.next() else { return Err("the table is empty".into()) };
    let commas = head.contains(',');
    let rows = lines.map(|(number, line)| (number, split(line, commas))).collect();
    Ok(((number, split(head, commas)), rows))
}

fn split(line: &str, commas: bool) -> Vec<Cell> {
    let mut cells = Vec::new();
    let (mut text, mut begin, mut quoted) = (String::new(), 0, false);
    let mut chars = line.chars().enumerate().peekable();
    let mut end = |text: &mut String, begin: usize, end: usize| {
        let raw: String = line.chars().skip(begin).take(end - begin).collect();
        let start = begin + raw.chars().take_while(|c| c.is_whitespace()).count();
        if commas || !raw.trim().is_empty() {
            let length = raw.trim().chars().count();
            cells.push(Cell { text: std::mem::take(text).trim().to_string(), start, length });
        }
    };
    while let Some((at, c)) = chars.next() {
        match c {
            '"' if commas && quoted && chars.peek().is_some_and(|next| next.1 == '"') => {
                chars.next();
                text.push('"');
            }
            '"' if commas => quoted = !quoted,
            c if !quoted && (if commas { c == ',' } else { c.is_whitespace() }) => {
                end(&mut text, begin, at);
                begin = at + 1;
            }
            c => text.push(c),
        }
    }
    end(&mut text, begin, line.chars().count());
    cells
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_aligned() {
        let mut t = TextTable::new(&["<name", "rps"]);
        t.row(["a", "1"]);
        t.row(["long name", "1234"]);
        assert_eq!(t.text(), "name        rps\na             1\nlong name  1234\n");
    }

    #[test]
    fn csv_there_and_back() {
        let mut t = TextTable::new(&["a", "b"]);
        t.row(["x,y", "say \"hi\""]);
        t.row(["1"]);
        assert_eq!(t.csv(), "a,b\n\"x,y\",\"say \"\"hi\"\"\"\n1,\n");
        let ((_, heads), rows) = parse_table(&t.csv()).unwrap();
        assert_eq!(texts(&heads), ["a", "b"]);
        assert_eq!(texts(&rows[0].1), ["x,y", "say \"hi\""]);
        assert_eq!((rows[0].1[1].start, rows[0].1[1].length), (6, 12), "{:?}", rows[0]);
        assert_eq!(texts(&rows[1].1), ["1", ""]);
    }

    fn texts(cells: &[Cell]) -> Vec<&str> {
        cells.iter().map(|c| c.text.as_str()).collect()
    }

    #[test]
    fn white_space_tables_and_their_mistakes() {
        let ((line, heads), rows) = parse_table("# prices\nname  price\n\na 1\n  b  23 \n").unwrap();
        assert_eq!((line, heads.len(), rows.len(), rows[1].0), (2, 2, 2, 5));
        assert_eq!(rows[1].1[1], Cell { text: "23".into(), start: 5, length: 2 });
        assert_eq!(parse_table("a b\n1 2 3\n").unwrap().1[0].1.len(), 3);
        assert!(parse_table("# nothing\n").is_err());
    }
}
