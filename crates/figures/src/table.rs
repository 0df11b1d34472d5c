//! One table, three forms: aligned text for a terminal, CSV for a spreadsheet, rows for an HTML page (see [`crate::page`]).

/// How a column is aligned in text and HTML.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    Left,
    Right,
}

/// Rows of text under a heading. Rows shorter than the heading are filled with empty cells.
#[derive(Clone, Debug, Default)]
pub struct Table {
    pub heads: Vec<String>,
    pub aligns: Vec<Align>,
    pub rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these columns. A head that starts with `<` is left-aligned (the sign is cut off), others right.
    pub fn new(heads: &[&str]) -> Self {
        let mut table = Table::default();
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

    /// Adds a row; cells beyond the last column are dropped.
    pub fn row<S: Into<String>>(&mut self, cells: impl IntoIterator<Item = S>) {
        let mut row: Vec<String> = cells.into_iter().map(Into::into).take(self.heads.len()).collect();
        row.resize(self.heads.len(), String::new());
        self.rows.push(row);
    }

    /// Aligned text, two spaces between columns, no trailing blanks, with a final line end.
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

    /// Comma-separated values (RFC 4180 quoting, `\n` line ends).
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

/// A value quoted for CSV where it must be.
pub fn csv_cell(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text.to_string() }
}

/// Reads a CSV or white-space table: `#` starts a comment line, blank lines are skipped. The first row is the heading. A
/// table whose heading holds a comma is split at commas (with RFC 4180 quoting), any other at white space.
///
/// # Errors
/// A sentence with the line number when a row has more cells than the heading.
pub fn parse(text: &str) -> Result<(Vec<String>, Vec<(usize, Vec<String>)>), String> {
    let mut lines =
        text.lines().enumerate().map(|(i, l)| (i + 1, l.trim())).filter(|(_, l)| !l.is_empty() && !l.starts_with('#'));
    let Some((_, head)) = lines.next() else { return Err("the table is empty".into()) };
    let commas = head.contains(',');
    let heads = split(head, commas);
    let mut rows = Vec::new();
    for (number, line) in lines {
        let mut cells = split(line, commas);
        if cells.len() > heads.len() {
            return Err(format!("line {number}: {} cells, but the heading has {}", cells.len(), heads.len()));
        }
        cells.resize(heads.len(), String::new());
        rows.push((number, cells));
    }
    Ok((heads, rows))
}

fn split(line: &str, commas: bool) -> Vec<String> {
    if !commas {
        return line.split_whitespace().map(String::from).collect();
    }
    let (mut cells, mut cell, mut quoted) = (Vec::new(), String::new(), false);
    let mut chars = line.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '"' if quoted && chars.peek() == Some(&'"') => {
                chars.next();
                cell.push('"');
            }
            '"' => quoted = !quoted,
            ',' if !quoted => cells.push(std::mem::take(&mut cell).trim().to_string()),
            c => cell.push(c),
        }
    }
    cells.push(cell.trim().to_string());
    cells
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_aligned() {
        let mut t = Table::new(&["<name", "rps"]);
        t.row(["a", "1"]);
        t.row(["long name", "1234"]);
        assert_eq!(t.text(), "name        rps\na             1\nlong name  1234\n");
    }

    #[test]
    fn csv_there_and_back() {
        let mut t = Table::new(&["a", "b"]);
        t.row(["x,y", "say \"hi\""]);
        t.row(["1"]);
        assert_eq!(t.csv(), "a,b\n\"x,y\",\"say \"\"hi\"\"\"\n1,\n");
        let (heads, rows) = parse(&t.csv()).unwrap();
        assert_eq!(heads, ["a", "b"]);
        assert_eq!(rows[0].1, ["x,y", "say \"hi\""]);
    }

    #[test]
    fn white_space_tables_and_their_mistakes() {
        let (heads, rows) = parse("# prices\nname  price\n\na 1\nb 2\n").unwrap();
        assert_eq!((heads.len(), rows.len(), rows[1].0), (2, 2, 5));
        assert!(parse("a b\n1 2 3\n").unwrap_err().contains("line 2"));
        assert!(parse("# nothing\n").is_err());
    }
}
