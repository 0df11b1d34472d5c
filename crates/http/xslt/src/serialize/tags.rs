//! Elements and attributes of HTML 4, as far as their output differs.

/// An element of HTML 4.
#[derive(Clone, Copy)]
pub(super) struct Tag {
    pub is_inline: bool,
    pub is_empty: bool,
    /// The end tag is left out if the element is empty (`li` in libxml2's table).
    pub omits_end: bool,
}

const INLINE: &[&str] = &[
    "a", "abbr", "acronym", "applet", "b", "bdo", "big", "button", "cite", "code", "del", "dfn", "em", "embed", "font",
    "i", "iframe", "ins", "kbd", "label", "map", "object", "q", "s", "samp", "script", "select", "small", "span",
    "strike", "strong", "sub", "sup", "textarea", "tt", "u", "var",
];
const BLOCK: &[&str] = &[
    "address",
    "blockquote",
    "body",
    "caption",
    "center",
    "colgroup",
    "dd",
    "dir",
    "div",
    "dl",
    "dt",
    "fieldset",
    "form",
    "frameset",
    "h1",
    "h2",
    "h3",
    "h4",
    "h5",
    "h6",
    "head",
    "html",
    "legend",
    "li",
    "menu",
    "noframes",
    "noscript",
    "ol",
    "optgroup",
    "option",
    "p",
    "pre",
    "style",
    "table",
    "tbody",
    "td",
    "tfoot",
    "th",
    "thead",
    "title",
    "tr",
    "ul",
];
const EMPTY_INLINE: &[&str] = &["basefont", "br", "img", "input"];
const EMPTY_BLOCK: &[&str] = &["area", "base", "col", "frame", "hr", "isindex", "link", "meta", "param"];
const BOOLEAN: &[&str] = &[
    "checked", "compact", "declare", "defer", "disabled", "ismap", "multiple", "nohref", "noresize", "noshade",
    "nowrap", "readonly", "selected",
];

pub(super) fn tag(name: &str) -> Option<Tag> {
    let name = name.to_ascii_lowercase();
    let name = name.as_str();
    let (is_inline, is_empty) = if INLINE.contains(&name) {
        (true, false)
    } else if BLOCK.contains(&name) {
        (false, false)
    } else if EMPTY_INLINE.contains(&name) {
        (true, true)
    } else if EMPTY_BLOCK.contains(&name) {
        (false, true)
    } else {
        return None;
    };
    Some(Tag { is_inline, is_empty, omits_end: name == "li" })
}

pub(super) fn is_boolean(name: &str) -> bool {
    BOOLEAN.iter().any(|known| known.eq_ignore_ascii_case(name))
}

pub(super) fn is_xhtml_empty(name: &str) -> bool {
    EMPTY_INLINE.contains(&name) || EMPTY_BLOCK.contains(&name)
}
