//! Data for requests (`--data FILE[:order|random|once]`): rows of CSV (RFC 4180, with a line of column names) or of
//! JSON lines, and `${column}` in paths, headers and bodies. `{{dollar}}{column}` is the text `${column}`.

use std::path::{Path, PathBuf};

use super::requests::read_text;
use crate::engine::feed::{LoadData, RowOrder};
use crate::engine::request::{COLUMNS_MAX, RequestSpec};

/// Rows of a table at most.
const ROWS_MAX: usize = 2_000_000;

/// A table as read from its file.
#[derive(Clone, Debug, PartialEq)]
pub struct DataFile {
    name: String,
    columns: Vec<String>,
    rows: Vec<Vec<String>>,
    order: RowOrder,
}

/// Splits `FILE:once` into the file and the order of its rows. Fails on an unknown order.
pub fn parse_data(text: &str) -> Result<(PathBuf, RowOrder), String> {
    let order = |word: &str| match word {
        "order" => Some(RowOrder::Order),
        "random" => Some(RowOrder::Random),
        "once" => Some(RowOrder::Once),
        _ => None,
    };
    match text.rsplit_once(':') {
        Some((path, word)) if order(word).is_some() => Ok((path.into(), order(word).unwrap_or_default())),
        Some((path, word)) if !Path::new(text).exists() && Path::new(path).exists() => {
            Err(format!("--data {text}: `{word}` is not order, random or once"))
        }
        _ => Ok((text.into(), RowOrder::Order)),
    }
}

impl DataFile {
    /// Reads a table. Fails with file, line and reason.
    pub fn read(text: &str) -> Result<DataFile, String> {
        let (path, order) = parse_data(text)?;
        let content = read_text(&path)?;
        let is_json = match path.extension().and_then(|e| e.to_str()) {
            Some("csv") => false,
            Some("jsonl" | "ndjson" | "json") => true,
            _ => content.trim_start().starts_with('{'),
        };
        let name = path.display().to_string();
        let (columns, rows) =
            if is_json { json_rows(&content) } else { csv_rows(&content) }.map_err(|why| format!("{name}:{why}"))?;
        if rows.is_empty() {
            return Err(format!("{name}: the file has no row of data"));
        }
        Ok(DataFile { name, columns, rows, order })
    }

    pub fn order(&self) -> RowOrder {
        self.order
    }

    /// Puts the table's columns into the requests and common headers. Fails if `${...}` names no column, if nothing
    /// names one, and if a value cannot stand where it is used.
    pub fn insert(self, requests: &mut [RequestSpec], headers: &mut [String]) -> Result<LoadData, String> {
        let mut used = 0;
        let mut in_fields: Vec<usize> = Vec::new();
        for request in requests.iter_mut() {
            request.path = self.replace(&request.path, "path-column", &mut |_| used += 1)?;
            request.body = self.replace(&request.body, "column", &mut |_| used += 1)?;
        }
        let fields = requests.iter_mut().flat_map(|request| &mut request.headers).chain(headers.iter_mut());
        for field in fields {
            *field = self.replace(field, "column", &mut |column| in_fields.push(column))?;
        }
        if used + in_fields.len() == 0 {
            let columns = self.columns.join("}, ${");
            return Err(format!("--data {}: no URL, header or body uses one of ${{{columns}}}", self.name));
        }
        for (number, row) in self.rows.iter().enumerate() {
            let wrong = |column: &&usize| row[**column].bytes().any(|b| b < b' ' && b != b'\t' || b == 0x7f);
            if let Some(column) = in_fields.iter().find(wrong) {
                let (name, column) = (&self.name, &self.columns[*column]);
                let row = number + 1;
                return Err(format!(
                    "{name}: row {row}: `{column}` has a control character, which no header can carry"
                ));
            }
        }
        Ok(LoadData { order: self.order, rows: self.rows.into() })
    }

    /// Writes `${name}` as the template of its column.
    fn replace(&self, text: &str, template: &str, used: &mut dyn FnMut(usize)) -> Result<String, String> {
        let (mut out, mut rest) = (String::new(), text);
        while let Some(at) = rest.find("${") {
            let Some(end) = rest[at..].find('}') else { break };
            let name = &rest[at + 2..at + end];
            let column = self.columns.iter().position(|column| column == name).ok_or_else(|| {
                let near = self.columns.iter().find(|column| column.eq_ignore_ascii_case(name));
                let columns = self.columns.join(", ");
                let hint = near.map_or(format!("its columns are {columns}"), |near| format!("write ${{{near}}}"));
                format!("`${{{name}}}` in `{text}` is no column of {}: {hint}", self.name)
            })?;
            used(column);
            out.push_str(&rest[..at]);
            out.push_str(&format!("{{{{{template}:{column}:{name}}}}}"));
            rest = &rest[at + end + 1..];
        }
        out.push_str(rest);
        Ok(out)
    }
}

/// Names that stand as `${name}` in a text.
fn named_columns(text: &str) -> impl Iterator<Item = &str> {
    text.split("${").skip(1).filter_map(|rest| Some(rest.split_once('}')?.0))
}

/// Refuses `${name}` in requests and common headers of a run without data. The reason names the request in `source` and
/// all names that need a value.
pub fn refuse_columns(requests: &[RequestSpec], headers: &[String], source: &str) -> Result<(), String> {
    let in_requests = requests.iter().flat_map(|request| {
        let name = format!("{} {}", request.method, request.path);
        let texts = std::iter::once(("path", &request.path)).chain(std::iter::once(("body", &request.body)));
        let texts = texts.chain(request.headers.iter().map(|line| ("header", line)));
        texts.map(move |(part, text)| (format!("{source}: the {part} of {name}"), text))
    });
    let common = headers.iter().map(|line| (format!("the header `{line}`"), line));
    let mut first = None;
    let mut names: Vec<&str> = Vec::new();
    for (place, text) in in_requests.chain(common) {
        for name in named_columns(text) {
            first.get_or_insert_with(|| (place.clone(), name));
            if !names.contains(&name) {
                names.push(name);
            }
        }
    }
    match first {
        None => Ok(()),
        Some((place, name)) => Err(format!(
            "{place} has `${{{name}}}`, which needs a value: give --data FILE with {} {}; the text itself is written \
             `{{{{dollar}}}}{{{name}}}`",
            if names.len() == 1 { "the column" } else { "the columns" },
            names.join(", ")
        )),
    }
}

/// Writes the columns of a template as the user did, `${name}`, for reports.
pub fn column_names(text: &str) -> String {
    let (mut out, mut rest) = (String::new(), text);
    while let Some((before, behind)) = rest.split_once("{{path-column:") {
        let Some((inner, after)) = behind.split_once("}}") else { break };
        let name = inner.split_once(':').map_or(inner, |(_, name)| name);
        out.push_str(&format!("{before}${{{name}}}"));
        rest = after;
    }
    (out + rest).replace("{{dollar}}{", "${")
}

type TableRows = (Vec<String>, Vec<Vec<String>>);

fn check_columns(columns: &[String], line: u64) -> Result<(), String> {
    if columns.len() > COLUMNS_MAX {
        return Err(format!("{line}: more than {COLUMNS_MAX} columns"));
    }
    let wrong = |name: &&String| name.is_empty() || name.contains(['}', '{', '\n', '\r']);
    if let Some(name) = columns.iter().find(wrong) {
        return Err(format!("{line}: `{name}` cannot be the name of a column"));
    }
    match columns.iter().enumerate().find(|(i, name)| columns[..*i].contains(name)) {
        Some((_, name)) => Err(format!("{line}: the column `{name}` stands there twice")),
        None => Ok(()),
    }
}

/// Line of a quote that no other closes: the rest of the file would be one value.
fn open_quote(text: &str) -> Option<u64> {
    let (mut line, mut opened, mut is_start) = (1, None, true);
    let mut bytes = text.bytes().peekable();
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' if opened.is_some() && bytes.next_if_eq(&b'"').is_some() => {}
            b'"' if opened.is_some() => opened = None,
            b'"' if is_start => opened = Some(line),
            _ => {}
        }
        is_start = matches!(byte, b',' | b'\n' | b'\r');
        line += u64::from(byte == b'\n');
    }
    opened
}

fn csv_rows(text: &str) -> Result<TableRows, String> {
    if let Some(line) = open_quote(text) {
        return Err(format!("{line}: a quote that begins a value here is not closed"));
    }
    let mut reader = csv::ReaderBuilder::new().trim(csv::Trim::Headers).from_reader(text.as_bytes());
    let explain = |e: csv::Error| {
        let line = e.position().map_or(0, |position| position.line());
        match e.kind() {
            csv::ErrorKind::UnequalLengths { expected_len, len, .. } => {
                format!("{line}: {len} values for {expected_len} columns; a comma in a value needs quotes")
            }
            _ => format!("{line}: {e}"),
        }
    };
    let columns: Vec<String> = reader.headers().map_err(explain)?.iter().map(String::from).collect();
    check_columns(&columns, 1)?;
    let mut rows = Vec::new();
    for record in reader.records() {
        rows.push(record.map_err(explain)?.iter().map(String::from).collect());
        if rows.len() > ROWS_MAX {
            return Err(format!(" more than {ROWS_MAX} rows"));
        }
    }
    Ok((columns, rows))
}

fn json_rows(text: &str) -> Result<TableRows, String> {
    let (mut columns, mut rows): TableRows = Default::default();
    for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let at = number as u64 + 1;
        let object: serde_json::Map<String, serde_json::Value> = serde_json::from_str(line).map_err(|e| {
            let why = figures::errors::plain_message(&e.to_string());
            let why = why.split(" at line ").next().unwrap_or_default();
            format!("{at}:{}: not an object in JSON on one line: {why}", e.column())
        })?;
        if columns.is_empty() {
            columns = object.keys().cloned().collect();
            check_columns(&columns, at)?;
        }
        let value = |column: &String| {
            let value = object.get(column).ok_or_else(|| format!("{at}: `{column}` of the first line is missing"))?;
            Ok(match value {
                serde_json::Value::String(text) => text.clone(),
                serde_json::Value::Null => String::new(),
                other => other.to_string(),
            })
        };
        rows.push(columns.iter().map(value).collect::<Result<_, String>>()?);
        if rows.len() > ROWS_MAX {
            return Err(format!("{at}: more than {ROWS_MAX} rows"));
        }
    }
    Ok((columns, rows))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(columns: &[&str], rows: &[&[&str]]) -> DataFile {
        let own = |list: &[&str]| list.iter().map(|text| text.to_string()).collect();
        let rows = rows.iter().map(|row| own(row)).collect();
        DataFile { name: "users.csv".into(), columns: own(columns), rows, order: RowOrder::Order }
    }

    #[test]
    fn csv_and_json_lines_are_the_same_table() {
        let csv = csv_rows("name, word\r\nann,\"a, \"\"b\"\"\"\r\nbob,\r\n").unwrap();
        let json =
            json_rows("{\"name\":\"ann\",\"word\":\"a, \\\"b\\\"\"}\n\n{\"word\":null,\"name\":\"bob\"}\n").unwrap();
        assert_eq!(csv, json);
        assert_eq!(json_rows("{\"n\":1.5,\"l\":[1]}").unwrap().1[0].len(), 2);
        for (text, words) in [
            ("a,b\n1\n", "2: 1 values for 2 columns"),
            ("a,b\n1,2\n3,\"4\n5,6\n", "3: a quote"),
            ("a,a\n1,2\n", "`a` stands there twice"),
            ("a,}\n1,2\n", "cannot be the name"),
        ] {
            let why = csv_rows(text).unwrap_err();
            assert!(why.contains(words), "{text}: {why}");
        }
        assert!(json_rows("{\"a\":1}\n{\"b\":1}\n").unwrap_err().starts_with("2: `a`"));
        assert!(json_rows("{\"a\":1}\n[1]\n").unwrap_err().starts_with("2:0: not an object"));
    }

    #[test]
    fn columns_stand_in_paths_headers_and_bodies() {
        let mut requests = vec![RequestSpec {
            headers: vec!["X-User: ${name}".into()],
            body: "{\"w\": \"${word}\"}".into(),
            ..RequestSpec::get("/u/${name}")
        }];
        let mut headers = vec!["Authorization: ${word}".to_string()];
        let data = table(&["name", "word"], &[&["a", "b"]]).insert(&mut requests, &mut headers).unwrap();
        assert_eq!(
            (requests[0].path.as_str(), headers[0].as_str()),
            ("/u/{{path-column:0:name}}", "Authorization: {{column:1:word}}")
        );
        assert_eq!((requests[0].body.as_str(), data.rows.len()), ("{\"w\": \"{{column:1:word}}\"}", 1));
    }

    #[test]
    fn names_without_data_are_refused_with_their_place() {
        let login = RequestSpec {
            method: "POST".into(),
            headers: vec!["Authorization: Bearer ${tok}".into()],
            ..RequestSpec::get("/login")
        };
        let other = RequestSpec { body: "${id} ${tok}".into(), ..RequestSpec::get("/") };
        let why = refuse_columns(&[RequestSpec::get("/a"), login, other], &[], "s.toml").unwrap_err();
        assert_eq!(
            why,
            "s.toml: the header of POST /login has `${tok}`, which needs a value: give --data FILE with the columns tok, \
             id; the text itself is written `{{dollar}}{tok}`"
        );
        let why = refuse_columns(&[], &["X: ${a}".into()], "the URL").unwrap_err();
        assert!(why.starts_with("the header `X: ${a}` has") && why.contains("the column a;"), "{why}");
        let plain = RequestSpec { body: "{{dollar}}{a} $a {b} ${".into(), ..RequestSpec::get("/{{seq}}") };
        assert_eq!(refuse_columns(&[plain], &[], "the URL"), Ok(()));
    }

    #[test]
    fn reports_show_columns_by_name() {
        assert_eq!(column_names("/u/{{path-column:0:name}}?x={{seq}}"), "/u/${name}?x={{seq}}");
        assert_eq!(column_names("/plain"), "/plain");
        assert_eq!(column_names("/{{dollar}}{a}"), "/${a}");
    }

    #[test]
    fn wrong_columns_are_told_with_a_suggestion() {
        let insert = |path: &str, fields: &[&str], rows: &[&[&str]]| {
            let headers = fields.iter().map(|field| field.to_string()).collect();
            let mut requests = vec![RequestSpec { headers, ..RequestSpec::get(path) }];
            table(&["name", "word"], rows).insert(&mut requests, &mut []).unwrap_err()
        };
        assert!(insert("/${Name}", &[], &[]).contains("write ${name}"));
        assert!(insert("/${x}", &[], &[]).contains("its columns are name, word"));
        assert!(insert("/", &[], &[]).contains("uses one of ${name}, ${word}"));
        assert!(insert("/", &["X: ${word}"], &[&["a", "b"], &["a", "b\r\nY: z"]]).contains("row 2: `word`"));
        let why = parse_data("no-such-file.csv:once").map(|(path, order)| (path.display().to_string(), order));
        assert_eq!(why, Ok(("no-such-file.csv".into(), RowOrder::Once)));
    }
}
