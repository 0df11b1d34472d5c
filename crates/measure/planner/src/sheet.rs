//! Hand-written tables: cells by column name, and complaints that show the position.

use conf_schema::suggest::nearest_word;
use figures::table::{self, Cell, TableLine};
use figures::units::{parse_count, parse_share};

pub struct Sheet {
    text: Vec<String>,
    heading: TableLine,
    rows: Vec<TableLine>,
}

#[derive(Clone, Copy)]
pub struct SheetRow<'a> {
    sheet: &'a Sheet,
    line: usize,
    cells: &'a [Cell],
}

impl Sheet {
    /// Reads a table whose columns are in `known` (synonyms per column). Fails on unknown or duplicate heads and on
    /// rows with too many cells.
    pub fn read(text: &str, known: &[&[&str]]) -> Result<Sheet, String> {
        let sheet = Sheet::open(text)?;
        let mut seen: Vec<&[&str]> = Vec::new();
        for head in &sheet.heading.1 {
            let name = head.text.to_ascii_lowercase();
            let Some(column) = known.iter().find(|names| names.contains(&name.as_str())) else {
                let all = || known.iter().flat_map(|names| names.iter().copied());
                let hint = match nearest_word(&name, all()) {
                    Some(near) => format!("did you mean `{near}`?"),
                    None => format!("columns are {}", known.iter().map(|n| n[0]).collect::<Vec<_>>().join(", ")),
                };
                return Err(sheet.complain(
                    sheet.heading.0,
                    head,
                    &format!("there is no column `{}`; {hint}", head.text),
                ));
            };
            if seen.contains(column) {
                return Err(sheet.complain(sheet.heading.0, head, &format!("a second column `{}`", head.text)));
            }
            seen.push(column);
        }
        Ok(sheet)
    }

    /// Reads a table with any columns. Fails without a heading, or on a row with too many cells.
    pub fn open(text: &str) -> Result<Sheet, String> {
        let (heading, rows) = table::parse_table(text)?;
        let sheet = Sheet { text: text.lines().map(String::from).collect(), heading, rows };
        for (line, cells) in &sheet.rows {
            if let Some(extra) = cells.get(sheet.heading.1.len()) {
                let what = format!("{} cells, but the heading has {}", cells.len(), sheet.heading.1.len());
                return Err(sheet.complain(*line, extra, &what));
            }
        }
        Ok(sheet)
    }

    pub fn heads(&self) -> impl Iterator<Item = &str> {
        self.heading.1.iter().map(|c| c.text.as_str())
    }

    pub fn rows(&self) -> impl Iterator<Item = SheetRow<'_>> {
        self.rows.iter().map(|(line, cells)| SheetRow { sheet: self, line: *line, cells })
    }

    pub fn require(&self, names: &[&str]) -> Result<(), String> {
        if self.column(names).is_some() {
            return Ok(());
        }
        let others: Vec<String> = names[1..].iter().map(|n| format!("`{n}`")).collect();
        let or = if others.is_empty() { String::new() } else { format!(" (or {})", others.join(", ")) };
        Err(format!("line {}: the heading has no column `{}`{or}", self.heading.0, names[0]))
    }

    fn column(&self, names: &[&str]) -> Option<usize> {
        self.heading.1.iter().position(|h| names.contains(&h.text.to_ascii_lowercase().as_str()))
    }

    fn complain(&self, line: usize, cell: &Cell, what: &str) -> String {
        let source = self.text.get(line - 1).map_or("", String::as_str);
        let margin = line.to_string();
        let blank = " ".repeat(margin.len());
        // Keeps tabs, so that the caret stands below its cell.
        let before: String = source.chars().take(cell.start).map(|c| if c == '\t' { c } else { ' ' }).collect();
        let carets = "^".repeat(cell.length.max(1));
        format!("line {line}, column {}: {what}\n{margin} | {source}\n{blank} | {before}{carets}", cell.start + 1)
    }
}

impl SheetRow<'_> {
    /// Returns `None` for an empty or missing cell.
    pub fn at(&self, column: usize) -> Option<&str> {
        self.cells.get(column).map(|c| c.text.as_str()).filter(|t| !t.is_empty())
    }

    /// Returns `None` for an empty cell.
    pub fn text(&self, names: &[&str]) -> Option<&str> {
        self.at(self.sheet.column(names)?)
    }

    /// Every row must fill it.
    pub fn must(&self, names: &[&str]) -> Result<&str, String> {
        self.text(names).ok_or_else(|| self.complain(names, &format!("no {}", names[0])))
    }

    /// Optional non-negative number.
    pub fn number(&self, names: &[&str]) -> Result<Option<f64>, String> {
        let Some(text) = self.text(names) else { return Ok(None) };
        let plain = text.trim_start_matches('$').trim();
        match parse_count(plain).or_else(|| parse_share(plain)).filter(|v| *v >= 0.0) {
            Some(value) => Ok(Some(value)),
            None => {
                Err(self.complain(names, &format!("{} `{text}` is not a number such as 0.17, 200 or 20k", names[0])))
            }
        }
    }

    /// Required number above zero.
    pub fn positive(&self, names: &[&str]) -> Result<f64, String> {
        let text = self.must(names)?;
        match self.number(names)? {
            Some(value) if value > 0.0 => Ok(value),
            _ => Err(self.complain(names, &format!("{} `{text}` is not a positive number", names[0]))),
        }
    }

    pub fn complain(&self, names: &[&str], what: &str) -> String {
        self.complain_at(self.sheet.column(names).unwrap_or(0), what)
    }

    pub fn complain_at(&self, column: usize, what: &str) -> String {
        let end = self.sheet.text.get(self.line - 1).map_or(0, |l| l.trim_end().chars().count());
        let nothing = Cell { text: String::new(), start: end, length: 1 };
        self.sheet.complain(self.line, self.cells.get(column).unwrap_or(&nothing), what)
    }

    pub fn line(&self) -> usize {
        self.line
    }
}

/// Fails on the second row with an equal name.
pub fn check_unique<'a>(rows: impl Iterator<Item = SheetRow<'a>>, names: &[&str]) -> Result<(), String> {
    let mut seen: Vec<(String, usize)> = Vec::new();
    for row in rows {
        let name = row.must(names)?.to_string();
        if let Some((_, line)) = seen.iter().find(|(n, _)| *n == name) {
            return Err(row.complain(names, &format!("`{name}` is already in line {line}")));
        }
        seen.push((name, row.line()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: &[&[&str]] = &[&["name", "type"], &["price"]];

    fn wrong(text: &str) -> String {
        match Sheet::read(text, KNOWN) {
            Err(why) => why,
            Ok(sheet) => sheet
                .require(&["price"])
                .and_then(|()| check_unique(sheet.rows(), &["name", "type"]))
                .and_then(|()| sheet.rows().try_for_each(|row| row.positive(&["price"]).map(|_| ())))
                .unwrap_err(),
        }
    }

    #[test]
    fn complaints_show_the_place() {
        assert_eq!(
            wrong("# prices\ntype,price\na.large, 0.1\nb.large, x12\n"),
            "line 4, column 10: price `x12` is not a number such as 0.17, 200 or 20k\n4 | b.large, x12\n  |          ^^^"
        );
        assert_eq!(
            wrong("name,prise\n"),
            "line 1, column 6: there is no column `prise`; did you mean `price`?\n1 | name,prise\n  |      ^^^^^"
        );
        assert!(wrong("name,colour\n").contains("columns are name, price"));
        assert!(wrong("name,price,type\n").contains("a second column `type`"));
        assert!(wrong("name\na\n").contains("no column `price`"));
        assert_eq!(wrong("name,price\na\n"), "line 2, column 2: no price\n2 | a\n  |  ^");
        assert!(wrong("name,price\na,0\n").contains("not a positive number"));
        assert!(wrong("name,price\na,-1\n").contains("`-1` is not a number"));
        assert!(wrong("name,price\na,1,2\n").starts_with("line 2, column 5: 3 cells, but the heading has 2"));
        assert!(wrong("name price\na 1\na 2\n").starts_with("line 3, column 1: `a` is already in line 2"));
    }
}
