//! Bytes of result trees (section 16), as libxml2 and libxslt write them.

mod html;
mod tags;
mod xhtml;
mod xml;

use crate::failure::{RunResult, UNWANTED, failed};
use crate::names::{ExpandedName, NameId, NameTable};
use crate::tree::{Document, NIL, NodeIndex, NodeKind};
use crate::xml::Loader;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OutputMethod {
    Xml,
    Html,
    Text,
}

/// `xsl:output`, merged.
#[derive(Clone, Debug, Default)]
pub(crate) struct OutputOptions {
    pub method: Option<OutputMethod>,
    pub version: Option<String>,
    pub encoding: Option<String>,
    pub omit_declaration: Option<bool>,
    pub standalone: Option<bool>,
    pub doctype_public: Option<String>,
    pub doctype_system: Option<String>,
    pub cdata_elements: Vec<ExpandedName>,
    pub indent: Option<bool>,
    pub media_type: Option<String>,
}

/// Text under construction, with its limit.
pub(super) struct TextWriter<'w> {
    pub out: String,
    pub document: &'w Document,
    pub names: &'w NameTable,
    pub options: &'w OutputOptions,
    most: usize,
    loader: &'w dyn Loader,
    /// Bytes of the result at the last question for its receiver.
    asked_at: usize,
}

/// Bytes between two questions for the receiver.
const BYTES_UNASKED: usize = 256 << 10;

impl TextWriter<'_> {
    /// Fails if the result is too large, or not wanted any more.
    pub fn check(&mut self) -> RunResult<()> {
        if self.out.len() - self.asked_at >= BYTES_UNASKED {
            self.asked_at = self.out.len();
            if !self.loader.is_wanted() {
                return failed(UNWANTED);
            }
        }
        match self.out.len() > self.most {
            true => failed("the result is too large"),
            false => Ok(()),
        }
    }
    pub fn push(&mut self, text: &str) {
        self.out.push_str(text);
    }
    pub fn name(&mut self, node: NodeIndex) {
        let name = self.document.node(node).name;
        if !name.prefix.is_none() {
            self.out.push_str(self.names.text(name.prefix));
            self.out.push(':');
        }
        self.out.push_str(self.names.text(name.local));
    }
    pub fn declarations(&mut self, node: NodeIndex) {
        for (_, decl) in self.document.own_declarations(node) {
            if decl.prefix == NameId::XML {
                continue;
            }
            self.out.push_str(" xmlns");
            if !decl.prefix.is_none() {
                self.out.push(':');
                self.out.push_str(self.names.text(decl.prefix));
            }
            self.out.push_str("=\"");
            let uri = self.names.text(decl.uri).to_string();
            self.escape_attribute(&uri, true);
            self.out.push('"');
        }
    }
    pub fn escape_text(&mut self, text: &str) {
        for c in text.chars() {
            match c {
                '<' => self.out.push_str("&lt;"),
                '>' => self.out.push_str("&gt;"),
                '&' => self.out.push_str("&amp;"),
                '\r' => self.out.push_str("&#13;"),
                c => self.out.push(c),
            }
        }
    }
    /// Escapes an attribute of XML. Without an encoding in `xsl:output`, libxml2 writes references.
    pub fn escape_attribute(&mut self, text: &str, raw: bool) {
        for c in text.chars() {
            match c {
                '"' => self.out.push_str("&quot;"),
                '\n' => self.out.push_str("&#10;"),
                '\r' => self.out.push_str("&#13;"),
                '\t' => self.out.push_str("&#9;"),
                '<' => self.out.push_str("&lt;"),
                '>' => self.out.push_str("&gt;"),
                '&' => self.out.push_str("&amp;"),
                c if !c.is_ascii() && !raw => self.out.push_str(&format!("&#x{:X};", c as u32)),
                c => self.out.push(c),
            }
        }
    }
    pub fn comment(&mut self, node: NodeIndex) {
        self.out.push_str("<!--");
        self.out.push_str(self.document.value(node));
        self.out.push_str("-->");
    }
    pub fn instruction(&mut self, node: NodeIndex, end: &str) {
        self.out.push_str("<?");
        self.name(node);
        let value = self.document.value(node);
        if !value.is_empty() {
            self.out.push(' ');
            self.out.push_str(value);
        }
        self.out.push_str(end);
    }
    pub fn is_element(&self, node: NodeIndex) -> bool {
        node != NIL && self.document.node(node).kind == NodeKind::Element
    }
}

/// The result's method: `xsl:output`, or HTML for an element `html` (section 16).
pub(crate) fn method(document: &Document, names: &NameTable, options: &OutputOptions) -> OutputMethod {
    if let Some(method) = options.method {
        return method;
    }
    for node in document.children(0) {
        let entry = document.node(node);
        match entry.kind {
            NodeKind::Element => {
                let is_html = entry.name.ns.is_none() && names.text(entry.name.local).eq_ignore_ascii_case("html");
                return if is_html { OutputMethod::Html } else { OutputMethod::Xml };
            }
            kind if kind.is_text() && !document.value(node).bytes().all(crate::xml::scan_rules::is_space) => break,
            _ => {}
        }
    }
    OutputMethod::Xml
}

/// Serializes a result in its encoding.
pub(crate) fn serialize(
    document: &mut Document,
    names: &mut NameTable,
    options: &OutputOptions,
    most: usize,
    loader: &dyn Loader,
) -> RunResult<Vec<u8>> {
    let method = method(document, names, options);
    if document.node(0).first == NIL {
        return Ok(Vec::new());
    }
    let encoding = options.encoding.as_deref();
    let is_xhtml = method == OutputMethod::Xml && xhtml::is_doctype(options);
    if method == OutputMethod::Html {
        html::set_meta_encoding(document, names, encoding.unwrap_or("UTF-8"));
    }
    let writer = TextWriter { out: String::new(), document, names, options, most, loader, asked_at: 0 };
    let text = match method {
        OutputMethod::Text => text(writer)?,
        OutputMethod::Html => html::write(writer)?,
        OutputMethod::Xml => xml::write(writer, is_xhtml)?,
    };
    encode(text, encoding)
}

fn text(mut writer: TextWriter<'_>) -> RunResult<String> {
    let mut at = 0;
    while let Some(next) = writer.document.following(at, 0, false) {
        at = next;
        if writer.document.node(at).kind.is_text() {
            writer.out.push_str(writer.document.value(at));
            writer.check()?;
        }
    }
    Ok(writer.out)
}

/// Encodings of `xsl:output` that can be written.
pub(crate) fn is_known_encoding(label: &str) -> bool {
    matches!(label.to_ascii_uppercase().as_str(), "ASCII" | "US-ASCII" | "UTF-16" | "UTF-16LE" | "UTF-16BE")
        || encoding_rs::Encoding::for_label(label.as_bytes()).is_some_and(|e| e != encoding_rs::REPLACEMENT)
}

/// Encodes; characters that the encoding lacks become references.
fn encode(text: String, label: Option<&str>) -> RunResult<Vec<u8>> {
    let Some(label) = label else { return Ok(text.into_bytes()) };
    let units = |mark: bool, bytes: fn(u16) -> [u8; 2]| {
        let mut out = Vec::with_capacity(text.len() * 2 + 2);
        if mark {
            out.extend(bytes(0xfeff));
        }
        text.encode_utf16().for_each(|unit| out.extend(bytes(unit)));
        out
    };
    let single = |most: u32| {
        let mut out = Vec::with_capacity(text.len());
        for c in text.chars() {
            match u8::try_from(c as u32).ok().filter(|_| (c as u32) <= most) {
                Some(byte) => out.push(byte),
                None => out.extend(format!("&#{};", c as u32).bytes()),
            }
        }
        out
    };
    Ok(match label.to_ascii_uppercase().as_str() {
        "UTF-8" | "UTF8" => text.into_bytes(),
        "UTF-16" => units(true, u16::to_le_bytes),
        "UTF-16LE" => units(false, u16::to_le_bytes),
        "UTF-16BE" => units(false, u16::to_be_bytes),
        "ISO-8859-1" | "ISO-LATIN-1" | "LATIN1" => single(0xff),
        "ASCII" | "US-ASCII" => single(0x7f),
        _ => match encoding_rs::Encoding::for_label(label.as_bytes()) {
            Some(encoding) => encoding.encode(&text).0.into_owned(),
            None => return failed(format!("unsupported encoding {label}")),
        },
    })
}
