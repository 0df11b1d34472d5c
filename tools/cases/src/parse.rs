//! The text of a case.

#[derive(Clone, Debug, Default)]
pub struct Case {
    text: String,
    pub files: Vec<(String, String)>,
    pub http: String,
    pub conf: String,
    /// The stream block; `{stream}` and `{other}` are its ports.
    pub stream: String,
    pub origins: Vec<OriginScript>,
    pub sessions: Vec<CaseSession>,
    pub over: Vec<Over>,
    /// Required texts of the error log.
    pub log: Vec<String>,
    /// Reason for a difference from nginx.
    pub differs: Option<String>,
    /// Optional nginx module that the case needs, as in `nginx -V`.
    pub needs: Option<String>,
}

impl Case {
    /// The case with `{scheme}` and `{protocol}` as they are over a protocol.
    ///
    /// # Errors
    /// As [`parse_case`], which has taken the text before.
    pub fn said_over(&self, over: Over) -> Result<Case, String> {
        let scheme = if over.is_tls() { "https" } else { "http" };
        let protocol = match over {
            Over::H1 | Over::Tls => "HTTP/1.1",
            Over::H2 | Over::H2c => "HTTP/2.0",
            Over::H3 => "HTTP/3.0",
        };
        parse_case(&self.text.replace("{scheme}", scheme).replace("{protocol}", protocol))
    }
}

/// Protocols of the requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    H1,
    Tls,
    H2,
    /// HTTP/2 in clear, by prior knowledge.
    H2c,
    /// HTTP/3.
    H3,
}

impl Over {
    pub const ALL: &[Over] = &[Over::H1, Over::Tls, Over::H2, Over::H2c, Over::H3];

    pub fn name(self) -> &'static str {
        match self {
            Over::H1 => "h1",
            Over::Tls => "tls",
            Over::H2 => "h2",
            Over::H2c => "h2c",
            Over::H3 => "h3",
        }
    }
    pub fn is_tls(self) -> bool {
        matches!(self, Over::Tls | Over::H2 | Over::H3)
    }
    pub fn is_h2(self) -> bool {
        matches!(self, Over::H2 | Over::H2c)
    }
    /// Requests are streams of a connection: HTTP/2 or HTTP/3.
    pub fn has_streams(self) -> bool {
        self.is_h2() || self == Over::H3
    }
}

/// Steps that share a connection, or one step with a separate connection.
#[derive(Clone, Debug)]
pub struct CaseSession {
    pub kept: bool,
    pub steps: Vec<CaseStep>,
}

/// One exchange: the request, and the expected responses in order.
#[derive(Clone, Debug)]
pub struct CaseStep {
    pub line: usize,
    /// `None`: all protocols.
    pub over: Option<Vec<Over>>,
    pub act: Act,
    pub expect: Vec<Vec<Expect>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act {
    Request(Request),
    /// Sent unchanged; HTTP/1 only.
    Raw(Vec<u8>),
    /// Octets or a datagram for the stream block, and the expected response.
    Plain(Plain),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    pub method: String,
    pub target: String,
    pub fields: Vec<(String, String)>,
    pub body: Option<String>,
}

impl CaseStep {
    /// Tells whether the step is for HTTP/2 and HTTP/3 only.
    pub fn is_of_streams(&self) -> bool {
        self.over.as_ref().is_some_and(|over| over.iter().all(|over| over.has_streams()))
    }
}

impl Request {
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| v.as_str())
    }
    /// HTTP/2 and HTTP/3 cannot express the step.
    pub fn is_of_http1(&self) -> bool {
        const NAMES: &[&str] = &["connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade", "te"];
        !self.target.starts_with('/') || NAMES.iter().any(|name| self.field(name).is_some())
    }
}

/// An exchange with the stream block, on its port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plain {
    pub udp: bool,
    pub sent: Vec<u8>,
    /// All bytes until the connection is closed, or the datagram.
    pub answer: String,
    /// Compares only the start.
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
    /// Without a (further) response.
    Closed,
}

/// An origin that answers by a script; `{NAME}` in the configuration is its address.
#[derive(Clone, Debug, Default)]
pub struct OriginScript {
    pub name: String,
    pub lines: Vec<ScriptLine>,
}

#[derive(Clone, Debug)]
pub struct ScriptLine {
    pub line: usize,
    /// Text that the request must contain.
    pub reads: String,
    pub sends: Vec<u8>,
    pub then: Then,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    Keeps,
    Closes,
    Resets,
}

/// # Errors
/// The fault, with its line.
pub fn parse_case(text: &str) -> Result<Case, String> {
    let mut case = Case { text: text.into(), over: Over::ALL.to_vec(), ..Case::default() };
    let mut section = String::new();
    for (number, line) in text.lines().enumerate() {
        let number = number + 1;
        let wrong = |words: String| format!("line {number}: {words}");
        if line.starts_with('#') || (line.trim().is_empty() && !matches!(section.as_str(), "conf" | "http" | "stream"))
        {
            continue;
        }
        if !line.starts_with(' ') {
            let (name, rest) = line.split_once(':').ok_or(wrong("a section ends with a colon".into()))?;
            let (name, of) = name.split_once(' ').unwrap_or((name, ""));
            section = name.to_string();
            let rest = rest.trim();
            match name {
                "files" | "http" | "conf" | "stream" | "client" => {}
                "connection" => case.sessions.push(CaseSession { kept: true, steps: Vec::new() }),
                "origin" => case.origins.push(OriginScript { name: of.into(), lines: Vec::new() }),
                "over" => case.over = over(rest).map_err(wrong)?,
                "log" => case.log.push(quoted(rest.trim_start_matches("has ")).map_err(wrong)?.0),
                "needs" => case.needs = Some(rest.into()),
                "differs" => case.differs = Some(rest.into()).filter(|r: &String| r != "nothing"),
                other => return Err(wrong(format!("no section is called \"{other}\""))),
            }
            continue;
        }
        match section.as_str() {
            "files" => {
                let (name, content) = line.trim().split_once(':').ok_or(wrong("name: content".into()))?;
                case.files.push((name.into(), unescape(content.trim())));
            }
            "http" => case.http += &format!("{line}\n"),
            "conf" => case.conf += &format!("{line}\n"),
            "stream" => case.stream += &format!("{line}\n"),
            "client" => {
                let steps = vec![step(line.trim(), number).map_err(wrong)?];
                case.sessions.push(CaseSession { kept: false, steps });
            }
            "connection" => {
                let step = step(line.trim(), number).map_err(wrong)?;
                case.sessions.last_mut().ok_or(wrong("no connection".into()))?.steps.push(step);
            }
            "origin" => {
                let answer = answer(line.trim(), number).map_err(wrong)?;
                case.origins.last_mut().ok_or(wrong("no origin".into()))?.lines.push(answer);
            }
            _ => return Err(wrong("stands in no section".into())),
        }
    }
    if case.sessions.is_empty() {
        return Err("no client: section".into());
    }
    Ok(case)
}

fn over(text: &str) -> Result<Vec<Over>, String> {
    let known = |name: &str| Over::ALL.iter().copied().find(|o| o.name() == name);
    // Drops the reason behind the names.
    let names = text.split_once(" (").map_or(text, |(names, _)| names);
    names.split(", ").map(|name| known(name.trim()).ok_or(format!("\"{name}\" is no protocol of cases"))).collect()
}

/// `reads "TEXT" sends "BYTES" [closes|resets]`
fn answer(text: &str, line: usize) -> Result<ScriptLine, String> {
    let rest = text.strip_prefix("reads ").ok_or("reads \"TEXT\" sends \"BYTES\" [closes|resets]")?;
    let (reads, rest) = rest.split_once(" sends ").ok_or("it sends nothing")?;
    let (sends, then) = quoted(rest)?;
    let then = match then.trim() {
        "" => Then::Keeps,
        "closes" => Then::Closes,
        "resets" => Then::Resets,
        other => return Err(format!("\"{other}\" is neither closes nor resets")),
    };
    Ok(ScriptLine { line, reads: quoted(reads)?.0, sends: sends.into_bytes(), then })
}

fn step(text: &str, line: usize) -> Result<CaseStep, String> {
    let (only, text) = match text.strip_prefix('[').and_then(|rest| rest.split_once("] ")) {
        Some((names, rest)) => (Some(over(names)?), rest),
        None => (None, text),
    };
    let (request, wanted) = text.split_once(" -> ").ok_or("REQUEST -> EXPECTATIONS")?;
    for (word, udp) in [("tcp ", false), ("udp ", true)] {
        if let Some(sent) = request.strip_prefix(word) {
            let begins = wanted.starts_with("begins ");
            let answer = quoted(wanted.trim_start_matches("begins "))?.0;
            let act = Act::Plain(Plain { udp, sent: quoted(sent)?.0.into_bytes(), answer, begins });
            return Ok(CaseStep { line, over: only, act, expect: Vec::new() });
        }
    }
    let act = match request.strip_prefix("raw ") {
        Some(raw) => Act::Raw(quoted(raw)?.0.into_bytes()),
        None => Act::Request(asked(request)?),
    };
    let mut expect = Vec::new();
    for response in wanted.split(" then ") {
        let mut all = Vec::new();
        for item in split(response) {
            all.push(expectation(item.trim())?);
        }
        expect.push(all);
    }
    Ok(CaseStep { line, over: only, act, expect })
}

/// `METHOD TARGET [FIELD: VALUE, ...] [body "..."]`
fn asked(text: &str) -> Result<Request, String> {
    let mut words = text.splitn(3, ' ');
    let (method, target) = (words.next().unwrap_or(""), words.next().ok_or("METHOD TARGET")?);
    let mut request = Request { method: method.into(), target: target.into(), fields: Vec::new(), body: None };
    for field in split(words.next().unwrap_or("")) {
        if let Some(text) = field.strip_prefix("body ") {
            request.body = Some(quoted(text)?.0);
        } else if !field.is_empty() {
            // A pseudo-header begins with a colon.
            let from = usize::from(field.starts_with(':'));
            let colon = field[from..].find(':').ok_or(format!("\"{field}\" is no field: use raw"))? + from;
            let (name, value) = (&field[..colon], &field[colon + 1..]);
            request.fields.push((unescape(name), unescape(value.strip_prefix(' ').unwrap_or(value))));
        }
    }
    Ok(request)
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
    let (name, value) = text.split_once(": ").ok_or_else(|| format!("\"{text}\" is no expectation"))?;
    // A value in quotes may hold commas and, escaped, quotes.
    let inner = value.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    Ok(Expect::Header(name.into(), inner.map_or_else(|| value.into(), unescape)))
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
    let inner = text.trim().strip_prefix('"').ok_or_else(|| format!("\"{text}\" should be in quotes"))?;
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
