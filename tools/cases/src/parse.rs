//! The text of a case.

/// A case as written.
#[derive(Clone, Debug, Default)]
pub struct Case {
    pub files: Vec<(String, String)>,
    pub http: String,
    pub conf: String,
    /// The stream block: `{stream}` and `{other}` are ports of its own.
    pub stream: String,
    pub steps: Vec<Step>,
    /// Texts that the error log must hold.
    pub log: Vec<String>,
    /// Why nginx answers otherwise.
    pub differs: Option<String>,
    /// A module that nginx has only when it was built with it, as its `-V` names it.
    pub needs: Option<String>,
}

/// One exchange: bytes that are sent on a connection of their own, and the responses that must come, in order.
#[derive(Clone, Debug)]
pub struct Step {
    pub line: usize,
    pub send: Vec<u8>,
    /// HEAD: responses have no body.
    pub head: bool,
    pub expect: Vec<Vec<Expect>>,
    /// Bytes or a datagram for the stream block instead, and what comes back.
    pub plain: Option<Plain>,
}

/// What is exchanged with the stream block, on its port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plain {
    pub udp: bool,
    /// All that comes until the connection is closed, or the datagram.
    pub answer: String,
    /// It need only begin so.
    pub begins: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expect {
    Status(u16),
    Header(String, String),
    NoHeader(String),
    /// All names of the head, in their order.
    Names(String),
    Body(String),
    BodyHas(String),
    /// The connection is closed, without a (further) response.
    Closed,
}

/// # Errors
/// What is wrong, with the line.
pub fn parse(text: &str) -> Result<Case, String> {
    let mut case = Case::default();
    let mut section = String::new();
    for (number, line) in text.lines().enumerate() {
        let number = number + 1;
        if line.starts_with('#') || (line.trim().is_empty() && !matches!(section.as_str(), "conf" | "http" | "stream"))
        {
            continue;
        }
        if !line.starts_with(' ') {
            let (name, rest) = line.split_once(':').ok_or(format!("line {number}: a section ends with a colon"))?;
            section = name.to_string();
            let rest = rest.trim();
            match name {
                "files" | "http" | "conf" | "stream" | "client" => {}
                "log" => {
                    case.log.push(quoted(rest.trim_start_matches("has ")).map_err(|e| format!("line {number}: {e}"))?.0)
                }
                "needs" => case.needs = Some(rest.into()),
                "differs" => case.differs = Some(rest.into()).filter(|r: &String| r != "nothing"),
                other => return Err(format!("line {number}: no section is called \"{other}\"")),
            }
            continue;
        }
        match section.as_str() {
            "files" => {
                let (name, content) = line.trim().split_once(':').ok_or(format!("line {number}: name: content"))?;
                case.files.push((name.into(), unescape(content.trim())));
            }
            "http" => case.http += &format!("{line}\n"),
            "conf" => case.conf += &format!("{line}\n"),
            "stream" => case.stream += &format!("{line}\n"),
            "client" => case.steps.push(step(line.trim(), number).map_err(|e| format!("line {number}: {e}"))?),
            _ => return Err(format!("line {number}: stands in no section")),
        }
    }
    if case.steps.is_empty() {
        return Err("no client: section".into());
    }
    Ok(case)
}

fn step(text: &str, line: usize) -> Result<Step, String> {
    let (request, wanted) = text.split_once(" -> ").ok_or("REQUEST -> EXPECTATIONS")?;
    let mut head = false;
    for (word, udp) in [("tcp ", false), ("udp ", true)] {
        if let Some(sent) = request.strip_prefix(word) {
            let begins = wanted.starts_with("begins ");
            let answer = quoted(wanted.trim_start_matches("begins "))?.0;
            let plain = Some(Plain { udp, answer, begins });
            return Ok(Step { line, send: quoted(sent)?.0.into_bytes(), head, expect: Vec::new(), plain });
        }
    }
    let send = if let Some(raw) = request.strip_prefix("raw ") {
        quoted(raw)?.0.into_bytes()
    } else {
        let mut words = request.splitn(3, ' ');
        let (method, target) = (words.next().unwrap_or(""), words.next().ok_or("METHOD TARGET")?);
        head = method == "HEAD";
        let mut out = format!("{method} {target} HTTP/1.1\r\n");
        let (mut body, mut host) = (None, false);
        for field in split(words.next().unwrap_or("")) {
            if let Some(text) = field.strip_prefix("body ") {
                body = Some(quoted(text)?.0);
            } else if !field.is_empty() {
                host |= field.to_ascii_lowercase().starts_with("host:");
                out += &format!("{field}\r\n");
            }
        }
        if !host {
            out += "Host: localhost\r\n";
        }
        if let Some(body) = &body {
            out += &format!("Content-Length: {}\r\n", body.len());
        }
        out += "Connection: close\r\n\r\n";
        out += &body.unwrap_or_default();
        out.into_bytes()
    };
    let mut expect = Vec::new();
    for response in wanted.split(" then ") {
        let mut all = Vec::new();
        for item in split(response) {
            all.push(expectation(item.trim())?);
        }
        expect.push(all);
    }
    Ok(Step { line, send, head, expect, plain: None })
}

fn expectation(text: &str) -> Result<Expect, String> {
    if text == "closed" {
        return Ok(Expect::Closed);
    }
    if let Ok(status) = text.parse() {
        return Ok(Expect::Status(status));
    }
    if let Some(rest) = text.strip_prefix("body has ") {
        return Ok(Expect::BodyHas(quoted(rest)?.0));
    }
    if let Some(rest) = text.strip_prefix("body ") {
        return Ok(Expect::Body(quoted(rest)?.0));
    }
    if let Some(rest) = text.strip_prefix("names ") {
        return Ok(Expect::Names(quoted(rest)?.0));
    }
    if let Some(name) = text.strip_prefix("no ") {
        return Ok(Expect::NoHeader(name.into()));
    }
    let (name, value) = text.split_once(": ").ok_or(format!("\"{text}\" is no expectation"))?;
    Ok(Expect::Header(name.into(), value.trim_matches('"').into()))
}

/// Splits at commas that are not within quotes.
fn split(text: &str) -> Vec<&str> {
    let mut out = Vec::new();
    let (mut start, mut inside) = (0, false);
    let mut previous = b' ';
    for (at, c) in text.bytes().enumerate() {
        match c {
            b'"' if previous != b'\\' => inside = !inside,
            b',' if !inside => {
                out.push(text[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
        previous = c;
    }
    out.push(text[start..].trim());
    out
}

fn quoted(text: &str) -> Result<(String, &str), String> {
    let inner = text.trim().strip_prefix('"').ok_or(format!("\"{text}\" should be in quotes"))?;
    let end = inner.rfind('"').ok_or("a quote is not closed")?;
    Ok((unescape(&inner[..end]), &inner[end + 1..]))
}

fn unescape(text: &str) -> String {
    let mut out = String::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        match chars.next() {
            Some('r') => out.push('\r'),
            Some('n') => out.push('\n'),
            Some('t') => out.push('\t'),
            Some('0') => out.push('\0'),
            Some('x') => {
                let code: String = chars.by_ref().take(2).collect();
                out.push(char::from(u8::from_str_radix(&code, 16).unwrap_or(b'?')));
            }
            Some(other) => out.push(other),
            None => {}
        }
    }
    out
}
