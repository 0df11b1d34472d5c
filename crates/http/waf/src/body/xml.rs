//! XML bodies, and the paths of `XML:` that rules use.
//!
//! Paths are a part of XPath 1.0: steps of `/` and `//` with `*`, a name or `prefix:name`, `text()`, and a last step
//! `@name` or `@*`. Other expressions are refused.

use roxmltree::{Document, Node, ParsingOptions};
use std::borrow::Cow;

/// Nodes of a document.
pub const XML_NODES_MAX: u32 = 200_000;
/// Values of a path, and their bytes together.
const VALUES_MAX: usize = 10_000;

/// The name test of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
enum NodeTest {
    Any,
    /// Namespace and local name.
    Name(Option<Box<str>>, Box<str>),
    Text,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct PathStep {
    /// `//`: also descendants.
    deep: bool,
    attribute: bool,
    test: NodeTest,
}

/// A compiled path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct XmlPath {
    steps: Vec<PathStep>,
}

impl XmlPath {
    /// Parses a path; `namespaces` are pairs of prefix and URI. Fails with the reason.
    pub fn parse(text: &str, namespaces: &[(String, String)]) -> Result<XmlPath, String> {
        let refused = |reason: &str| format!("XML path \"{text}\": {reason}");
        let mut rest = text.trim();
        let mut steps = Vec::new();
        while !rest.is_empty() {
            let deep = rest.starts_with("//");
            rest = rest
                .strip_prefix("//")
                .or(rest.strip_prefix('/'))
                .ok_or_else(|| refused("a path begins with / or //"))?;
            let end = rest.find('/').unwrap_or(rest.len());
            let (step, behind) = rest.split_at(end);
            rest = behind;
            let (attribute, name) = match step.strip_prefix('@') {
                Some(name) => (true, name),
                None => (false, step),
            };
            if attribute && !rest.is_empty() {
                return Err(refused("an attribute must be the last step"));
            }
            let is_name = |part: &str| {
                !part.is_empty() && part.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | '.'))
            };
            let test = match (name, name.split_once(':')) {
                ("*", _) => NodeTest::Any,
                ("text()", _) if !attribute => NodeTest::Text,
                (_, Some((prefix, local))) if is_name(prefix) && is_name(local) => {
                    let known = namespaces.iter().find(|(known, _)| known == prefix);
                    let (_, uri) = known.ok_or_else(|| refused(&format!("no xmlns of the rule names \"{prefix}\"")))?;
                    NodeTest::Name(Some(uri.as_str().into()), local.into())
                }
                (name, None) if is_name(name) => NodeTest::Name(None, name.into()),
                _ => return Err(refused("only /, //, names, *, @ and text() are supported")),
            };
            steps.push(PathStep { deep, attribute, test });
        }
        if steps.is_empty() {
            return Err(refused("the path is empty"));
        }
        Ok(XmlPath { steps })
    }
}

impl NodeTest {
    fn matches(&self, node: Node) -> bool {
        match self {
            NodeTest::Any => node.is_element(),
            NodeTest::Text => node.is_text(),
            NodeTest::Name(uri, local) => {
                let name = node.tag_name();
                node.is_element() && name.name() == &**local && name.namespace() == uri.as_deref()
            }
        }
    }
}

/// The text of a body: UTF-8, or the encoding of its XML declaration or byte order mark.
fn decoded(body: &[u8]) -> Option<Cow<'_, str>> {
    if let Ok(text) = std::str::from_utf8(body) {
        return Some(text.trim_start_matches('\u{feff}').into());
    }
    let declared = || {
        let head = body.get(..body.len().min(200))?;
        let start = memchr::memmem::find(head, b"encoding=")?;
        let quoted = head.get(start + 9..)?;
        let (quote, rest) = quoted.split_first()?;
        let end = rest.iter().position(|byte| byte == quote)?;
        encoding_rs::Encoding::for_label(rest.get(..end)?)
    };
    let marked = encoding_rs::Encoding::for_bom(body).map(|(encoding, _)| encoding);
    let (text, _, failed) = marked.or_else(declared)?.decode(body);
    (!failed).then_some(text)
}

/// Values of several paths, or the reason why the body is no well-formed document.
pub(crate) fn values<'p>(body: &[u8], paths: impl Iterator<Item = &'p XmlPath>) -> Result<Vec<Vec<Box<[u8]>>>, String> {
    let text = decoded(body).ok_or("the encoding is unknown")?;
    let options = ParsingOptions { allow_dtd: true, nodes_limit: XML_NODES_MAX, ..ParsingOptions::default() };
    let document = Document::parse_with_options(&text, options).map_err(|error| error.to_string())?;
    Ok(paths.map(|path| path_values(&document, path)).collect())
}

fn path_values(document: &Document, path: &XmlPath) -> Vec<Box<[u8]>> {
    let mut nodes = vec![document.root()];
    let mut values = Vec::new();
    for step in &path.steps {
        if step.attribute {
            collect_attributes(&nodes, step, &mut values);
            return values;
        }
        let mut next: Vec<Node> = Vec::new();
        // Descendants of several nodes overlap: the outermost suffice.
        let mut covered = 0;
        for node in &nodes {
            if step.deep {
                let range = node.range();
                if range.start < covered && !node.is_root() {
                    continue;
                }
                covered = range.end;
                next.extend(node.descendants().skip(1).filter(|found| step.test.matches(*found)));
            } else {
                next.extend(node.children().filter(|found| step.test.matches(*found)));
            }
            if next.len() > VALUES_MAX {
                break;
            }
        }
        next.truncate(VALUES_MAX);
        nodes = next;
    }
    let bytes_max = document.input_text().len().saturating_mul(4);
    let mut bytes = 0;
    for node in nodes {
        let mut content = String::new();
        for text in node.descendants().filter(|node| node.is_text()) {
            content.push_str(text.text().unwrap_or_default());
        }
        // Nested elements repeat their text: a document must not grow without bound.
        bytes += content.len();
        if bytes > bytes_max {
            break;
        }
        values.push(content.into_bytes().into());
    }
    values
}

fn collect_attributes(nodes: &[Node], step: &PathStep, values: &mut Vec<Box<[u8]>>) {
    for node in nodes {
        let owners: Box<dyn Iterator<Item = Node>> =
            if step.deep { Box::new(node.descendants()) } else { Box::new(std::iter::once(*node)) };
        for attribute in owners.flat_map(|owner| owner.attributes()) {
            let matches = match &step.test {
                NodeTest::Any => true,
                NodeTest::Name(uri, local) => attribute.name() == &**local && attribute.namespace() == uri.as_deref(),
                NodeTest::Text => false,
            };
            if matches && values.len() < VALUES_MAX {
                values.push(attribute.value().as_bytes().into());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(body: &str, path: &str) -> Vec<String> {
        let namespaces = [("s".to_string(), "urn:s".to_string())];
        let path = XmlPath::parse(path, &namespaces).expect(path);
        let values = values(body.as_bytes(), [&path].into_iter()).expect("a document");
        values.into_iter().flatten().map(|value| String::from_utf8_lossy(&value).into_owned()).collect()
    }

    const BODY: &str = "<?xml version=\"1.0\"?><a x='1'><b y='2'>text</b><c xmlns='urn:s'>more<!-- c --></c></a>";

    #[test]
    fn paths_select_text_and_attributes() {
        assert_eq!(of(BODY, "/*"), ["textmore"]);
        assert_eq!(of(BODY, "//@*"), ["1", "2"]);
        assert_eq!(of(BODY, "/a/b"), ["text"]);
        assert_eq!(of(BODY, "//s:c/text()"), ["more"]);
        assert_eq!(of(BODY, "/a/@x"), ["1"]);
        assert_eq!(of(BODY, "//b/@z"), Vec::<String>::new());
    }

    #[test]
    fn malformed_documents_and_other_paths_are_errors() {
        assert!(values(b"<a>", std::iter::empty()).is_err());
        assert!(XmlPath::parse("/a[1]", &[]).is_err());
        assert!(XmlPath::parse("count(/a)", &[]).is_err());
        assert!(XmlPath::parse("/x:a", &[]).is_err());
    }

    #[test]
    fn other_encodings_are_decoded() {
        let path = XmlPath::parse("/*", &[]).expect("path");
        let body = b"<?xml version='1.0' encoding='ISO-8859-1'?><a>\xe9</a>";
        let found = values(body, [&path].into_iter()).expect("a document");
        assert_eq!(found, [[Box::from("é".as_bytes())]]);
    }

    #[test]
    fn nested_elements_do_not_multiply_the_text() {
        let body = format!("{}{}{}", "<a>".repeat(1000), "x".repeat(10_000), "</a>".repeat(1000));
        let path = XmlPath::parse("//a", &[]).expect("path");
        let found = values(body.as_bytes(), [&path].into_iter()).expect("a document");
        let bytes: usize = found.iter().flatten().map(|value| value.len()).sum();
        assert!(bytes < body.len() * 4, "{bytes}");
    }
}
