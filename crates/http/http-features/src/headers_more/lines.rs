//! Parses the lines: options and fields.

use conf_schema::{Cx, Directive, GivenDirective, Problem, ValueKind};
use http_engine::HttpTemplate;
use http_engine::clean::one_line;
use std::marker::PhantomData;
use std::rc::Rc;
use std::sync::Arc;

pub trait LinesKind: Clone + 'static {
    const SYNTAX: &'static str;
    const OPTIONS: &'static [u8];
    const SETS: bool;
    /// Names of framing fields, which must not be changed.
    const FRAMING: &'static [&'static str];
    const FORM: LineForm;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineForm {
    /// Options and fields.
    Fields,
    /// A name and a value, which replaces those of its name.
    Set,
    /// A name and a value beside those of its name.
    Add,
    /// Names.
    Remove,
}

macro_rules! kinds {
    ($($(#[$doc:meta])* $Name:ident $form:ident $syntax:literal $options:literal $sets:literal $framing:expr;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        pub struct $Name;
        impl LinesKind for $Name {
            const SYNTAX: &'static str = $syntax;
            const OPTIONS: &'static [u8] = $options;
            const SETS: bool = $sets;
            const FRAMING: &'static [&'static str] = $framing;
            const FORM: LineForm = LineForm::$form;
        }
    )*};
}

/// Fields that belong to a connection or delimit a message (RFC 9110, 7.6.1).
const OF_CONNECTION: &[&str] = &["connection", "content-length", "transfer-encoding", "te", "upgrade", "keep-alive"];

kinds! {
    SetOut Fields "[-t types] [-s statuses] [-a] field ..." b"sa" true &["content-length", "transfer-encoding", "connection"];
    ClearOut Fields "[-t types] [-s statuses] name ..." b"s" false &["transfer-encoding", "connection"];
    SetIn Fields "[-t types] [-r] field ..." b"r" true &["content-length", "transfer-encoding"];
    ClearIn Fields "[-t types] name ..." b"" false &["content-length", "transfer-encoding"];
    SetRequest Set "name value" b"" true OF_CONNECTION;
    AddRequest Add "name value" b"" true OF_CONNECTION;
    RemoveRequest Remove "name ..." b"" false OF_CONNECTION;
    SetResponse Set "name value" b"" true OF_CONNECTION;
    AddResponse Add "name value" b"" true OF_CONNECTION;
    RemoveResponse Remove "name ..." b"" false OF_CONNECTION;
}

#[derive(Clone, Debug)]
pub struct MoreLine {
    pub directive: Box<str>,
    pub form: LineForm,
    /// Enclosing blocks with lines.
    pub depth: usize,
    /// Index among all lines of the configuration.
    pub number: usize,
    /// Empty: any type.
    pub types: Vec<Vec<u8>>,
    /// Empty: any status.
    pub statuses: Vec<u16>,
    /// `-a`: keeps existing fields.
    pub append: bool,
    /// `-r`: replaces only.
    pub replace: bool,
    pub fields: Vec<MoreField>,
}

impl MoreLine {
    /// Tells whether the line concerns a message of this media type, whose parameters from `charset` on do not count (nginx:
    /// `content_type_len`).
    pub fn has_type(&self, content_type: &[u8]) -> bool {
        let media = split_charset(content_type).0;
        self.types.is_empty() || self.types.iter().any(|wanted| wanted.eq_ignore_ascii_case(media))
    }
}

/// Splits a value of Content-Type before its parameter `charset`, whose value is the second part without quotes.
pub fn split_charset(value: &[u8]) -> (&[u8], &[u8]) {
    let semicolons = value.iter().enumerate().filter(|(_, c)| **c == b';');
    for (at, _) in semicolons {
        let rest = value.get(at + 1..).unwrap_or_default().trim_ascii_start();
        if let Some((name, charset)) = rest.split_at_checked(8)
            && name.eq_ignore_ascii_case(b"charset=")
        {
            let charset = charset.strip_prefix(b"\"").unwrap_or(charset);
            return (value.get(..at).unwrap_or_default(), charset.strip_suffix(b"\"").unwrap_or(charset));
        }
    }
    (value, b"")
}

#[derive(Clone, Debug)]
pub struct MoreField {
    pub name: Arc<[u8]>,
    pub wildcard: bool,
    /// `None`: removes the field.
    pub value: Option<HttpTemplate>,
}

impl MoreField {
    pub fn is(&self, name: &[u8]) -> bool {
        match self.wildcard {
            true => name.get(..self.name.len()).is_some_and(|start| start.eq_ignore_ascii_case(&self.name)),
            false => name.eq_ignore_ascii_case(&self.name),
        }
    }
}

#[derive(Clone, Debug)]
pub struct MoreLines<K> {
    all: Vec<Arc<MoreLine>>,
    kind: PhantomData<K>,
}

impl<K> MoreLines<K> {
    pub fn all(&self) -> &[Arc<MoreLine>] {
        &self.all
    }
}

impl<K: Clone> MoreLines<K> {
    /// Prepends the enclosing block's lines.
    pub fn under(
        inner: &mut Option<Rc<GivenDirective<MoreLines<K>>>>,
        outer: &Option<Rc<GivenDirective<MoreLines<K>>>>,
        depth: usize,
    ) {
        let Some(own) = inner else {
            inner.clone_from(outer);
            return;
        };
        let mut all = outer.as_ref().map(|given| given.value.all.clone()).unwrap_or_default();
        let deeper = |line: &Arc<MoreLine>| Arc::new(MoreLine { depth, ..MoreLine::clone(line) });
        all.extend(own.value.all.iter().map(deeper));
        Rc::make_mut(own).value.all = all;
    }
}

#[derive(Default)]
struct Count(usize);

impl<K: LinesKind> ValueKind for MoreLines<K> {
    const SYNTAX: &'static str = K::SYNTAX;
    const REPEATS: bool = true;
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let directive = d.name.text().into_owned();
        cx.get::<Count>().0 += 1;
        let number = cx.get::<Count>().0;
        let mut line = MoreLine {
            directive: directive.as_str().into(),
            form: K::FORM,
            depth: 0,
            number,
            types: Vec::new(),
            statuses: Vec::new(),
            append: K::FORM == LineForm::Add,
            replace: false,
            fields: Vec::new(),
        };
        if K::FORM != LineForm::Fields {
            line.fields = named::<K>(cx, d)?;
        }
        let mut words = d.args.iter().enumerate().filter(|_| K::FORM == LineForm::Fields);
        while let Some((index, word)) = words.next() {
            let text = word.text();
            let [b'-', option] = *word.bytes.as_slice() else {
                if word.bytes.starts_with(b"-") {
                    return Err(Problem::says(format!("{directive}: invalid option name: \"{text}\"")).at(index));
                }
                if !word.bytes.is_empty() {
                    line.fields.push(item::<K>(cx, d, index)?);
                }
                continue;
            };
            if option != b't' && !K::OPTIONS.contains(&option) {
                return Err(Problem::says(format!("{directive}: invalid option name: \"{text}\"")).at(index));
            }
            match option {
                b'a' => line.append = true,
                b'r' => line.replace = true,
                option => {
                    let Some((index, list)) = words.next() else {
                        let option = char::from(option);
                        return Err(
                            Problem::says(format!("{directive}: option -{option} takes an argument.")).at(index)
                        );
                    };
                    let list =
                        list.bytes.split(|c| matches!(c, b' ' | b'\t' | b'\r' | b'\n')).filter(|w| !w.is_empty());
                    match option {
                        b't' => line.types.extend(list.map(<[u8]>::to_vec)),
                        _ => line.statuses.extend(statuses(&directive, list).map_err(|p| p.at(index))?),
                    }
                }
            }
        }
        if line.append && line.fields.iter().any(|field| BUILT_IN.iter().any(|name| field.is(name.as_bytes()))) {
            let text = format!("{directive}: can not append builtin headers");
            return Err(Problem::says(text).hint("a message has at most one such field"));
        }
        Ok(MoreLines { all: vec![Arc::new(line)], kind: PhantomData })
    }
    fn append(&mut self, later: Self) {
        self.all.extend(later.all);
    }
}

/// Fields that occur once in a response.
const BUILT_IN: [&str; 11] = [
    "server",
    "date",
    "content-encoding",
    "location",
    "refresh",
    "last-modified",
    "content-range",
    "accept-ranges",
    "expires",
    "etag",
    "content-type",
];

fn statuses<'a>(directive: &str, list: impl Iterator<Item = &'a [u8]>) -> Result<Vec<u16>, Problem> {
    list.map(|text| {
        let wrong = || {
            let shown = String::from_utf8_lossy(text);
            Problem::says(format!("{directive}: invalid status code \"{shown}\""))
                .hint("write status codes, separated by spaces")
        };
        std::str::from_utf8(text).ok().and_then(|text| text.parse().ok()).ok_or_else(wrong)
    })
    .collect()
}

/// Parses a name and a value, or names.
fn named<K: LinesKind>(cx: &mut Cx, d: &Directive) -> Result<Vec<MoreField>, Problem> {
    let names = if K::SETS { d.args.get(..1) } else { d.args.get(..) };
    let mut items = Vec::new();
    for (index, name) in names.unwrap_or_default().iter().enumerate() {
        let (item, shown) =
            (MoreField { name: name.bytes.as_slice().into(), wildcard: false, value: None }, name.text());
        check_name::<K>(&item, &d.name.text(), &shown).map_err(|p| p.at(index))?;
        items.push(item);
    }
    if K::SETS
        && let (Some(item), Some(value)) = (items.first_mut(), d.args.get(1))
        && !value.bytes.is_empty()
    {
        item.value = Some(HttpTemplate::compile(cx, d, &one_line(&value.bytes)).map_err(|p| p.at(1))?);
    }
    Ok(items)
}

fn check_name<K: LinesKind>(item: &MoreField, directive: &str, shown: &str) -> Result<(), Problem> {
    if item.name.is_empty() || !item.name.iter().all(|c| c.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(c)) {
        return Err(Problem::says(format!("{directive}: invalid field name in \"{shown}\"")));
    }
    match K::FRAMING.iter().find(|framing| !item.wildcard && item.is(framing.as_bytes())) {
        Some(framing) => Err(Problem::says(format!("{directive}: \"{framing}\" cannot be changed"))
            .hint("the field delimits the message; a configuration cannot set it")),
        None => Ok(()),
    }
}

fn item<K: LinesKind>(cx: &mut Cx, d: &Directive, index: usize) -> Result<MoreField, Problem> {
    let directive = d.name.text().into_owned();
    let text = d.args.get(index).map(|w| w.bytes.clone()).unwrap_or_default();
    // As in the module, a space ends the name, too.
    let text = text.trim_ascii_start();
    let end = text.iter().position(|c| *c == b':' || c.is_ascii_whitespace()).unwrap_or(text.len());
    let (name, rest) = text.split_at_checked(end).unwrap_or((text, b""));
    let from = rest.iter().position(|c| *c != b':' && !c.is_ascii_whitespace()).unwrap_or(rest.len());
    let value = rest.get(from..).unwrap_or_default();
    let shown = String::from_utf8_lossy(text).into_owned();
    let wildcard = !K::SETS && name.ends_with(b"*");
    let name = if wildcard { name.strip_suffix(b"*").unwrap_or(name) } else { name };
    if name.is_empty() {
        let what = if wildcard { "wildcard key too short" } else { "no key found in the header argument" };
        return Err(Problem::says(format!("{directive}: {what}: {shown}")).at(index));
    }
    let item = MoreField { name: name.into(), wildcard, value: None };
    check_name::<K>(&item, &directive, &shown).map_err(|p| p.at(index))?;
    let value = match K::SETS && !value.is_empty() {
        true => Some(HttpTemplate::compile(cx, d, &one_line(value)).map_err(|p| p.at(index))?),
        false => None,
    };
    Ok(MoreField { value, ..item })
}
